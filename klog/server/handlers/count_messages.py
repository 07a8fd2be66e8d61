"""CountMessages (klog's own, 10000): how many messages lie in [from, to) of a partition.

Behaviour
    Exact, from batch headers; -1 while the counts of old segments are still being rebuilt. -2 and -1 stand for the
    start and the end (the high watermark) and come back resolved. ``bytes`` are those of the log between the two
    addresses. All ranges of one request are counted in one go, so that a partition's ends are the same in each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from klog.protocol.apis import ApiKey
from klog.replication.partition import Partition
from klog.server.dispatch import Request, handles
from klog.server.led import answered
from klog.storage.log_end import LogEnd
from klog.storage.patience import Patience

if TYPE_CHECKING:
    from klog.server.broker import Broker

REFUSED = {"from_offset": -1, "to_offset": -1, "messages": -1, "bytes": -1}


@handles(ApiKey.COUNT_MESSAGES, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    topics = [(topic.name, topic.ranges) for topic in request.entity.topics]
    counted = await answered(broker, request.connection, topics, _count, REFUSED)
    return {"topics": [{"name": name, "ranges": ranges} for (name, _), ranges in zip(topics, counted, strict=True)]}


def _count(asked: Any, partition: Partition, high: LogEnd, _: Patience) -> Mapping[str, Any]:
    log = partition.log
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
    return {
        "from_offset": start,
        "to_offset": end,
        "messages": -1 if messages is None else messages,
        "bytes": max(0, size),
    }
