"""FindMessage (klog's own, 10001): the offset of the message n messages after, or before, an offset.

Behaviour
    n >= 0: the n-th message at or after ``from_offset`` (0 is the first). n < 0: the -n-th before it. The result is
    clamped to the start and the end (the high watermark), so that ``+N`` and ``-N`` of the position grammar always
    have an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klog.errors import OffsetNotAvailable
from klog.protocol.apis import ApiKey
from klog.replication.led_partition import LedPartition
from klog.server.dispatch import Answer, Request, handles
from klog.server.partition_answers import of_leaders
from klog.server.parts import Parts
from klog.storage.log_end import LogEnd
from klog.storage.lookup_budget import LookupBudget


@handles(ApiKey.FIND_MESSAGE, 0, 0)
async def handle(request: Request, parts: Parts) -> Answer:
    return await of_leaders(request, parts, _find, {"offset": -1})


def _find(asked: Any, partition: LedPartition, high: LogEnd, _: LookupBudget) -> Mapping[str, Any]:
    log, end, place, n = partition.log, high.offset, asked.from_offset, asked.n
    start = log.start_offset
    place = start if place == -2 else end if place == -1 else min(max(place, start), end)
    if n < 0:
        before = log.count(start, place)
        if before is None:
            raise OffsetNotAvailable(f"the messages of {partition.topic_partition} are still being counted")
        if before <= -n:
            return {"offset": start}
        place, n = start, before + n
    found = log.nth(n, place)
    return {"offset": end if found is None else min(found, end)}
