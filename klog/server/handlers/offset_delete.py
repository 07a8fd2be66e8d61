"""OffsetDelete: v0 (KIP-496).

Behaviour
    Removes committed offsets, except those of topics that members of the group read: GROUP_SUBSCRIBED_TO_TOPIC. If the
    group has members of a protocol type other than consumer, the request is refused as a whole, since their topics are
    not known.
"""

from __future__ import annotations

from klog.client.partition_requests import by_partition, by_topic
from klog.errors import GroupIsHeld, NonEmptyGroup
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.parts import Parts


@handles(ApiKey.OFFSET_DELETE, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    entity = request.entity
    asked = [partition for partition, _ in by_partition(entity.topics)]
    try:
        outcomes = await parts.groups.group_admin.delete_offsets(entity.group_id, asked, request.actor)
    except GroupIsHeld as error:
        raise NonEmptyGroup(error.message) from None
    return {"topics": by_topic((partition, error_fields(error)) for partition, error in outcomes.items())}
