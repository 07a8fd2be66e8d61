"""From options to tasks: which offsets are read, decided once, and who reads which of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from klog.client.metadata import TopicNode
from klog.client.positions import EARLIEST, LATEST
from klog.client.raw_fetch import Range, RawCluster
from klog.errors import (
    CannotConnect,
    KlogError,
    LeaderNotAvailable,
    NotLeader,
    OffsetOutOfRange,
    TimedOut,
    UnknownTopicOrPartition,
    UsageError,
)
from klog.names import TopicPartition
from klog.spark.options import Bound, SourceOptions

UNANSWERED = (CannotConnect, TimedOut, LeaderNotAvailable, NotLeader)
"""A broker is away, or has just lost a partition: the same question may be answered later."""


@dataclass(frozen=True)
class Task:
    """What one Spark task reads: ``ranges`` one after the other; of each the messages that the broker counts in it.

    None as a count: the broker cannot count (plain Kafka), so a short read looks like a short range.
    """

    ranges: tuple[Range, ...]
    messages: tuple[int | None, ...]
    topic_ids: tuple[tuple[str, str], ...] = ()
    """(topic, id): a topic that is re-created before the task runs has the old name and none of its messages."""


class Ends(NamedTuple):
    """Where the log of each partition that is read begins and ends, as of one moment; and its topics' ids."""

    earliest: dict[TopicPartition, int]
    latest: dict[TopicPartition, int]
    topic_ids: dict[str, str]
    """Without the topics of which the broker tells no id (plain Kafka's old ones)."""


def plan(options: SourceOptions) -> list[Task]:
    """The tasks that together read exactly what the options mean, as of now.

    Raises UnknownTopicOrPartition, OffsetOutOfRange (with failOnDataLoss), UsageError (a partition that is not there).
    """
    left = options.offset_retries or 0
    while True:
        try:
            with options.connect() as cluster:
                ranges = list(options.ranges) if options.ranges is not None else resolve(cluster, options)
                return plan_ranges(cluster, options, ranges)
        except UNANSWERED:
            if not left:
                raise
        left -= 1
        time.sleep(options.offset_pause_s)


def plan_ranges(cluster: RawCluster, options: SourceOptions, ranges: Sequence[Range]) -> list[Task]:
    """The tasks that together read exactly these ranges; none where there is nothing in them."""
    ranges = [one for one in ranges if one.to_offset > one.from_offset]
    if not ranges:
        return []
    facts = cluster.describe(sorted({one.topic for one in ranges}))
    ids = {name: one.topic_id for name, one in facts.items() if one.topic_id is not None}
    splits = _split(cluster, options, ranges)
    counts = _counts(cluster, [one for split in splits for one in split], options.fail_on_data_loss)
    return [
        Task(
            split,
            tuple(counts[one] for one in split),
            tuple((topic, ids[topic]) for topic in sorted({one.topic for one in split}) if topic in ids),
        )
        for split in splits
    ]


def _counts(cluster: RawCluster, ranges: Sequence[Range], is_exact: bool) -> Mapping[Range, int | None]:
    """What the brokers count; where a loss is allowed, None for a range that has lost messages since."""
    try:
        return cluster.counts(ranges)
    except OffsetOutOfRange:
        if is_exact:
            raise
    found: dict[Range, int | None] = {}
    for one in ranges:
        try:
            found.update(cluster.counts([one]))
        except OffsetOutOfRange:
            found[one] = None
    return found


def messages_in(cluster: RawCluster, ranges: Sequence[Range]) -> int | None:
    """Of all ranges; None where a broker cannot count, or has deleted some of it meanwhile."""
    try:
        counts = cluster.counts(ranges).values()
    except OffsetOutOfRange:
        return None
    return None if None in counts else sum(count or 0 for count in counts)


def _split(cluster: RawCluster, options: SourceOptions, ranges: list[Range]) -> list[tuple[Range, ...]]:
    def align(one: Range, offset: int) -> int:
        with suppress(KlogError):  # an unaligned cut costs a batch decoded twice, nothing else
            return cluster.batch_start(TopicPartition(one.topic, one.partition), offset) or offset
        return offset

    if options.max_records_per_partition is not None:
        ranges = [part for one in ranges for part in _by_messages(cluster, one, options.max_records_per_partition)]
    if options.min_partitions is not None and options.min_partitions > len(ranges):
        return cut_evenly(ranges, options.min_partitions, align)
    if options.max_records_per_partition is not None:
        return [(one,) for one in ranges]
    return cut_and_pack(ranges, options.split_bytes, align)


def _by_messages(cluster: RawCluster, one: Range, messages: int) -> list[Range]:
    """The range in parts of ``messages`` messages, the last of what is left."""
    cuts: list[int] = []
    at = one.from_offset
    while True:
        at = cluster.nth(TopicPartition(one.topic, one.partition), at, messages)
        if not one.from_offset < at < one.to_offset or (cuts and at <= cuts[-1]):
            return cut_at(one, cuts)
        cuts.append(at)


def resolve(cluster: RawCluster, options: SourceOptions) -> list[Range]:
    """The offsets to read of every partition chosen. Errors of `plan`."""
    ends = read_ends(cluster, options)
    starts = starting_offsets(cluster, options, ends)
    stops = _at(cluster, options.ending, ends)
    ranges = []
    for one, earliest in ends.earliest.items():
        latest = ends.latest[one]
        start = starts[one]
        stop = stops[one]
        stop = latest if stop is None else stop
        if options.fail_on_data_loss and stop > latest:
            raise _not_there(one, start, stop, earliest, latest)
        start = min(max(start, earliest), latest)
        ranges.append(Range(one.topic, one.partition, start, min(stop, latest)))
    return ranges


def read_ends(cluster: RawCluster, options: SourceOptions) -> Ends:
    """What is there of every partition that is subscribed or assigned, in order.

    UnknownTopicOrPartition where a topic, with failOnDataLoss, or a partition is missing.
    """
    facts, partitions = _chosen(cluster, options)
    earliest, latest = cluster.bounds(partitions)
    ids = {one.name: one.topic_id for one in facts.values() if one.topic_id is not None}
    latest = {one: max(end, earliest[one]) for one, end in latest.items()}  # retention may have moved between the two
    return Ends(earliest, latest, ids)


def starting_offsets(cluster: RawCluster, options: SourceOptions, ends: Ends) -> dict[TopicPartition, int]:
    """Where each partition begins to be read.

    OffsetOutOfRange where that is before the log's start (with failOnDataLoss), or no message is as late as the time.
    """
    found = {}
    for one, start in _at(cluster, options.starting, ends).items():
        if start is None and options.starting_no_match_is_error:
            raise OffsetOutOfRange(
                f"{one}: no message is as late as the starting time",
                hint='or set startingOffsetsByTimestampStrategy to "latest"',
            )
        found[one] = ends.latest[one] if start is None else start
        if options.fail_on_data_loss and not ends.earliest[one] <= found[one] <= ends.latest[one]:
            raise _not_there(one, found[one], ends.latest[one], ends.earliest[one], ends.latest[one])
    return found


def _not_there(one: TopicPartition, start: int, stop: int, earliest: int, latest: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"{one}: [{start}, {stop}) was asked for, [{earliest}, {latest}) is there",
        hint="set failOnDataLoss to false to read what there is",
    )


def _chosen(cluster: RawCluster, options: SourceOptions) -> tuple[dict[str, TopicNode], list[TopicPartition]]:
    """The topics, and every partition that is subscribed or assigned, in order."""
    if options.subscribe_pattern is not None:
        pattern = options.subscribe_pattern
        facts = {name: one for name, one in cluster.describe().items() if pattern.fullmatch(name)}
        names: Sequence[str] = sorted(facts)
    else:
        names = sorted({*options.subscribe, *(one.topic for one in options.assign)})
        facts = cluster.describe(names)
    missing = [name for name in names if name not in facts]
    if missing and options.fail_on_data_loss:
        raise UnknownTopicOrPartition.of_topics(*missing, hint="klog topic list shows all")
    there = [TopicPartition(one.name, index) for _, one in sorted(facts.items()) for index in sorted(one.partitions)]
    if not options.assign:
        return facts, there
    if options.fail_on_data_loss:
        for name in names:
            facts[name].check(one.partition for one in options.assign if one.topic == name)
    return facts, sorted(set(options.assign) & set(there))


def _at(cluster: RawCluster, bound: Bound, ends: Ends) -> dict[TopicPartition, int | None]:
    """The offset of a bound in each partition; None where no message is as late as the time asked for."""
    unknown = [str(one) for one in bound.per_partition if one not in ends.latest]
    if unknown:
        raise UsageError(f"an offset or time is given for {', '.join(unknown)}, which is not read")
    values = {one: bound.per_partition.get(one, bound.default) for one in ends.latest}
    named = {EARLIEST: ends.earliest, LATEST: ends.latest}
    found: dict[TopicPartition, int | None] = {
        one: named[value][one] for one, value in values.items() if value in named
    }
    others = {one: value for one, value in values.items() if value not in named}
    if not bound.by_time:
        return {**found, **others}
    for one, at in cluster.offsets(others).items():
        found[one] = None if at < 0 else at
    return found


# --- Which task reads what: by offset, which is a byte address, so that tasks are balanced without asking anybody ---

PACKED_RANGES_MAX = 1000
"""Ranges in one task: each costs a round trip, so a task of thousands of tiny ones would be the last to end."""

Align = Callable[[Range, int], int]
"""(range, offset inside it) -> the offset to cut at instead: a batch's start, so that no batch is decoded twice."""


def cut_evenly(ranges: Sequence[Range], pieces: int, align: Align) -> list[tuple[Range, ...]]:
    """About ``pieces`` tasks (the connector's minPartitions): each range has its share by length, at least one."""
    total = sum(one.to_offset - one.from_offset for one in ranges)
    return [
        (part,)
        for one in ranges
        for part in cut(one, max(1, round((one.to_offset - one.from_offset) / total * pieces)), align)
    ]


def cut_and_pack(ranges: Sequence[Range], split_bytes: int, align: Align) -> list[tuple[Range, ...]]:
    """Tasks of about ``split_bytes``: longer ranges are cut evenly, shorter ones share a task in their order."""
    tasks: list[tuple[Range, ...]] = []
    packed: list[Range] = []
    packed_bytes = 0
    for one in ranges:
        size = one.to_offset - one.from_offset
        if size > split_bytes:
            tasks.extend((part,) for part in cut(one, -(-size // split_bytes), align))
            continue
        if packed and (packed_bytes + size > split_bytes or len(packed) >= PACKED_RANGES_MAX):
            tasks.append(tuple(packed))
            packed, packed_bytes = [], 0
        packed.append(one)
        packed_bytes += size
    if packed:
        tasks.append(tuple(packed))
    return tasks


def cut(one: Range, pieces: int, align: Align) -> list[Range]:
    """The range in at most ``pieces`` parts of about equal length; together exactly the range, none empty."""
    size = one.to_offset - one.from_offset
    cuts = {align(one, one.from_offset + size * i // pieces) for i in range(1, pieces)}
    inner = sorted(at for at in cuts if one.from_offset < at < one.to_offset)
    return cut_at(one, inner)


def cut_at(one: Range, offsets: Sequence[int]) -> list[Range]:
    """The range cut at these offsets, which are ascending and inside it."""
    edges = [one.from_offset, *offsets, one.to_offset]
    return [one._replace(from_offset=start, to_offset=end) for start, end in itertools.pairwise(edges)]
