"""MessageTimes (klog's own, 10008): when the first message at or after an offset was written.

Behaviour
    What a consumer at that offset reads next, and how long that has waited, without sending the message. -1 where
    nothing below the high watermark is that late. Of compressed batches those are decoded whose records' times differ
    and that are asked about in the middle.
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


@handles(ApiKey.MESSAGE_TIMES, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    topics = [(topic.name, topic.partitions) for topic in request.entity.topics]
    found = await answered(broker, request.connection, topics, _times, {"timestamps": []})
    return {"topics": [{"name": name, "partitions": rows} for (name, _), rows in zip(topics, found, strict=True)]}


def _times(asked: Any, partition: Partition, high: LogEnd, patience: Patience) -> Mapping[str, Any]:
    times = [partition.log.time_of(offset, patience) if offset < high.offset else None for offset in asked.offsets]
    return {"timestamps": [-1 if one is None else one for one in times]}
