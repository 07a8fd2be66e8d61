"""Offsets of a topic at a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from klog.client.cluster import Cluster
from klog.ops.positions import Position


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """The offset of a position in one partition; ``timestamp`` is that of the message there, None at the end."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None


async def list_offsets(
    cluster: Cluster, topic: str, at: Position, partitions: Sequence[int] | None = None
) -> list[OffsetRow]:
    raise NotImplementedError
