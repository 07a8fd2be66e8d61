"""LeaderAndIsr (klog's own, 10010): which of its replicas this broker leads, and whom it follows with the others.

Behaviour
    From the controller alone; see `klog.server.replicas.Replicas.obey`. ``failed`` names the replicas that cannot do
    what they are told. REQUEST_TIMED_OUT for the whole request: say it again, ZooKeeper has not answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.LEADER_AND_ISR, 0, 0, refusal={"failed": []})
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    return await broker.replicas.obey(request.entity)
