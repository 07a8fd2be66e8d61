"""DeleteGroups: v0-2.

Behaviour
    Removes a group without members, with all offsets that it has committed. NON_EMPTY_GROUP while the group has
    members, whether they coordinate through a broker or through ZooKeeper. GROUP_ID_NOT_FOUND for an unknown group.

Version notes
    v2 is flexible.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles, outcome
from klog.server.parts import Parts


@handles(ApiKey.DELETE_GROUPS, 0, 2)
async def handle(request: Request, parts: Parts) -> Answer:
    return {
        "results": [
            {"group_id": name, **await outcome(parts.groups.group_admin.delete(name, request.actor))}
            async for name in request.in_turn(request.entity.groups_names)
        ]
    }
