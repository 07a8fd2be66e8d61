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
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts

log = logging.getLogger(__name__)

REASON_CHARS_MAX = 255


@handles(ApiKey.LEAVE_GROUP, 0, 5, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    entity = request.entity
    if request.head.version < 3:
        leaving = [(entity.member_id, None)]
    else:
        leaving = [(one.member_id, one.group_instance_id) for one in entity.members]
    reasons = {one.member_id: str(one.reason) for one in getattr(entity, "members", ()) if getattr(one, "reason", None)}
    left = await parts.groups.leave(entity.group_id, leaving, reasons)
    for asked, error in zip(entity.members if request.head.version >= 3 else (), left.errors, strict=False):
        if error is None and getattr(asked, "reason", None):
            who = asked.member_id or asked.group_instance_id
            log.info("group %r: %s has left: %s", entity.group_id, who, asked.reason[:REASON_CHARS_MAX])
    codes = [0 if error is None else error.wire for error in left.errors]
    if request.head.version < 3:
        return {"error_code": codes[0]}
    return {
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}
            for (member_id, instance_id), code in zip(leaving, codes, strict=True)
        ]
    }
