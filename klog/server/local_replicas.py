"""Replicas as they lie on this broker, whoever leads: for those who ask one broker for its own, under replica id -2.

Kafka's "debugging consumer" (0.8's SimpleConsumerShell --replica). What is shown ends at the high watermark that this
replica knows of, which on a follower is the leader's of a moment ago, and never more than is flushed here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.errors import KlogError, ReplicaNotAvailable, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.protocol.fetch import AskedPartition, FetchedPartition, FetchRequest
from klog.server.executors import Purpose
from klog.storage.log import FileRange, Log, LogEnd

if TYPE_CHECKING:
    from klog.server.broker import Broker

DEBUGGING_REPLICA: Final = -2
"""In place of a follower's id: a consumer that wants this broker's replica, not its leader's."""


class LocalReplica(NamedTuple):
    log: Log
    high_watermark: LogEnd
    leader_epoch: int


async def find(broker: Broker, topic: str, partition: int) -> LocalReplica:
    """The replica. UnknownTopicOrPartition, or ReplicaNotAvailable where this broker has none."""
    name = TopicPartition(topic, partition)
    known = broker.image.topics.get(topic)
    if known is None or partition not in known.partitions:
        raise UnknownTopicOrPartition(f"there is no partition {name}")
    epoch = known.partitions[partition].leader_epoch
    led, follower = broker.partitions.get(name), broker.replicas.followed.get(name)
    if led is not None:
        return LocalReplica(led.log, led.high_watermark, led.leader_epoch)
    if follower is not None:
        return LocalReplica(follower.log, follower.high_watermark, follower.leader_epoch)
    log = broker.log_dirs.log(name)
    if log is None or broker.log_dirs.topic_id(name) != known.topic_id:
        raise ReplicaNotAvailable(f"broker {broker.broker_id} has no replica of {name}")
    return LocalReplica(
        log, await broker.executors.run_at(log.home.path, Purpose.LOOK_UPS, broker.replicas.committed_end, log), epoch
    )


async def fetch(broker: Broker, request: FetchRequest, whose: str) -> list[FetchedPartition[FileRange]]:
    """What each replica asked for has; where none has any, once more when the request's time is over.

    ``whose``: the address that asks. A replica that is not led tells nobody when it has more.
    """
    fetched = await _read(broker, request, whose)
    if request.max_wait_ms > 0 and not any(one.ranges or one.error_code for one in fetched):
        await asyncio.sleep(request.max_wait_ms / 1000)
        fetched = await _read(broker, request, whose)
    return fetched


async def _read(broker: Broker, request: FetchRequest, whose: str) -> list[FetchedPartition[FileRange]]:
    left = min(max(request.max_bytes, 0), broker.fetch_bytes_max)
    found: list[FetchedPartition[FileRange]] = []
    for asked in request.partitions:
        high, start, ranges, code = -1, -1, list[FileRange](), 0
        try:
            replica = await find(broker, asked.topic, asked.partition)
            start = replica.log.start_offset
            is_first = not any(one.ranges for one in found)
            if left > 0 or is_first:
                ranges = await broker.executors.run_in_turn(
                    whose,
                    replica.log.home.path,
                    Purpose.COLD_READS,
                    _ranges,
                    replica,
                    asked,
                    min(left, asked.max_bytes),
                    is_first,
                )
            high = replica.high_watermark.offset
        except KlogError as error:
            code = error.wire
        size = sum(one.size for one in ranges)
        left -= size
        found.append(FetchedPartition(asked.topic, asked.partition, code, high, start, ranges, size))
    return found


def _ranges(replica: LocalReplica, asked: AskedPartition, max_bytes: int, at_least_one: bool) -> list[FileRange]:
    """In a thread: they are read ahead."""
    log, high = replica.log, replica.high_watermark
    log.check_offset(asked.offset)
    if asked.offset >= high.offset:
        return []
    ranges = log.read(asked.offset, max_bytes, high.address, at_least_one=at_least_one)
    log.warm(ranges)
    return ranges
