"""DeleteGroups: v0-2.

Behaviour
    Removes a group without members, with all offsets that it has committed. NON_EMPTY_GROUP while the group has
    members, whether they coordinate through a broker or through ZooKeeper. GROUP_ID_NOT_FOUND for an unknown group.

Version notes
    v2 is flexible.
"""

from __future__ import annotations

from typing import Any

from klog.coordination.acts import Actor
from klog.errors import KlogError
from klog.net.turns import Share
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.groups.coordinator import Coordinator
from klog.server.parts import Parts


@handles(ApiKey.DELETE_GROUPS, 0, 2)
async def handle(request: Request, parts: Parts) -> dict[str, Any]:
    share = request.share()
    return {"results": [await _one(parts.groups, name, request.actor, share) for name in request.entity.groups_names]}


async def _one(groups: Coordinator, name: str, actor: Actor, share: Share) -> dict[str, Any]:
    await share.yield_if_due()
    try:
        await groups.group_admin.delete(name, actor)
    except KlogError as error:
        return {"group_id": name, "error_code": error.wire}
    return {"group_id": name, "error_code": 0}
