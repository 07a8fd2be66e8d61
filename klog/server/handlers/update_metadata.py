"""UpdateMetadata (klog's own, 10012): the cluster state from which this broker answers Metadata, and topics' settings.

Behaviour
    Only the controller may send it: a request of an earlier controller, or for an earlier incarnation of this broker,
    is refused and changes nothing. Changed settings of a topic apply to its logs at once.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.UPDATE_METADATA, 0, 0, of_brokers=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    await parts.authority.check(request.entity.controller_epoch, request.entity.incarnation)
    parts.take_metadata(request.entity)
    return {}
