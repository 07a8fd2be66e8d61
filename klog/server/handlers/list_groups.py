"""ListGroups: v0-4.

Behaviour
    The groups that this broker coordinates, including those that have only committed offsets. A client asks every
    broker. A group of consumers that coordinate through ZooKeeper has the protocol type ``zookeeper``.

Version notes
    v3 is flexible. v4 filters by state, and the answer has the state (KIP-518).
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.LIST_GROUPS, 0, 4, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    return {"groups": await parts.groups.group_admin.list(getattr(request.entity, "states_filter", ()))}
