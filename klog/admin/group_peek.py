"""The next messages that a group would read. Nothing is committed, and no member notices."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from klog.admin.group_lag import read_positions
from klog.client import leader_requests, one_message
from klog.client.cluster import Cluster
from klog.client.positions import EARLIEST
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.record.records import Record
from klog.render.columns import MayFail
from klog.render.values import moment


@dataclass(frozen=True, slots=True)
class PeekRow(MayFail):
    """A message, or a partition that could not be read. ``committed_offset``: where the group stands; None where it has
    never committed."""

    topic: str
    partition: int
    offset: int | None
    timestamp: datetime | str | None
    key: bytes | None
    value: bytes | None
    committed_offset: int | None = field(default=None, metadata={"wide": True})


async def peek(
    cluster: Cluster,
    zookeeper: ZooKeeper,
    group: str,
    *,
    topics: Collection[str] = (),
    partitions: Collection[int] | None = None,
    count: int = 1,
) -> list[PeekRow]:
    """The next ``count`` messages of each partition that the group has committed in or owns, or of those chosen.

    Where nothing is committed, from the start of the log. GroupIdNotFound.
    """
    for topic in topics:
        (await cluster.topic(topic)).check(partitions or ())
    positions = (await asyncio.to_thread(read_positions, zookeeper, [group], topics))[group]
    chosen = {name: place for name, place in positions.items() if partitions is None or name.partition in partitions}
    starts = await cluster.to_leaders(dict.fromkeys(chosen, EARLIEST), leader_requests.list_offsets)
    rows: dict[TopicPartition, list[PeekRow]] = {name: [] for name in chosen}
    committed = {name: None if one.committed is None else one.committed.offset for name, one in chosen.items()}
    begin: dict[TopicPartition, int] = {}
    for name, start in starts.items():
        if isinstance(start, KlogError):
            rows[name].append(_failed(name, start, committed[name]))
        else:
            begin[name] = max(committed[name] or 0, start.offset or 0)
    for _ in range(count):
        if not begin:
            break
        found = await cluster.to_leaders(begin, one_message.first_message)
        begin = {}
        for name, one in found.items():
            if isinstance(one, Record):
                when = moment(one.timestamp_ms) if one.timestamp_ms >= 0 else None
                rows[name].append(PeekRow(*name, one.offset, when, one.key, one.value, committed[name]))
                begin[name] = one.offset + 1
            elif one is not None:
                rows[name].append(_failed(name, one, committed[name]))
    return [row for name in sorted(rows) for row in rows[name]]


def _failed(name: TopicPartition, error: KlogError, committed: int | None) -> PeekRow:
    return PeekRow(*name, None, None, None, None, committed).failed_by(error)
