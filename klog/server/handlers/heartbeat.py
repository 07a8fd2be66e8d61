"""Heartbeat: v0-4.

Behaviour
    A member says that it lives, and hears when the group changes: REBALANCE_IN_PROGRESS. Answered from memory, also
    while ZooKeeper is away.

Version notes
    v3 has static members (KIP-345). v4 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.HEARTBEAT, 0, 4)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    entity = request.entity
    instance_id = getattr(entity, "group_instance_id", None)
    error = await broker.groups.heartbeat(entity.group_id, entity.member_id, instance_id, entity.generation_id)
    return {"error_code": 0 if error is None else error.wire}
