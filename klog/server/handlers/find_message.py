"""FindMessage (klog's own, 10001): the offset of the message n messages after, or before, a place.

Behaviour
    n >= 0: the n-th message at or after ``from_offset`` (0 is the first). n < 0: the -n-th before it. Clamped to the
    start and the end (the high watermark), so that ``+N`` and ``-N`` of the position grammar always have an answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from klog.errors import KlogError, OffsetNotAvailable
from klog.protocol.apis import ApiKey
from klog.replication.partition import Partition
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.FIND_MESSAGE, 0, 0)
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
        offset = await asyncio.to_thread(_find, partition, asked.from_offset, asked.n)
    except KlogError as error:
        return {"error_code": error.wire, "partition_index": asked.partition_index, "offset": -1}
    return {"error_code": 0, "partition_index": asked.partition_index, "offset": offset}


def _find(partition: Partition, place: int, n: int) -> int:
    log, end = partition.log, partition.high_watermark.offset
    start = log.start_offset
    place = start if place == -2 else end if place == -1 else min(max(place, start), end)
    if n < 0:
        before = log.count(start, place)
        if before is None:
            raise OffsetNotAvailable(f"the messages of {partition.topic_partition} are still being counted")
        if before <= -n:
            return start
        place, n = start, before + n
    found = log.nth(n, place)
    return end if found is None else min(found, end)
