"""OffsetFetch: v1-8.

Behaviour
    The coordinator reads ZooKeeper for each request, so that a rewind, or an offset that a ZooKeeper-era tool has
    written, is visible at once. A partition without a committed offset has offset -1.

Version notes
    From v2 on null topics mean all in which the group has committed, and the whole answer has an error. v5 has leader
    epochs (KIP-320). v6 is flexible. v7 asks for stable offsets (KIP-447): without transactions all are stable. v8 asks
    for several groups (KIP-709).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from klog.coordination.committed import CommittedOffset
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts

NOTHING = CommittedOffset(-1)


@handles(ApiKey.OFFSET_FETCH, 1, 8)
async def handle(request: Request, parts: Parts) -> Answer:
    entity = request.entity
    asked = entity.groups if request.head.version >= 8 else [entity]
    asked = list({one.group_id: one for one in asked}.values())  # an answer is thousands of times as large as a name
    wanted = {one.group_id: _partitions(one.topics) for one in asked}
    found = await parts.groups.commits.fetch(wanted)
    answers = [{"group_id": one.group_id, **_answer(found[one.group_id], wanted[one.group_id])} for one in asked]
    return {"groups": answers} if request.head.version >= 8 else answers[0]


def _partitions(topics: Iterable[Any] | None) -> list[TopicPartition] | None:
    """The partitions of the topics; None means all partitions with a committed offset."""
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
