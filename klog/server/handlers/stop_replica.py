"""StopReplica (klog's own, 10011): follow and lead these no more; with ``delete`` their logs go too, durably.

Behaviour
    From the controller alone; see `klog.server.replicas.Replicas.stop`. A replica in a later leader epoch than the one
    named is left alone, and so is the log of another topic of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.STOP_REPLICA, 0, 0, refusal={"failed": []})
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    return await broker.replicas.stop(request.entity)
