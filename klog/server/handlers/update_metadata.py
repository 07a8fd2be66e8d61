"""UpdateMetadata (klog's own, 10012): what this broker answers Metadata from, and topics' own settings.

Behaviour
    From the controller alone: a request of an earlier controller, or for an earlier incarnation of this broker, is
    refused and changes nothing. Changed settings of a topic hold for its logs at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.UPDATE_METADATA, 0, 0, refusal={})
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    try:
        await broker.authority.check(request.entity.controller_epoch, request.entity.incarnation)
    except KlogError as error:
        return {"error_code": error.wire}
    broker.take_metadata(request.entity)
    return {"error_code": 0}
