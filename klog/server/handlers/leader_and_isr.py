"""LeaderAndIsr (klog's own, 10010): which of its replicas this broker leads, and the leaders of its other replicas.

Behaviour
    Only the controller may send it; see `klog.server.replicas.replicas.Replicas.leader_and_isr`. ``failed`` names the
    replicas for which the broker cannot obey. REQUEST_TIMED_OUT for the whole request means that ZooKeeper has not
    answered; the controller repeats the request.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.LEADER_AND_ISR, 0, 0, of_brokers=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    return await parts.replicas.leader_and_isr(request.entity)
