"""DeleteRecords: v0-2: a partition's start moves up.

Behaviour
    What lies below the offset can be read no more, durably, before the answer is sent (rule L4); whole segments below
    it are removed. -1 is the high watermark: everything that is committed. An offset at or below the start changes
    nothing. Beyond the high watermark it is OFFSET_OUT_OF_RANGE. The answer is the start that now holds.

Version notes
    v2 is flexible.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from klog.errors import KlogError, NotLeader, OffsetOutOfRange, StorageError
from klog.protocol.apis import ApiKey
from klog.replication.partition import Partition
from klog.server.dispatch import Request, handles
from klog.storage.log_dir import RetentionRun

if TYPE_CHECKING:
    from klog.server.broker import Broker

HIGH_WATERMARK = -1


@handles(ApiKey.DELETE_RECORDS, 0, 2)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    asked = [
        (topic.name, one.partition_index, one.offset) for topic in request.entity.topics for one in topic.partitions
    ]
    found: dict[tuple[str, int, int], tuple[Partition, int] | KlogError] = {}
    share = request.share()
    for topic, index, offset in asked:
        await share.breathe()
        try:
            found[topic, index, offset] = _check(broker, topic, index, offset)
        except KlogError as error:
            found[topic, index, offset] = error.bare()
    by_disk: dict[str, list[tuple[Partition, int]]] = {}
    for one in found.values():
        if not isinstance(one, KlogError):
            by_disk.setdefault(one[0].log.home.path, []).append(one)
    await asyncio.gather(
        *(broker.deletions.run(disk, functools.partial(_plan, wanted)) for disk, wanted in by_disk.items())
    )
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


def _check(broker: Broker, topic: str, index: int, asked: int) -> tuple[Partition, int]:
    """The partition and the offset that is meant."""
    partition = broker.leader_of(topic, index)
    end = partition.high_watermark.offset
    offset = end if asked == HIGH_WATERMARK else asked
    if not 0 <= offset <= end:
        raise OffsetOutOfRange(f"{partition.topic_partition}: offset {offset} is outside 0 to {end}")
    return partition, offset


def _plan(wanted: list[tuple[Partition, int]]) -> RetentionRun:
    """Of a partition that is named twice the higher offset: the deletions of one run do not know of each other."""
    highest: dict[Partition, int] = {}
    for partition, offset in wanted:
        highest[partition] = max(offset, highest.get(partition, 0))
    plans = []
    for partition, offset in highest.items():
        if not partition.resigned and not partition.log.is_closed and partition.log.home.failure is None:
            deletion = partition.log.plan_delete_records(offset)
            if deletion is not None:
                plans.append((partition.log, deletion))
    return RetentionRun(plans)


def _answer(index: int, found: tuple[Partition, int] | KlogError) -> dict[str, Any]:
    if isinstance(found, KlogError):
        return {"partition_index": index, "low_watermark": -1, "error_code": found.wire}
    partition, offset = found
    start = partition.log.start_offset
    if start < offset:
        code = NotLeader.wire if partition.resigned else StorageError.wire  # it went meanwhile, or the disk refused
        return {"partition_index": index, "low_watermark": -1, "error_code": code}
    return {"partition_index": index, "low_watermark": start, "error_code": 0}
