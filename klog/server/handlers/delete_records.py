"""DeleteRecords: v0-2: a partition's start moves up.

Behaviour
    Before the broker answers, records below the offset are unreadable, durably (rule L4); it removes whole segments
    below the offset. -1 means the high watermark: everything that is committed. An offset at or below the start changes
    nothing. An offset beyond the high watermark is OFFSET_OUT_OF_RANGE. The answer has the partition's new start. What
    internal topics have, events and acts among it, no client deletes: INVALID_TOPIC_EXCEPTION.

    A deletion is an act, written before anything is deleted; the topic keeps its messages if that fails. Kafka Streams
    deletes every 30 s what it has read: of one client and topic, a leader writes one act an hour.

Version notes
    v2 is flexible.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Iterable
from typing import Any, Final

from klog.client.partition_requests import by_partition
from klog.coordination.acts import RECORDS_ACT, Actor, new_act
from klog.errors import InvalidTopic, KlogError, NotLeader, OffsetOutOfRange, StorageError
from klog.names import CLOSED_TOPICS
from klog.protocol.apis import ApiKey
from klog.replication.led_partition import LedPartition
from klog.server.dispatch import Request, handles
from klog.server.executors import Purpose
from klog.server.partition_answers import in_topics
from klog.server.parts import Parts
from klog.server.replicas.led_partitions import LedPartitions
from klog.storage.log_dir import RetentionRun

HIGH_WATERMARK = -1
AGAIN_S: Final = 3600.0
REMEMBERED_MAX: Final = 10_000


@handles(ApiKey.DELETE_RECORDS, 0, 2)
class DeleteRecordsHandler:
    """Event loop only."""

    def __init__(self, parts: Parts) -> None:
        self._runtime = parts.runtime
        self._partitions = parts.partitions
        self._deletions = parts.deletions
        self._told_s: dict[tuple[str, Actor], float] = {}
        """When the last act of a topic and a client was written."""

    async def __call__(self, request: Request) -> dict[str, Any]:
        found: dict[tuple[str, int, int], tuple[LedPartition, int] | KlogError] = {}
        share = request.share()
        for topic in request.entity.topics:
            wanted = [(topic.name, one.partition_index, one.offset) for one in topic.partitions]
            for name, index, offset in wanted:
                await share.yield_if_due()
                try:
                    if name in CLOSED_TOPICS and request.is_of_client:
                        raise InvalidTopic(f"{name} is internal: clients do not delete what it has")
                    found[name, index, offset] = _check(self._partitions, name, index, offset)
                except KlogError as error:
                    found[name, index, offset] = error.bare()
            if request.is_of_client:
                checked = {one: there for one in wanted if not isinstance(there := found[one], KlogError)}
                try:
                    await self._tell(topic.name, checked.values(), request.actor)
                except KlogError as error:
                    found |= dict.fromkeys(checked, error.bare())
        by_disk: dict[str, list[tuple[LedPartition, int]]] = {}
        for one in found.values():
            if not isinstance(one, KlogError):
                by_disk.setdefault(one[0].log.log_dir.path, []).append(one)
        run = self._deletions.run
        await asyncio.gather(*(run(disk, functools.partial(_plan, wanted)) for disk, wanted in by_disk.items()))
        answers = [
            _answer(name.partition, found[*name, one.offset]) for name, one in by_partition(request.entity.topics)
        ]
        return {"topics": in_topics(request.entity.topics, answers)}

    async def _tell(self, topic: str, wanted: Iterable[tuple[LedPartition, int]], actor: Actor) -> None:
        """Write the act. Raises KlogError: it may not have been written."""
        moving = [(one, offset) for one, offset in wanted if one.log.start_offset < offset]
        key = topic, actor._replace(request=None)
        now_s = self._runtime.loop.time()
        if not moving or now_s - self._told_s.get(key, -math.inf) < AGAIN_S:
            return
        if len(self._told_s) >= REMEMBERED_MAX:
            self._told_s.clear()
        act = new_act(
            RECORDS_ACT,
            actor,
            topic=topic,
            before={str(one.topic_partition.partition): one.log.start_offset for one, _ in moving},
            after={str(one.topic_partition.partition): offset for one, offset in moving},
        )
        zookeeper = self._runtime.zookeeper
        await self._runtime.executors.run(Purpose.OTHER, zookeeper.commit, [act.write])
        self._told_s[key] = now_s


def _check(partitions: LedPartitions, topic: str, index: int, asked: int) -> tuple[LedPartition, int]:
    """The partition, and the requested offset with -1 resolved."""
    partition = partitions.leader_of(topic, index)
    end = partition.high_watermark.offset
    offset = end if asked == HIGH_WATERMARK else asked
    if not 0 <= offset <= end:
        raise OffsetOutOfRange(f"{partition.topic_partition}: offset {offset} is outside 0 to {end}")
    return partition, offset


def _plan(wanted: list[tuple[LedPartition, int]]) -> RetentionRun:
    """One deletion per partition, at the highest requested offset: the deletions of one run do not know of each
    other."""
    highest: dict[LedPartition, int] = {}
    for partition, offset in wanted:
        highest[partition] = max(offset, highest.get(partition, 0))
    plans = []
    for partition, offset in highest.items():
        if not partition.resigned and not partition.log.is_closed and partition.log.log_dir.failure is None:
            deletion = partition.log.plan_records_deletion(offset)
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
