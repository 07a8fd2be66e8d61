"""MessageTimes (klog's own, 10008): when the first message at or after an offset was written.

Behaviour
    The time of the message that a consumer at that offset reads next, without the message itself: it shows how long the
    message has waited. -1 where no message below the high watermark is at or after the offset. The broker decodes a
    compressed batch only if its records' times differ and the offset lies in the middle of the batch.
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


@handles(ApiKey.MESSAGE_TIMES, 0, 0)
async def handle(request: Request, parts: Parts) -> Answer:
    return await of_leaders(request, parts, _times, {"timestamps": []})


def _times(asked: Any, partition: LedPartition, high: LogEnd, budget: LookupBudget) -> Mapping[str, Any]:
    times = [partition.log.time_of(offset, budget) if offset < high.offset else None for offset in asked.offsets]
    return {"timestamps": [-1 if one is None else one for one in times]}
