"""CountMessages (klog's own, 10000): how many messages lie in [from, to) of a partition.

Behaviour
    The count is exact, from batch headers; it is -1 while the broker still rebuilds the counts of old segments. As
    addresses, -2 means the start and -1 the end (the high watermark); the answer has the addresses themselves.
    ``bytes`` is the size of the log between the two addresses. One pass counts all ranges of a request, so that a
    partition's start and end are the same in each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klog.protocol.apis import ApiKey
from klog.replication.led_partition import LedPartition
from klog.server.dispatch import Answer, Request, handles
from klog.server.partition_answers import of_leaders
from klog.server.parts import Parts
from klog.storage.log_end import LogEnd
from klog.storage.lookup_budget import LookupBudget

REFUSED = {"from_offset": -1, "to_offset": -1, "messages": -1, "bytes": -1}


@handles(ApiKey.COUNT_MESSAGES, 0, 0)
async def handle(request: Request, parts: Parts) -> Answer:
    return await of_leaders(request, parts, _count, REFUSED, array="ranges")


def _count(asked: Any, partition: LedPartition, high: LogEnd, _: LookupBudget) -> Mapping[str, Any]:
    log = partition.log
    start = log.start_offset if asked.from_offset == -2 else asked.from_offset
    start = high.offset if start == -1 else start
    end = high.offset if asked.to_offset == -1 else min(asked.to_offset, high.offset)
    end = log.start_offset if end == -2 else end
    start = max(start, log.start_offset)
    messages: int | None = 0
    size = 0
    if start < end:  # not at the end itself: the next batch's address may be larger than the end
        messages = log.count(start, end)
        size = (high.address if end == high.offset else end) - max(start, log.start_address)
    return {
        "from_offset": start,
        "to_offset": end,
        "messages": -1 if messages is None else messages,
        "bytes": max(0, size),
    }
