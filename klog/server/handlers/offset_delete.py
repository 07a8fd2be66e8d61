"""OffsetDelete: v0 (KIP-496).

Behaviour
    Committed offsets are taken away, but for topics that members of the group read: GROUP_SUBSCRIBED_TO_TOPIC. A group
    with members that are no consumers is refused as a whole, since nobody can tell what they read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import GroupIsHeld, KlogError, NonEmptyGroup
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.OFFSET_DELETE, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    entity = request.entity
    asked = [TopicPartition(topic.name, one.partition_index) for topic in entity.topics for one in topic.partitions]
    try:
        outcomes = await broker.groups.operators.delete_offsets(entity.group_id, asked)
    except GroupIsHeld:
        return {"error_code": NonEmptyGroup.wire, "topics": []}
    except KlogError as error:
        return {"error_code": error.wire, "topics": []}
    topics: dict[str, list[dict[str, Any]]] = {topic.name: [] for topic in entity.topics}
    for partition, refused in outcomes.items():
        code = 0 if refused is None else refused.wire
        topics[partition.topic].append({"partition_index": partition.partition, "error_code": code})
    return {
        "error_code": 0,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
