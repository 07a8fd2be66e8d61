"""Offsets of a topic at a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from klog.client.positions import Position
from klog.render.timestamps import moment

if TYPE_CHECKING:
    from klog.client.cluster import Cluster


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
    from klog.client.resolve import bounds, resolve, timestamps

    node = await cluster.topic(topic)
    chosen = list(node.partitions) if partitions is None else list(partitions)
    within = await bounds(cluster, topic, chosen)
    offsets = await resolve(cluster, topic, chosen, at, within)
    times = await timestamps(cluster, topic, {one: place for one, place in offsets.items() if place < within[one].end})
    return [
        OffsetRow(topic, one, offsets[one], None if (at_ms := times.get(one)) is None else moment(at_ms))
        for one in chosen
    ]
