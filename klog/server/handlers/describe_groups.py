"""DescribeGroups: v0-5.

Behaviour
    A group's phase and members. What each wants and reads is said while the group is stable. A group that there is not
    is ``Dead``, without an error. What is asked for twice is answered once.

Version notes
    v3 asks for the operations one may do: all, as there are no access lists. v4 has static members (KIP-345).
    v5 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.net.turns import Share
from klog.protocol.apis import ApiKey
from klog.server import operations
from klog.server.dispatch import Request, handles
from klog.server.groups.machine import Phase
from klog.server.groups.operators import Described

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.DESCRIBE_GROUPS, 0, 5)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    may_do = (
        operations.GROUP if getattr(request.entity, "include_authorized_operations", False) else operations.NOT_ASKED
    )
    share = request.share()
    names = dict.fromkeys(request.entity.groups)  # a group's answer is thousands of times as large as its name
    return {"groups": [await _one(broker, name, may_do, share) for name in names]}


async def _one(broker: Broker, name: str, may_do: int, share: Share) -> dict[str, Any]:
    await share.breathe()
    code = 0
    try:
        found = await broker.groups.operators.describe(name)
    except KlogError as error:
        code, found = error.wire, Described(Phase.DEAD.value)
    return {
        "error_code": code,
        "group_id": name,
        "group_state": found.state,
        "protocol_type": found.protocol_type,
        "protocol_data": found.protocol,
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "client_id": one.client_id,
                "client_host": one.host,
                "member_metadata": one.metadata,
                "member_assignment": one.assignment,
            }
            for one in found.members
        ],
        "authorized_operations": operations.NOT_ASKED if code else may_do,
    }
