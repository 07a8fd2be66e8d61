"""A look at one message: the first at or after an offset, fetched with the batch that it lies in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from klog.client.blocking import error_of
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.batch import walk
from klog.record.records import Record, each_record


async def first_timestamp(
    channel: Channel, share: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KlogError | None]:
    """The timestamp in ms of the first message at or after each offset; None where there is none (yet)."""
    found = await first_message(channel, share)
    return {place: one.timestamp_ms if isinstance(one, Record) else one for place, one in found.items()}


async def first_message(
    channel: Channel, share: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Record | KlogError | None]:
    """The first message at or after each offset; None where there is none (yet).

    A request a partition, overlapping: "at least one whole batch" is promised for the first partition of a fetch only.
    """
    wanted = list(share.items())
    answers = await asyncio.gather(*(_one(channel, partition, offset) for partition, offset in wanted))
    return {partition: answer for (partition, _), answer in zip(wanted, answers, strict=True)}


async def _one(channel: Channel, partition: TopicPartition, offset: int) -> Record | KlogError | None:
    one = {"partition": partition.partition, "fetch_offset": offset, "partition_max_bytes": 1}
    answer = await channel.request(
        codec.request(
            ApiKey.FETCH,
            channel.version_for(ApiKey.FETCH, 12, 4),
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1,
            isolation_level=0,
            topics=[{"topic": partition.topic, "partitions": [one]}],
            forgotten_topics_data=[],
        )
    )
    found = answer.responses[0].partitions[0]
    wire = int(found.error_code)
    if wire:
        return error_of(wire, f"{partition} at offset {offset}: {found.error_code.name}")
    records = found.records or b""
    try:
        for position, header in walk(records):
            if header.last_offset >= offset and not header.is_control:
                return next((record for record in each_record(records, position) if record.offset >= offset), None)
    except KlogError as error:
        return error
    return None
