"""Offsets of a topic at a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.positions import Position
from klog.client.resolve import bounds, resolve, timestamps
from klog.errors import KlogError, Refused
from klog.names import TopicPartition
from klog.render.values import moment

BEFORE_MAX = 100
"""Each offset before the first costs a round trip."""


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """The offset of a position in one partition; ``timestamp`` is that of the message there, None at the end."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | str | None


async def list_offsets(
    cluster: Cluster, topic: str, at: Position, partitions: Sequence[int] | None = None
) -> list[OffsetRow]:
    """Where ``at`` is in each partition, clamped to what is there (before the start is the start)."""
    node = await cluster.topic(topic)
    chosen = list(node.partitions) if partitions is None else list(partitions)
    within = await bounds(cluster, topic, chosen)
    offsets = await resolve(cluster, topic, chosen, at, within)
    times = await timestamps(cluster, topic, {one: place for one, place in offsets.items() if place < within[one].end})
    return [
        OffsetRow(topic, one, offsets[one], None if (at_ms := times.get(one)) is None else moment(at_ms))
        for one in chosen
    ]


async def list_offsets_before(
    cluster: Cluster, topic: str, at: Position, count: int, partitions: Sequence[int] | None = None
) -> list[OffsetRow]:
    """The offsets of the last ``count`` messages before ``at`` in each partition, the latest first (0.8's
    GetOffsetShell, which knew the starts of segments only). Raises a KlogError where a leader cannot be asked."""
    node = await cluster.topic(topic)
    chosen = list(node.partitions) if partitions is None else list(partitions)
    within = await bounds(cluster, topic, chosen)
    begin = await resolve(cluster, topic, chosen, at, within)
    rows: dict[int, list[OffsetRow]] = {one: [] for one in chosen}
    last = dict(begin)
    for back in range(1, min(count, BEFORE_MAX) + 1):
        wanted = {TopicPartition(topic, one): (begin[one], -back) for one in last if last[one] > within[one].start}
        if not wanted:
            break
        found = await cluster.to_leaders(wanted, leader_requests.find_message)
        last = {}
        for name, offset in found.items():
            if isinstance(offset, KlogError):
                raise offset
            if offset is None:
                raise Refused("this is not a klog cluster, and cannot count messages back from an offset")
            last[name.partition] = offset
        times = await timestamps(cluster, topic, last)
        for one, offset in last.items():
            at_ms = times.get(one)
            rows[one].append(OffsetRow(topic, one, offset, None if at_ms is None else moment(at_ms)))
    return [row for one in chosen for row in rows[one]]
