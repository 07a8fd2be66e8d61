"""DescribeMembers (klog's own, 10031): when the members of a group sent their last heartbeats.

Behaviour
    Kafka's DescribeGroups says who the members are. Only the coordinator knows their heartbeats; a commit of a member
    counts as one.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.DESCRIBE_MEMBERS, 0, 0, may_refuse=True)
def handle(request: Request, parts: Parts) -> Answer:
    found = parts.groups.group_admin.heartbeats_ms(request.entity.group)
    return {"members": [{"member_id": name, "heartbeat_ms": -1 if ms is None else ms} for name, ms in found.items()]}
