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

from collections.abc import Mapping
from typing import Any

from klog.client.partition_requests import by_topic
from klog.coordination.committed import CommittedOffset
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.partition_answers import named_partitions
from klog.server.parts import Parts

NOTHING = CommittedOffset(-1)


@handles(ApiKey.OFFSET_FETCH, 1, 8)
async def handle(request: Request, parts: Parts) -> Answer:
    entity = request.entity
    asked = entity.groups if request.head.version >= 8 else [entity]
    asked = list({one.group_id: one for one in asked}.values())  # an answer is thousands of times as large as a name
    wanted = {  # None: all with a committed offset
        one.group_id: None if one.topics is None else named_partitions(one.topics, array="partition_indexes")
        for one in asked
    }
    found = await parts.groups.commits.fetch(wanted)
    answers = [{"group_id": one.group_id, **_answer(found[one.group_id], wanted[one.group_id])} for one in asked]
    return {"groups": answers} if request.head.version >= 8 else answers[0]


def _answer(
    found: Mapping[TopicPartition, CommittedOffset] | KlogError, wanted: list[TopicPartition] | None
) -> dict[str, Any]:
    code = found.wire if isinstance(found, KlogError) else 0
    committed = {} if isinstance(found, KlogError) else found
    rows = (
        (partition, _fields(committed.get(partition, NOTHING), code))
        for partition in (committed if wanted is None else wanted)
    )
    return {"topics": by_topic(rows), "error_code": code}


def _fields(one: CommittedOffset, code: int) -> dict[str, Any]:
    return {
        "committed_offset": one.offset,
        "committed_leader_epoch": one.leader_epoch,
        "metadata": one.metadata,
        "error_code": code,
    }
