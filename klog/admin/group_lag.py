"""How far groups are behind: in messages, in bytes and in time.

    LAG         messages between the committed offset and the partition's end, counted by its leader: exact, although
                offsets are byte addresses. What an offset below the log's start has missed is gone and not counted
    LAG-BYTES   bytes of the log between the same two addresses
    LAG-MS      how long the first unread message has been waiting: now minus its timestamp; 0 where none is unread

Where nothing is committed all three count from the log's start: a member begins there with ``auto.offset.reset``
earliest, and at the end with latest; no broker knows which.

The time is measured against now, not against the last message, so that it grows for a group that has stopped although
no producer writes. Timestamps are the producers' (or the brokers', with ``message.timestamp.type=LogAppendTime``):
clocks that differ show here, and messages from the future count as not waiting.

What is asked of a partition by any number of groups goes to its leader in one request, in two where times are wanted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.leader_requests import Measured
from klog.coordination import committed, paths
from klog.coordination import groups as registry
from klog.coordination.committed import CommittedOffset
from klog.coordination.topics import read_many
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError, ZooKeeperError
from klog.names import TopicPartition, counted
from klog.render.columns import MayFail
from klog.render.value_texts import duration_text

Order = Literal["name", "lag", "bytes", "time"]


@dataclass(frozen=True, slots=True)
class LagRow(MayFail):
    """A group in a partition; a sum over partitions where ``partition``, ``topic`` or ``group`` is None.

    ``owner`` reads the partition now. ``current_offset`` is None where nothing is committed: the lag is that from the
    log's start. Of a topic that is not
    there any more all else is None. ``committed``: when it was; ``time``: when it was looked.
    """

    group: str | None
    topic: str | None
    partition: int | None
    current_offset: int | None = field(default=None, metadata={"rank": 2})
    log_start_offset: int | None = field(default=None, metadata={"rank": 4})
    log_end_offset: int | None = field(default=None, metadata={"rank": 1})
    lag: int | None = None
    lag_bytes: int | None = field(default=None, metadata={"rank": 3})
    lag_ms: int | None = None
    owner: str | None = None
    committed: datetime | None = field(default=None, metadata={"wide": True})
    time: datetime | None = field(default=None, metadata={"wide": True})

    @property
    def place(self) -> TopicPartition:
        """The partition that the row is about."""
        return TopicPartition(str(self.topic), self.partition or 0)

    @property
    def is_outside(self) -> bool:
        """The committed offset lies outside of the log: below its start or behind its end."""
        if self.current_offset is None or self.log_start_offset is None or self.log_end_offset is None:
            return False
        return not self.log_start_offset <= self.current_offset <= self.log_end_offset

    @property
    def has_committed_nothing(self) -> bool:
        """A member reads the partition, there are messages in it, and nothing is committed."""
        return (
            self.owner is not None
            and self.current_offset is None
            and self.log_end_offset is not None
            and self.log_end_offset > (self.log_start_offset or 0)
        )

    @property
    def has_no_topic(self) -> bool:
        """What it is about was deleted, or never was."""
        is_offset = self.partition is not None and self.current_offset is not None
        return is_offset and self.log_end_offset is None and self.error is None


class Position(NamedTuple):
    """A group's position in a partition, as the registry has it. Its ``commit_ms``: when the node was written."""

    committed: CommittedOffset | None
    owner: str | None


Positions = Mapping[str, Mapping[TopicPartition, Position]]


async def lag(
    cluster: Cluster,
    zookeeper: ZooKeeper,
    groups: Sequence[str] = (),
    *,
    topics: Collection[str] = (),
    times: bool = True,
) -> list[LagRow]:
    """A row for each partition that these groups, or all, have committed in or own; by group, topic and partition.

    GroupIdNotFound for a group, UnknownTopicOrPartition for a topic that is not there. A partition whose leader does
    not answer is a failed row. ``times`` False leaves LAG-MS out, and saves a request a leader.
    """
    positions, metadata = await asyncio.gather(
        asyncio.to_thread(read_positions, zookeeper, groups, topics), cluster.metadata(fresh=True)
    )
    for topic in topics:
        if topic not in metadata.topics:
            await cluster.topic(topic)
    unknown = sorted({name.topic for places in positions.values() for name in places} - metadata.topics.keys())
    deleted = await asyncio.to_thread(_deleted, zookeeper, unknown)
    there = {(topic.name, number) for topic in metadata.topics.values() for number in topic.partitions}
    wanted: dict[TopicPartition, set[int]] = {}
    for places in positions.values():
        for name, place in places.items():
            if name in there:
                offsets = wanted.setdefault(name, set())
                offsets.add(_begin(place))
    measured = await cluster.to_leaders(wanted, leader_requests.measure)
    waiting = await _times(cluster, measured) if times else {}
    now_ms = time.time_ns() // 1_000_000
    return [
        _row(group, name, place, measured.get(name), waiting.get(name), now_ms)
        for group, places in positions.items()
        for name, place in places.items()
        if name.topic not in deleted
    ]


def _deleted(zookeeper: ZooKeeper, names: Sequence[str]) -> set[str]:
    """In a thread: those of these topics whose deletion waits. Offsets in them count again once they are restored."""
    return {one.name for one in read_many(zookeeper, names, {}) if one.deletion is not None}


def read_positions(zookeeper: ZooKeeper, wanted: Sequence[str] = (), topics: Collection[str] = ()) -> Positions:
    """Where these groups, or all, stand: what they have committed, and own, in these topics, or all. In a thread."""
    if wanted:
        registry.check_known(zookeeper, wanted)
    names = list(dict.fromkeys(wanted)) or registry.names(zookeeper)
    offsets = _offsets(zookeeper, names)
    read = registry.read_each(zookeeper, names)
    positions: dict[str, dict[TopicPartition, Position]] = {}
    for group in names:
        found = read[group]
        # A group whose nodes cannot be read has a lag all the same; `klog group list` shows the error.
        owners = {} if isinstance(found, ZooKeeperError) else found.readers
        positions[group] = {
            name: Position(offsets[group].get(name), owners.get(name))
            for name in sorted(offsets[group].keys() | owners.keys())
            if not topics or name.topic in topics
        }
    return positions


def _offsets(zookeeper: ZooKeeper, groups: Sequence[str]) -> dict[str, dict[TopicPartition, CommittedOffset | None]]:
    """All that these groups have committed; None where what is written is not an offset.

    The plain numbers alone: what is beside them in notes is not lag, and would be as much to read again.
    """
    places = [(group, name) for group, some in committed.names(zookeeper, groups).items() for name in some]
    nodes = zookeeper.find_many(places, lambda place: paths.consumer_offset(place[0], *place[1]))
    found: dict[str, dict[TopicPartition, CommittedOffset | None]] = {group: {} for group in groups}
    for (group, name), node in nodes.items():
        offset = committed.offset_in(node.data)
        found[group][name] = None if offset is None else CommittedOffset(offset, commit_ms=node.stat.modified_ms)
    return found


async def _times(
    cluster: Cluster, measured: Mapping[TopicPartition, Measured | KlogError]
) -> dict[TopicPartition, Mapping[int, int | None]]:
    """When the first unread message was written, by the offset it was asked for; asked only where one is unread."""
    wanted = {
        name: [offset for offset, unread in answer.unread.items() if unread.bytes]
        for name, answer in measured.items()
        if not isinstance(answer, KlogError)
    }
    answers = await cluster.to_leaders(
        {name: some for name, some in wanted.items() if some}, leader_requests.message_times
    )
    return {name: found for name, found in answers.items() if found is not None and not isinstance(found, KlogError)}


def _row(
    group: str,
    name: TopicPartition,
    place: Position,
    answer: Measured | KlogError | None,
    times: Mapping[int, int | None] | None,
    now_ms: int,
) -> LagRow:
    told: dict[str, Any] = {}
    if answer is not None and not isinstance(answer, KlogError):
        unread, since_ms = answer.unread.get(_begin(place)), (times or {}).get(_begin(place))
        told = {"log_start_offset": answer.start, "log_end_offset": answer.end}
        if unread is not None:
            waits_ms = None if since_ms is None else max(0, now_ms - since_ms)
            told |= {"lag": unread.messages, "lag_bytes": unread.bytes, "lag_ms": waits_ms if unread.bytes else 0}
    return LagRow(
        group,
        *name,
        place.committed.offset if place.committed is not None else None,
        **told,
        owner=place.owner,
        committed=None if place.committed is None else _moment(place.committed.commit_ms),
        time=_moment(now_ms),
    ).failed_by(answer if isinstance(answer, KlogError) else None)


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _begin(place: Position) -> int:
    """The offset from which a partition's messages are unread."""
    return place.committed.offset if place.committed is not None else 0


# --- Sums, and what to show -------------------------------------------------------------------------------------------


def totals(rows: Iterable[LagRow]) -> list[LagRow]:
    """Sums in place of partitions: one row per topic, per group, and for all groups, where several.

    Messages and bytes are added up, of times the longest counts; what is unknown is left out. A sum over a partition
    that could not be asked has failed like it.
    """
    every = list(rows)
    by_group: dict[str | None, dict[str | None, list[LagRow]]] = {}
    for row in every:
        by_group.setdefault(row.group, {}).setdefault(row.topic, []).append(row)
    found = []
    for group, topics in by_group.items():
        if len(topics) > 1:
            found += [_sum(group, topic, some) for topic, some in topics.items()]
        found.append(_sum(group, None, [row for some in topics.values() for row in some]))
    if len(by_group) > 1:
        found.append(_sum(None, None, every))
    return found


def of_groups(rows: Iterable[LagRow]) -> list[LagRow]:
    """A sum for each group, the furthest behind first."""
    return in_order([row for row in totals(rows) if row.group is not None and row.topic is None], "lag")


def _sum(group: str | None, topic: str | None, rows: Sequence[LagRow]) -> LagRow:
    messages = [row.lag for row in rows if row.lag is not None]
    sizes = [row.lag_bytes for row in rows if row.lag_bytes is not None]
    return LagRow(
        group,
        topic,
        None,
        lag=sum(messages) if messages else None,
        lag_bytes=sum(sizes) if sizes else None,
        lag_ms=max((row.lag_ms for row in rows if row.lag_ms is not None), default=None),
        time=rows[0].time if rows else None,
    ).failed_with(rows)


def lagging(rows: Iterable[LagRow]) -> list[LagRow]:
    """Those with something unread, and those where it is unknown: no leader answered."""
    return [row for row in rows if row.lag or row.lag_bytes or row.error is not None or row.has_committed_nothing]


def in_order(rows: Iterable[LagRow], order: Order) -> list[LagRow]:
    """The worst first; equal ones, and all with ``name``, by group, topic and partition."""
    if order == "name":
        return list(rows)
    return sorted(rows, key=lambda row: -_worst(row, order))


def _worst(row: LagRow, order: Literal["lag", "bytes", "time"]) -> int:
    value = {"lag": row.lag, "bytes": row.lag_bytes, "time": row.lag_ms}[order]
    return -1 if value is None else value


def in_words(rows: Sequence[LagRow]) -> str:
    """Of partitions' rows: how far behind all of it is, in one line."""
    whole = _sum(None, None, rows)
    groups = len({row.group for row in rows})
    waited = f", the oldest waiting for {duration_text(whole.lag_ms)}" if whole.lag_ms else ""
    behind = (
        "unknown"
        if whole.lag is None
        else f"{counted(whole.lag, 'message')}, {counted(whole.lag_bytes or 0, 'byte')}{waited}"
    )
    silent = sum(row.error is not None for row in rows)
    missing = f"; {counted(silent, 'partition')} could not be asked" if silent else ""
    return f"{counted(groups, 'group')}, {counted(len(rows), 'partition')}; lag: {behind}{missing}"


def remarks(rows: Sequence[LagRow]) -> list[str]:
    """What a person should know of these rows besides: offsets that lie outside of their logs, topics that are gone."""
    found = []
    outside = sum(row.is_outside for row in rows)
    gone = sum(row.has_no_topic for row in rows)
    never = sum(row.has_committed_nothing for row in rows)
    if never:
        have = f"{counted(never, 'partition')} {'has' if never == 1 else 'have'}"
        found.append(
            f"{have} members that never committed: their lag counts from the log's start, where they begin with "
            "auto.offset.reset=earliest (with latest: at its end)"
        )
    if outside:
        found.append(f"{counted(outside, 'offset')} outside of the log: see `klog status groups`")
    if gone:
        found.append(f"{counted(gone, 'offset')} of partitions that do not exist: see `klog status groups`")
    return found
