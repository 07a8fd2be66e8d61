"""SyncGroup: v0-5.

Behaviour
    A member asks for its assignment; the generation's leader sends the assignments of all. The coordinator answers when
    ZooKeeper has them.

Version notes
    v3 has static members (KIP-345). v4 is flexible. v5 has the protocol's type and name, which must be the group's
    (KIP-559).
"""

from __future__ import annotations

from klog.groups.members import Caller, Sync
from klog.net.connection import while_open
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.SYNC_GROUP, 0, 5, waits=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    entity = request.entity
    sync = Sync(
        Caller(entity.member_id, getattr(entity, "group_instance_id", None), entity.generation_id),
        (getattr(entity, "protocol_type", None), getattr(entity, "protocol_name", None)),
        {one.member_id: bytes(one.assignment) for one in entity.assignments},
    )
    with while_open(request.connection):
        synced = await parts.groups.sync(entity.group_id, sync)
    return {"protocol_type": synced.protocol_type, "protocol_name": synced.protocol, "assignment": synced.assignment}
