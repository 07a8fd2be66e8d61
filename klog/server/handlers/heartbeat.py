"""Heartbeat: v0-4.

Behaviour
    A heartbeat keeps a member's session alive; its answer announces a rebalance: REBALANCE_IN_PROGRESS. The broker
    answers from memory, also while ZooKeeper is unreachable. It delays the answer where the client can wait, so that
    the member learns of a rebalance at once (`klog.server.groups.cached_group`).

Version notes
    v3 has static members (KIP-345). v4 is flexible.
"""

from __future__ import annotations

from collections.abc import Awaitable

from klog.errors import KlogError
from klog.groups.members import Caller
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.parts import Parts


@handles(ApiKey.HEARTBEAT, 0, 4, waits=True)
def handle(request: Request, parts: Parts) -> Answer | Awaitable[Answer]:
    entity = request.entity
    caller = Caller(entity.member_id, getattr(entity, "group_instance_id", None), entity.generation_id)
    outcome = parts.groups.heartbeat(entity.group_id, caller, request.connection)
    return _later(outcome) if isinstance(outcome, Awaitable) else error_fields(outcome)


async def _later(outcome: Awaitable[KlogError | None]) -> Answer:
    return error_fields(await outcome)
