"""Read one message: the first at or after an offset, fetched with its batch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from klog.client import partition_requests
from klog.client.answers import error_in
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.record.records import Record, records_in


async def first_timestamp(
    channel: Channel, share: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KlogError | None]:
    """The timestamp in ms of the first message at or after each offset; None if there is none (yet)."""
    found = await first_message(channel, share)
    return {place: one.timestamp_ms if isinstance(one, Record) else one for place, one in found.items()}


async def first_message(
    channel: Channel, share: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Record | KlogError | None]:
    """The first message at or after each offset; None if there is none (yet).

    One request per partition, overlapping: Fetch promises "at least one whole batch" only for its first partition.
    """
    wanted = list(share.items())
    answers = await asyncio.gather(*(_one(channel, partition, offset) for partition, offset in wanted))
    return {partition: answer for (partition, _), answer in zip(wanted, answers, strict=True)}


async def _one(channel: Channel, partition: TopicPartition, offset: int) -> Record | KlogError | None:
    asked = partition_requests.fetch(channel, {partition: offset}, max_wait_ms=0, min_bytes=0, max_bytes=1)
    answer = await channel.request(asked)
    found = answer.responses[0].partitions[0]
    error = error_in(found, f"{partition} at offset {offset}")
    if error is not None:
        return error
    records = found.records or b""
    try:
        return next(records_in(records, offset), None)
    except KlogError as damage:
        return damage
