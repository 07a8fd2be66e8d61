"""CountMessages (klog's own, 10000): how many messages lie in [from, to) of a partition.

Behaviour
    Exact, from batch headers; -1 while the counts of old segments are still being rebuilt. -2 and -1 stand for the
    start and the end (the high watermark) and come back resolved. ``bytes`` are those of the log between the two
    addresses.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.COUNT_MESSAGES, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    return {
        "topics": [
            {"name": topic.name, "ranges": [await _one(broker, topic.name, asked) for asked in topic.ranges]}
            for topic in request.entity.topics
        ]
    }


async def _one(broker: Broker, topic: str, asked: Any) -> dict[str, Any]:
    answer = {"partition_index": asked.partition_index, "from_offset": -1, "to_offset": -1, "messages": -1, "bytes": -1}
    try:
        partition = broker.leader_of(topic, asked.partition_index)
        log, high = partition.log, partition.high_watermark
        start = log.start_offset if asked.from_offset == -2 else asked.from_offset
        start = high.offset if start == -1 else start
        end = high.offset if asked.to_offset == -1 else min(asked.to_offset, high.offset)
        end = log.start_offset if end == -2 else end
        start = max(start, log.start_offset)
        messages = 0 if end <= start else await asyncio.to_thread(log.count, start, end)
    except KlogError as error:
        return {**answer, "error_code": error.wire}
    return {
        **answer,
        "error_code": 0,
        "from_offset": start,
        "to_offset": end,
        "messages": -1 if messages is None else messages,
        "bytes": max(0, (high.address if end == high.offset else end) - max(start, log.start_address)),
    }
