"""DeleteRecords: v0-2: a partition's start moves up.

Behaviour
    What lies below the offset can be read no more, durably, before the answer is sent (rule L4); whole segments below
    it go soon after. -1 is the high watermark: everything that is committed. An offset at or below the start changes
    nothing. Beyond the high watermark it is OFFSET_OUT_OF_RANGE. The answer is the start that now holds.

Version notes
    v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError, OffsetOutOfRange
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker

HIGH_WATERMARK = -1


@handles(ApiKey.DELETE_RECORDS, 0, 2)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    await _one(broker, topic.name, asked.partition_index, asked.offset) for asked in topic.partitions
                ],
            }
            for topic in request.entity.topics
        ]
    }


async def _one(broker: Broker, topic: str, index: int, asked: int) -> dict[str, Any]:
    try:
        partition = broker.leader_of(topic, index)
        end = partition.high_watermark.offset
        offset = end if asked == HIGH_WATERMARK else asked
        if not 0 <= offset <= end:
            raise OffsetOutOfRange(f"{partition.topic_partition}: offset {offset} is outside 0 to {end}")
        partition.log.delete_records(offset)
    except KlogError as error:
        return {"partition_index": index, "low_watermark": -1, "error_code": error.wire}
    return {"partition_index": index, "low_watermark": partition.log.start_offset, "error_code": 0}
