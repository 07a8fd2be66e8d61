"""StopReplica (klog's own, 10011): stop following and leading these replicas; ``delete`` removes their logs, durably.

Behaviour
    Only the controller may send it; see `klog.server.replicas.replicas.Replicas.stop_replica`. A replica in a later
    leader epoch than the named one remains, and so does the log of another topic of the same name.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.STOP_REPLICA, 0, 0, of_brokers=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    return await parts.replicas.stop_replica(request.entity)
