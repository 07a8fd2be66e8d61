"""Offsets of a topic at a position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.positions import Position
from klog.client.resolve import bounds, resolve, timestamps
from klog.errors import Refused
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
    names = (await cluster.topic(topic)).names(partitions)
    within = await bounds(cluster, names)
    offsets = await resolve(cluster, dict.fromkeys(names, at), within)
    times = await timestamps(cluster, {one: offset for one, offset in offsets.items() if offset < within[one].end})
    return [_row(one, offsets[one], times) for one in names]


async def list_offsets_before(
    cluster: Cluster, topic: str, at: Position, count: int, partitions: Sequence[int] | None = None
) -> list[OffsetRow]:
    """The offsets of the last ``count`` messages before ``at`` in each partition, the latest first (0.8's
    GetOffsetShell, which knew the starts of segments only). Raises a KlogError where a leader cannot be asked."""
    names = (await cluster.topic(topic)).names(partitions)
    within = await bounds(cluster, names)
    begin = await resolve(cluster, dict.fromkeys(names, at), within)
    rows: dict[TopicPartition, list[OffsetRow]] = {one: [] for one in names}
    last = dict(begin)
    for back in range(1, min(count, BEFORE_MAX) + 1):
        wanted = {one: (begin[one], -back) for one in last if last[one] > within[one].start}
        if not wanted:
            break
        last = {}
        for one, offset in (await cluster.ask_leaders(wanted, leader_requests.find_message)).items():
            if offset is None:
                raise Refused("this is not a klog cluster, and cannot count messages back from an offset")
            last[one] = offset
        times = await timestamps(cluster, last)
        for one, offset in last.items():
            rows[one].append(_row(one, offset, times))
    return [row for one in names for row in rows[one]]


def _row(one: TopicPartition, offset: int, times: Mapping[TopicPartition, int | None]) -> OffsetRow:
    at_ms = times.get(one)
    return OffsetRow(*one, offset, None if at_ms is None else moment(at_ms))
