"""OffsetDelete: v0 (KIP-496).

Behaviour
    Removes committed offsets, except those of topics that members of the group read: GROUP_SUBSCRIBED_TO_TOPIC. If the
    group has members of a protocol type other than consumer, the request is refused as a whole, since their topics are
    not known.
"""

from __future__ import annotations

from typing import Any

from klog.errors import GroupIsHeld, NonEmptyGroup
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.OFFSET_DELETE, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    entity = request.entity
    asked = [TopicPartition(topic.name, one.partition_index) for topic in entity.topics for one in topic.partitions]
    try:
        outcomes = await parts.groups.group_admin.delete_offsets(entity.group_id, asked, request.actor)
    except GroupIsHeld as error:
        raise NonEmptyGroup(error.message) from None
    topics: dict[str, list[dict[str, Any]]] = {topic.name: [] for topic in entity.topics}
    for partition, refused in outcomes.items():
        code = 0 if refused is None else refused.wire
        topics[partition.topic].append({"partition_index": partition.partition, "error_code": code})
    return {"topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()]}
