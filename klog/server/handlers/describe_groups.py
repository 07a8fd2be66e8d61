"""DescribeGroups: v0-5.

Behaviour
    A group's phase and members. Each member's metadata and assignment are in the answer while the group is stable. An
    unknown group is ``Dead``, without an error. A group that a request names twice is answered once.

Version notes
    v3 asks for the permitted operations: all, unless `klog.server.access` says otherwise. v4 has static members
    (KIP-345). v5 is flexible.
"""

from __future__ import annotations

from typing import Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.security.permissions import ALL_OPERATIONS, OPERATIONS_NOT_ASKED, ResourceType
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.groups.group_admin import DEAD
from klog.server.parts import Parts


@handles(ApiKey.DESCRIBE_GROUPS, 0, 5)
async def handle(request: Request, parts: Parts) -> Answer:
    is_asked = getattr(request.entity, "include_authorized_operations", False)
    may_do = ALL_OPERATIONS[ResourceType.GROUP] if is_asked else OPERATIONS_NOT_ASKED

    async def one(name: str) -> dict[str, Any]:
        try:
            found = await parts.groups.group_admin.describe(name)
        except KlogError as error:
            return {**error_fields(error), "group_id": name, **DEAD, "authorized_operations": OPERATIONS_NOT_ASKED}
        return {**error_fields(None), "group_id": name, **found, "authorized_operations": may_do}

    names = dict.fromkeys(request.entity.groups)  # a group's answer is thousands of times as large as its name
    return {"groups": [await one(name) async for name in request.in_turn(names)]}
