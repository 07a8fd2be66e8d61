"""ControlledShutdown (klog's own, 10014): a broker asks the controller to move its leaderships before it stops.

Behaviour
    Answered when the new leaders are elected and informed. ``remaining`` counts the partitions that the broker still
    leads, because no other replica may lead them.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.CONTROLLED_SHUTDOWN, 0, 0, of_brokers=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    return {"remaining": await parts.controller.leave(request.entity.broker_id, request.entity.incarnation)}
