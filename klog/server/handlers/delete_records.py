"""DeleteRecords: v0-2: a partition's start moves up.

Behaviour
    Before the broker answers, records below the offset are unreadable, durably (rule L4); it removes whole segments
    below the offset. -1 means the high watermark: everything that is committed. An offset at or below the start changes
    nothing. An offset beyond the high watermark is OFFSET_OUT_OF_RANGE. The answer has the partition's new start. What
    internal topics have, events and acts among it, no client deletes: INVALID_TOPIC_EXCEPTION.

Version notes
    v2 is flexible.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from klog.errors import InvalidTopic, KlogError, NotLeader, OffsetOutOfRange, StorageError
from klog.names import CLOSED_TOPICS
from klog.protocol.apis import ApiKey
from klog.replication.led_partition import LedPartition
from klog.server.dispatch import Request, handles
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.led_partitions import LedPartitions
from klog.storage.log_dir import RetentionRun

HIGH_WATERMARK = -1


@handles(ApiKey.DELETE_RECORDS, 0, 2)
async def handle(request: Request, *, partitions: LedPartitions, deletions: Deletions) -> dict[str, Any]:
    asked = [
        (topic.name, one.partition_index, one.offset) for topic in request.entity.topics for one in topic.partitions
    ]
    found: dict[tuple[str, int, int], tuple[LedPartition, int] | KlogError] = {}
    share = request.share()
    for topic, index, offset in asked:
        await share.breathe()
        try:
            if topic in CLOSED_TOPICS and request.is_of_client:
                raise InvalidTopic(f"{topic} is internal: clients do not delete what it has")
            found[topic, index, offset] = _check(partitions, topic, index, offset)
        except KlogError as error:
            found[topic, index, offset] = error.bare()
    by_disk: dict[str, list[tuple[LedPartition, int]]] = {}
    for one in found.values():
        if not isinstance(one, KlogError):
            by_disk.setdefault(one[0].log.log_dir.path, []).append(one)
    await asyncio.gather(*(deletions.run(disk, functools.partial(_plan, wanted)) for disk, wanted in by_disk.items()))
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _answer(one.partition_index, found[topic.name, one.partition_index, one.offset])
                    for one in topic.partitions
                ],
            }
            for topic in request.entity.topics
        ]
    }


def _check(partitions: LedPartitions, topic: str, index: int, asked: int) -> tuple[LedPartition, int]:
    """The partition, and the requested offset with -1 resolved."""
    partition = partitions.leader_of(topic, index)
    end = partition.high_watermark.offset
    offset = end if asked == HIGH_WATERMARK else asked
    if not 0 <= offset <= end:
        raise OffsetOutOfRange(f"{partition.topic_partition}: offset {offset} is outside 0 to {end}")
    return partition, offset


def _plan(wanted: list[tuple[LedPartition, int]]) -> RetentionRun:
    """One deletion per partition, at the highest offset asked: the deletions of one run do not know of each other."""
    highest: dict[LedPartition, int] = {}
    for partition, offset in wanted:
        highest[partition] = max(offset, highest.get(partition, 0))
    plans = []
    for partition, offset in highest.items():
        if not partition.resigned and not partition.log.is_closed and partition.log.log_dir.failure is None:
            deletion = partition.log.deletion.plan_records(offset)
            if deletion is not None:
                plans.append((partition.log, deletion))
    return RetentionRun(plans)


def _answer(index: int, found: tuple[LedPartition, int] | KlogError) -> dict[str, Any]:
    if isinstance(found, KlogError):
        return {"partition_index": index, "low_watermark": -1, "error_code": found.wire}
    partition, offset = found
    start = partition.log.start_offset
    if start < offset:
        code = NotLeader.wire if partition.resigned else StorageError.wire  # the leadership moved, or the disk failed
        return {"partition_index": index, "low_watermark": -1, "error_code": code}
    return {"partition_index": index, "low_watermark": start, "error_code": 0}
