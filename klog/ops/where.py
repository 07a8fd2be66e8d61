"""Where a message lies: its offset is its address, so it can be shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from klog.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Place:
    """The batch that holds an offset: ``length`` bytes from ``position`` of ``file`` on the broker's disk."""

    broker: int
    file: str
    position: int
    length: int
    batch_offset: int
    crc: str
    state: str
    messages: int = field(metadata={"wide": True})
    leader_epoch: int = field(metadata={"wide": True})
    groups_past: tuple[str, ...] | None = field(default=None, metadata={"wide": True})
    dump: str = field(default="", metadata={"wide": True})
    """A shell line that shows those bytes, for the broker's host."""


async def where(cluster: Cluster, topic: str, partition: int, offset: int) -> Place:
    raise NotImplementedError
