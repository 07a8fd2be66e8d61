"""Heartbeat: v0-4.

Behaviour
    A member says that it lives, and hears when the group changes: REBALANCE_IN_PROGRESS. Answered from memory, also
    while ZooKeeper is away; held back for a while where the client can wait, so that it hears at once
    (`klog.server.groups.held`).

Version notes
    v3 has static members (KIP-345). v4 is flexible.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.HEARTBEAT, 0, 4)
def handle(broker: Broker, request: Request) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    entity = request.entity
    instance_id = getattr(entity, "group_instance_id", None)
    told = broker.groups.heartbeat(
        entity.group_id, entity.member_id, instance_id, entity.generation_id, request.connection
    )
    return _later(told) if isinstance(told, Awaitable) else _answer(told)


async def _later(told: Awaitable[KlogError | None]) -> dict[str, Any]:
    return _answer(await told)


def _answer(error: KlogError | None) -> dict[str, Any]:
    return {"error_code": 0 if error is None else error.wire}
