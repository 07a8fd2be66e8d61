"""How much room brokers' log dirs have, as DescribeLogDirs tells it (KIP-827)."""

from __future__ import annotations

from typing import Any, Final

from klog.client.cluster import Cluster
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey

ROOM_BYTES_MIN: Final = 16 << 20
"""Less is as good as nothing: one large batch away from a full disk, and a full one takes nothing before 1 MiB is free
beside what comes."""


def free_bytes(result: Any) -> int | None:
    """Of one log dir of the answer; None where the broker does not say (before version 4, or an offline dir)."""
    free = int(getattr(result, "usable_bytes", -1))
    return None if free < 0 else free


def total_bytes(result: Any) -> int | None:
    """How large its file system is, likewise."""
    total = int(getattr(result, "total_bytes", -1))
    return None if total < 0 else total


async def full_dir(cluster: Cluster, broker: int, partition: TopicPartition) -> tuple[str, int] | None:
    """The log dir in which this broker has the partition, and the bytes free there; None if there is room."""
    wanted = [{"topic": partition.topic, "partitions": [partition.partition]}]
    answer = await cluster.to_broker(broker, ApiKey.DESCRIBE_LOG_DIRS, 4, 1, topics=wanted)
    for one in answer.results:
        free = free_bytes(one)
        if one.topics and free is not None and free < ROOM_BYTES_MIN:
            return str(one.log_dir), free
    return None
