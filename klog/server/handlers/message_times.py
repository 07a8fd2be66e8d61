"""MessageTimes (klog's own, 10008): when the first message at or after an offset was written.

Behaviour
    What a consumer at that offset reads next, and how long that has waited, without sending the message. -1 where
    nothing below the high watermark is that late. Of compressed batches those are decoded whose records' times differ
    and that are asked about in the middle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.replication.partition import Partition
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.MESSAGE_TIMES, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    return {
        "topics": [
            {"name": topic.name, "partitions": [await _one(broker, topic.name, asked) for asked in topic.partitions]}
            for topic in request.entity.topics
        ]
    }


async def _one(broker: Broker, topic: str, asked: Any) -> dict[str, Any]:
    try:
        partition = broker.leader_of(topic, asked.partition_index)
        timestamps = await asyncio.to_thread(_times, partition, partition.high_watermark.offset, asked.offsets)
    except KlogError as error:
        return {"error_code": error.wire, "partition_index": asked.partition_index, "timestamps": []}
    return {"error_code": 0, "partition_index": asked.partition_index, "timestamps": timestamps}


def _times(partition: Partition, end: int, offsets: Sequence[int]) -> list[int]:
    """In a thread: a batch may have to be read from a cold disk."""
    found = []
    for offset in offsets:
        timestamp_ms = partition.log.time_of(offset) if offset < end else None
        found.append(-1 if timestamp_ms is None else timestamp_ms)
    return found
