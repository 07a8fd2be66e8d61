"""Where a message lies: its offset is its address, so it can be shown."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from klog.client import resolve
from klog.client.answers import error_in
from klog.client.cluster import Cluster
from klog.errors import KlogError, OffsetOutOfRange, Refused
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey


@dataclass(frozen=True, slots=True)
class Place:
    """The batch that holds an offset: ``length`` bytes from ``position`` of ``file`` on the broker's disk."""

    broker: int
    file: str
    position: int
    length: int
    batch_offset: int
    crc: str
    """Eight hex digits, as the batch's header carries it."""
    state: str
    messages: int = field(metadata={"wide": True})
    leader_epoch: int = field(metadata={"wide": True})
    groups_past: tuple[str, ...] | None = field(default=None, metadata={"wide": True})
    """Groups that have committed an offset behind this one; None where that is not known."""
    batch: int | None = field(default=None, metadata={"wide": True})
    """The batch of the export that was asked about; None where none has the message, or none was named."""
    dump: str = field(default="", metadata={"wide": True})
    """A shell line that shows those bytes, for the broker's host."""


async def where(cluster: Cluster, topic: str, partition: int, offset: int) -> Place:
    """The batch that holds ``offset``; OffsetOutOfRange where no message lies there, Refused on plain Kafka."""
    await cluster.topic(topic)
    one = TopicPartition(topic, partition)
    if not cluster.is_klog:
        raise Refused(
            "this is not a klog cluster: only klog shows where a message lies",
            hint="in Kafka an offset is a counter; kafka-dump-log on the broker's host searches its files",
        )
    try:
        place = await cluster.to_leader(one, offset, _locate)
    except OffsetOutOfRange as error:
        start, end = (await resolve.bounds(cluster, [one]))[one]
        there = f"the first is {start}, the last {end - 1}" if start < end else "the partition is empty"
        raise OffsetOutOfRange(f"{one} has no message {offset}: {there}") from error
    last = place.batch_offset + place.messages - 1
    if not place.batch_offset <= offset <= last:
        raise OffsetOutOfRange(
            f"{one} has no message {offset}: the nearest batch holds {place.batch_offset} to {last}",
            hint="an offset is an address, and not every address is that of a message",
        )
    return place


async def locate(cluster: Cluster, one: TopicPartition, offset: int) -> Place:
    """The batch that a fetch at ``offset`` begins with, which need not hold it; OffsetOutOfRange outside of the log."""
    return await cluster.to_leader(one, offset, _locate)


async def _locate(channel: Channel, share: Mapping[TopicPartition, int]) -> dict[TopicPartition, Place | KlogError]:
    places: dict[TopicPartition, Place | KlogError] = {}
    for one, offset in share.items():
        found = await channel.request(
            codec.request(ApiKey.LOCATE_MESSAGE, 0, topic=one.topic, partition_index=one.partition, offset=offset)
        )
        error = error_in(found, f"offset {offset} of {one}")
        if error is not None:
            places[one] = error
            continue
        position, length = int(found.position), int(found.length)
        places[one] = Place(
            broker=int(found.broker_id),
            file=str(found.file),
            position=position,
            length=length,
            batch_offset=int(found.batch_offset),
            crc=f"{int(found.crc):08x}",
            state=str(found.state),
            messages=int(found.messages),
            leader_epoch=int(found.leader_epoch),
            dump=f"tail -c +{position + 1} {shlex.quote(str(found.file))} | head -c {length} | od -A d -t x1z",
        )
    return places
