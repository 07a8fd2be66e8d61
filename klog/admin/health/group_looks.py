"""What groups have committed and own, against what the logs hold: asked for `klog status`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from klog.admin import group_lag, groups
from klog.client import leader_requests
from klog.coordination import groups as registry
from klog.coordination.group_states import COORDINATOR
from klog.errors import KlogError, ZooKeeperError
from klog.names import TopicPartition
from klog.protocol.consumer_protocol import PROTOCOL_TYPE, subscribed_topics

if TYPE_CHECKING:
    from klog.admin.group_lag import LagRow
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper

STABLE: Final = "Stable"
STOPPED_AFTER: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """An offset that a group has committed; ``lag`` in messages, None where it cannot be counted.

    ``offset`` None: a member reads a partition with messages, and has never committed. ``waiting_ms``: how long the
    first unread message has been waiting, where a member reads and that is longer than `STOPPED_AFTER`; ``is_stopped``:
    nothing was committed for so long, either.
    """

    group: str
    partition: TopicPartition
    offset: int | None
    start: int | None
    end: int | None
    lag: int | None
    committed_ms: int | None = None
    waiting_ms: int | None = None
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group. ``since_ms``: when its members last changed, as far as the registry tells."""

    name: str
    members: tuple[str, ...]
    idle: tuple[str, ...] = ()
    """Members that own nothing."""
    unowned: tuple[TopicPartition, ...] = ()
    """Partitions of its topics that no member owns."""
    since_ms: int = 0


async def group_offsets(cluster: Cluster, session: ZooKeeper, now_ms: int) -> list[GroupOffset]:
    """Every committed offset, by group, topic and partition, with its lag in messages as the leaders count it."""
    rows = await group_lag.lag(cluster, session, times=False)
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    waiting = await _waiting(cluster, [row for row in rows if row.owner and row.lag and row.committed], now_ms)
    return [
        GroupOffset(
            row.group,
            TopicPartition(row.topic, row.partition),
            row.current_offset,
            row.log_start_offset,
            row.log_end_offset,
            row.lag,
            None if row.committed is None else int(row.committed.timestamp() * 1000),
            waiting.get((row.group, TopicPartition(row.topic, row.partition))),
            _is_old(row, now) and (row.group, TopicPartition(row.topic, row.partition)) in waiting,
        )
        for row in rows
        if (row.current_offset is not None or row.has_committed_nothing)
        and row.group is not None
        and row.topic is not None
        and row.partition is not None
    ]


def _is_old(row: LagRow, now: datetime) -> bool:
    return row.committed is not None and now - row.committed > STOPPED_AFTER


async def _waiting(cluster: Cluster, rows: list[LagRow], now_ms: int) -> dict[tuple[str, TopicPartition], int]:
    """How long the first unread message waits, where that is longer than `STOPPED_AFTER`."""
    asked: dict[TopicPartition, set[int]] = {}
    for row in rows:
        asked.setdefault(TopicPartition(str(row.topic), row.partition or 0), set()).add(row.current_offset or 0)
    if not asked:
        return {}
    times = await cluster.to_leaders(
        {name: sorted(some) for name, some in asked.items()}, leader_requests.message_times
    )
    found: dict[tuple[str, TopicPartition], int] = {}
    for row in rows:
        name = TopicPartition(str(row.topic), row.partition or 0)
        told = times.get(name)
        since_ms = None if told is None or isinstance(told, KlogError) else told.get(row.current_offset or 0)
        if since_ms is not None and now_ms - since_ms > STOPPED_AFTER.total_seconds() * 1000:
            found[str(row.group), name] = now_ms - since_ms
    return found


async def group_looks(
    cluster: Cluster, session: ZooKeeper, topics: Mapping[str, Any], silent: Collection[int] = ()
) -> list[GroupLook]:
    """Every group; ``silent`` brokers are not asked.

    A group whose nodes cannot be read is left out: `klog group list` shows the error.
    """
    phases, found = await asyncio.gather(groups.phases(cluster, silent), asyncio.to_thread(_read, session))
    return [
        look_of(one, phases.get(name, one.phase), topics)
        for name, one in found.items()
        if not isinstance(one, ZooKeeperError)
    ]


def _read(session: ZooKeeper) -> dict[str, registry.Group | ZooKeeperError]:
    return registry.read_each(session, registry.names(session))


def look_of(group: registry.Group, phase: str, topics: Mapping[str, Any]) -> GroupLook:
    """Who owns nothing and what is not owned, of a group that has shared its partitions out."""
    look = GroupLook(group.name, tuple(map(str, group.members)), since_ms=group.state.modified_ms)
    if phase != STABLE or not group.members:
        return look
    unowned = [
        TopicPartition(topic, number)
        for topic in sorted(topics_of(group))
        if topic in topics
        for number in topics[topic].partitions
        if TopicPartition(topic, number) not in group.readers
    ]
    idle = [str(one) for one in group.members if not one.partitions] if group.readers else []
    return replace(look, idle=tuple(idle), unowned=tuple(unowned))


def topics_of(group: registry.Group) -> frozenset[str]:
    """The topics that a group's members subscribe to; of consumers that coordinate through ZooKeeper, those that they
    own partitions of."""
    found = {name.topic for name in group.readers}
    if group.state.group_protocol == COORDINATOR and group.state.protocol_type == PROTOCOL_TYPE:
        for one in group.state.members:
            try:
                found |= set(subscribed_topics(one.metadata))
            except KlogError:
                continue  # a format that only its members understand
    return frozenset(found)
