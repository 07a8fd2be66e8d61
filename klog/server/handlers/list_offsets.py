"""ListOffsets: v1-7.

Behaviour
    timestamp -1: the end (last committed record + 1). -2: the start. -3: the record with the largest timestamp (v7,
    KIP-734). Any other: the first record whose timestamp is at or after the asked one, exact to the record; offset -1
    if there is no such record. Until the high watermark has reached this leader's own epoch, the leader does not know
    the end: OFFSET_NOT_AVAILABLE, below version 5 LEADER_NOT_AVAILABLE (rule R8). A look-up by time that takes more
    than its share (see `server.look_ups`) is REQUEST_TIMED_OUT; the client asks again. Replica id -2 asks for this
    broker's own replica, leader or follower.

Version notes
    v4 carries leader epochs (KIP-320).
"""

from __future__ import annotations

import functools
from typing import Any

from klog.errors import KlogError, LeaderNotAvailable, NotLeader, OffsetNotAvailable, StorageError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.look_ups import LookUp
from klog.server.partition_answers import in_topics
from klog.server.parts import Parts
from klog.server.replicas.led_partitions import LedPartitions
from klog.server.replicas.local_replicas import DEBUGGING_REPLICA
from klog.storage.log import Log, LogEnd

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


@handles(ApiKey.LIST_OFFSETS, 1, 7)
async def handle(request: Request, parts: Parts) -> Answer:
    of_replica = request.entity.replica_id == DEBUGGING_REPLICA
    share = request.share()

    async def answer(topic: str, asked: Any) -> dict[str, Any]:
        await share.yield_if_due()
        offset, timestamp_ms, epoch, code = -1, -1, -1, 0
        try:
            if of_replica:
                one = await parts.local_replicas.find(topic, asked.partition_index)
                offset, timestamp_ms = await _found_in(look_up, one.log, one.high_watermark, asked.timestamp)
            else:
                found = await _of_leader(parts.partitions, look_up, topic, asked, request.head.version)
                offset, timestamp_ms, epoch = found
        except KlogError as error:
            code = error.wire
        return {
            "partition_index": asked.partition_index,
            "error_code": code,
            "timestamp": timestamp_ms,
            "offset": offset,
            "leader_epoch": epoch,
        }

    with LookUp(parts.runtime.executors, request.connection) as look_up:
        answers = [await answer(topic.name, one) for topic in request.entity.topics for one in topic.partitions]
    return {"topics": in_topics(request.entity.topics, answers)}


async def _of_leader(
    partitions: LedPartitions, look_up: LookUp, topic: str, asked: Any, version: int
) -> tuple[int, int, int]:
    """Offset, timestamp and leader epoch. Raises KlogError."""
    partition = partitions.leader_of(topic, asked.partition_index)
    partition.check_epoch(getattr(asked, "current_leader_epoch", -1))
    if asked.timestamp != EARLIEST and not partition.end_is_known:
        error = OffsetNotAvailable if version >= 5 else LeaderNotAvailable
        raise error(
            f"the end of {partition.topic_partition} is unknown until the high watermark reaches the leader's epoch"
        )
    try:
        offset, timestamp_ms = await _found_in(look_up, partition.log, partition.high_watermark, asked.timestamp)
    except StorageError as failure:
        if partition.resigned:  # the log was closed; no disk has failed
            raise NotLeader(failure.message) from None
        raise
    return offset, timestamp_ms, partition.leader_epoch if offset >= 0 else -1


async def _found_in(look_up: LookUp, log: Log, high: LogEnd, asked: int) -> tuple[int, int]:
    if asked == EARLIEST:
        return log.start_offset, -1
    if asked == LATEST:
        return high.offset, -1
    if asked == MAX_TIMESTAMP:
        found = await look_up.run(log.log_dir.path, log.max_timestamp)
    elif not log.may_have_time(asked):  # `klog status` asks all partitions for messages of the future
        return -1, -1
    else:
        found = await look_up.run(log.log_dir.path, functools.partial(log.offset_for_time, asked))
    if found is None or found[0] >= high.offset:
        return -1, -1
    return found
