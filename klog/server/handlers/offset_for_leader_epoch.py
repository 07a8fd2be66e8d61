"""OffsetForLeaderEpoch: v2-4 (KIP-320: consumers detect truncation).

Behaviour
    For an epoch: the largest epoch at or below it that the log has, and the end offset of that epoch. For the current
    epoch: the end. For an epoch before the first one known: the asked epoch with the log's start, never an undefined
    answer, which would make clients reset (rule R8). For an epoch above the current one: UNKNOWN_LEADER_EPOCH. While
    segments that may have the epoch are still being read after a start: OFFSET_NOT_AVAILABLE, and the client asks
    again; the log's start would send it back there.
"""

from __future__ import annotations

from typing import Any

from klog.errors import KlogError, OffsetNotAvailable, UnknownLeaderEpoch
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.partition_answers import in_topics
from klog.server.parts import Parts
from klog.server.replicas.led_partitions import LedPartitions


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4)
def handle(request: Request, parts: Parts) -> Answer:
    topics = request.entity.topics
    answers = (_one(parts.partitions, topic.topic, asked) for topic in topics for asked in topic.partitions)
    return {"topics": in_topics(topics, answers, name="topic")}


def _one(partitions: LedPartitions, topic: str, asked: Any) -> dict[str, Any]:
    try:
        partition = partitions.leader_of(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        if asked.leader_epoch > partition.leader_epoch:
            raise UnknownLeaderEpoch(
                f"{partition.topic_partition} is in leader epoch {partition.leader_epoch}, not {asked.leader_epoch} yet"
            )
        if asked.leader_epoch == partition.leader_epoch:
            epoch, end = partition.leader_epoch, partition.high_watermark.offset
        elif not partition.log.knows_epoch(asked.leader_epoch):
            raise OffsetNotAvailable(f"{partition.topic_partition}: the epochs of old segments are not known yet")
        else:
            epoch, log_end = partition.log.epoch_end(asked.leader_epoch)
            end = log_end.offset
    except KlogError as error:
        return {"error_code": error.wire, "partition": asked.partition, "leader_epoch": -1, "end_offset": -1}
    return {"error_code": 0, "partition": asked.partition, "leader_epoch": epoch, "end_offset": end}
