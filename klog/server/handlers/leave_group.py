"""LeaveGroup: v0-5.

Behaviour
    Members leave, and the remaining members take over their partitions. The last member gets its answer when ZooKeeper
    has the group as empty.

Version notes
    v3 names several members, static ones also by their instance id alone, for operators (KIP-345). v4 is flexible.
    v5 has a reason (KIP-800), which is logged and is in the event of the rebalance.
"""

from __future__ import annotations

import logging

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.parts import Parts

log = logging.getLogger(__name__)

REASON_CHARS_MAX = 255


@handles(ApiKey.LEAVE_GROUP, 0, 5, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    entity = request.entity
    asked = getattr(entity, "members", (entity,))
    leaving = [(one.member_id, getattr(one, "group_instance_id", None)) for one in asked]
    reasons = {one.member_id: str(one.reason) for one in asked if getattr(one, "reason", None)}
    left = await parts.groups.leave(entity.group_id, leaving, reasons)
    members = []
    for one, (member_id, instance_id), error in zip(asked, leaving, left.errors, strict=True):
        if error is None and getattr(one, "reason", None):
            who = member_id or instance_id
            log.info("group %r: %s has left: %s", entity.group_id, who, one.reason[:REASON_CHARS_MAX])
        members.append({"member_id": member_id, "group_instance_id": instance_id, **error_fields(error)})
    return {"members": members} if request.head.version >= 3 else members[0]
