"""OffsetFetch: v1-8.

Behaviour
    Answered from ZooKeeper each time, so that a rewind, or what a ZooKeeper-era tool has written, is seen at once.
    A partition without a committed offset has offset -1.

Version notes
    From v2 null topics are all that the group has committed in, and there is an error for the whole. v5 has leader
    epochs (KIP-320). v6 is flexible. v7 asks for stable offsets (KIP-447): all are, without transactions. v8 asks for
    several groups (KIP-709).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klog.coordination.committed import CommittedOffset
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker

NOTHING = CommittedOffset(-1)


@handles(ApiKey.OFFSET_FETCH, 1, 8)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    entity = request.entity
    asked = entity.groups if request.head.version >= 8 else [entity]
    asked = list({one.group_id: one for one in asked}.values())  # an answer is thousands of times as large as a name
    wanted = {one.group_id: _partitions(one.topics) for one in asked}
    found = await broker.groups.commits.fetch(wanted)
    groups = [{"group_id": one.group_id, **_answer(found[one.group_id], wanted[one.group_id])} for one in asked]
    return {"groups": groups} if request.head.version >= 8 else groups[0]


def _partitions(topics: Iterable[Any] | None) -> list[TopicPartition] | None:
    """None: all there are."""
    if topics is None:
        return None
    return [TopicPartition(topic.name, one) for topic in topics for one in topic.partition_indexes]


def _answer(
    found: Mapping[TopicPartition, CommittedOffset] | KlogError, wanted: list[TopicPartition] | None
) -> dict[str, Any]:
    code = found.wire if isinstance(found, KlogError) else 0
    committed = {} if isinstance(found, KlogError) else found
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition in committed if wanted is None else wanted:
        one = committed.get(partition, NOTHING)
        topics.setdefault(partition.topic, []).append(
            {
                "partition_index": partition.partition,
                "committed_offset": one.offset,
                "committed_leader_epoch": one.leader_epoch,
                "metadata": one.metadata,
                "error_code": code,
            }
        )
    return {
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "error_code": code,
    }
