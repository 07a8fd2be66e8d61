"""CountMessages (klog's own, 10000): how many messages lie in [from, to) of a partition.

Behaviour
    Exact, from batch headers; -1 while the counts of old segments are still being rebuilt. -2 and -1 stand for the
    start and the end (the high watermark) and come back resolved. ``bytes`` are those of the log between the two
    addresses. All ranges of one request are counted in one go, so that a partition's ends are the same in each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.replication.partition import Partition
from klog.server.dispatch import Request, handles
from klog.storage.log_end import LogEnd

if TYPE_CHECKING:
    from klog.server.broker import Broker

Led = dict[int, tuple[Partition, LogEnd] | KlogError]
"""Of one topic, by number: the partition and its high watermark, or why it cannot be asked here."""


@handles(ApiKey.COUNT_MESSAGES, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    topics = request.entity.topics
    led = [dict(_led(broker, topic.name, {asked.partition_index for asked in topic.ranges})) for topic in topics]
    counted = await asyncio.to_thread(_count, [topic.ranges for topic in topics], led)
    return {"topics": [{"name": topic.name, "ranges": ranges} for topic, ranges in zip(topics, counted, strict=True)]}


def _led(broker: Broker, topic: str, numbers: set[int]) -> Iterator[tuple[int, tuple[Partition, LogEnd] | KlogError]]:
    for number in numbers:
        try:
            partition = broker.leader_of(topic, number)
            yield number, (partition, partition.high_watermark)
        except KlogError as error:
            yield number, error


def _count(asked: Sequence[Sequence[Any]], led: Sequence[Led]) -> list[list[dict[str, Any]]]:
    """In a thread: what no index has counted is walked through in a file."""
    return [
        [_one(one, led_of[one.partition_index]) for one in ranges] for ranges, led_of in zip(asked, led, strict=True)
    ]


def _one(asked: Any, led: tuple[Partition, LogEnd] | KlogError) -> dict[str, Any]:
    answer = {"partition_index": asked.partition_index, "from_offset": -1, "to_offset": -1, "messages": -1, "bytes": -1}
    if isinstance(led, KlogError):
        return {**answer, "error_code": led.wire}
    partition, high = led
    log = partition.log
    try:
        start = log.start_offset if asked.from_offset == -2 else asked.from_offset
        start = high.offset if start == -1 else start
        end = high.offset if asked.to_offset == -1 else min(asked.to_offset, high.offset)
        end = log.start_offset if end == -2 else end
        start = max(start, log.start_offset)
        messages: int | None = 0
        size = 0
        if start < end:  # not at the end itself, behind which the next batch's address may lie further on
            messages = log.count(start, end)
            size = (high.address if end == high.offset else end) - max(start, log.start_address)
    except KlogError as error:
        return {**answer, "error_code": error.wire}
    return {
        **answer,
        "error_code": 0,
        "from_offset": start,
        "to_offset": end,
        "messages": -1 if messages is None else messages,
        "bytes": max(0, size),
    }
