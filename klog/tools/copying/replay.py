"""A range of one topic copied into another, of the same cluster or of another one; once, however often it is begun.

Partitions, keys, headers, times and compression are kept; each message carries where it comes from. A replay that was
interrupted is begun again by the same command: in each partition it goes on behind the last message of the range that
the target has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.client.positions import END, START, Anchor, Position, Range
from klog.errors import KlogError, Refused, UnknownTopicOrPartition, UsageError
from klog.names import TopicPartition
from klog.render.counts import counted

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.client.resolve import Bounds
    from klog.config.units import Rate
    from klog.tools.copying.cluster_endpoint import ClusterEndpoint
    from klog.tools.copying.copy import Copier, PartitionCopy, Target
    from klog.tools.copying.rate_limiter import RateLimiter
    from klog.tools.copying.source import Feed

PATIENCE_S = 120.0
"""How long one side may be away before a replay gives up; it is begun again by the same command."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """``range`` None: from the start to the end there is when it begins. ``count``: at most so many messages.

    ``rate`` or ``speed`` (a multiple of the pace at which they were written; 1.0 is as they were) or neither.
    ``again``: copy the range also where the target has it already. ``dry_run``: only say what would be copied.
    """

    range: Range | None = None
    partitions: tuple[int, ...] | None = None
    count: int | None = None
    rate: Rate | None = None
    speed: float | None = None
    again: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ReplayedRange:
    """What was copied of one partition: offsets [from, to) of the source. ``bytes`` as they lie in the target.

    Of a dry run: what would be copied, with the bytes of the source; None where the source does not count messages.
    """

    topic: str
    partition: int
    from_: int
    to: int
    messages: int | None
    bytes: int | None
    error: str | None = None
    message: str | None = None


async def replay(
    source: ClusterEndpoint,
    target: ClusterEndpoint,
    topic: str,
    into: str,
    options: ReplayOptions,
    *,
    note: Callable[[str], None] = lambda text: None,
    show: Callable[[list[ReplayedRange]], None] = lambda rows: None,
    begun: Callable[[int], None] = lambda addresses: None,
) -> list[ReplayedRange]:
    """Copy; one row per partition. ``begun`` gets the number of addresses to copy; ``show`` gets the rows a few times a
    second, and when it is cancelled.

    Raises UsageError for options that exclude each other, Refused where a topic would be copied into itself,
    UnknownTopicOrPartition, InvalidPartitions where the target has too few partitions.
    """
    from klog.record.provenance_header import Source
    from klog.tools.copying.copy import Budget, Copier, PartitionCopy
    from klog.tools.copying.source import SourceReader
    from klog.tools.copying.topics import batch_bytes_max, matching_topic, open_target

    if options.rate is not None and options.speed is not None:
        raise UsageError("--rate and --speed exclude each other")
    if source.cluster_id == target.cluster_id and topic == into:
        raise Refused(f"{topic} cannot be copied into itself", hint="name another topic")
    ranges = await _ranges(source, topic, options, note)
    partitions = len((await source.cluster.topic(topic)).partitions)
    is_there = await matching_topic(target.cluster, into, partitions, note=note, dry_run=options.dry_run)
    if not is_there:
        return await _would_copy(source, topic, ranges, options, note)
    opened = await open_target(target, note)
    failures: dict[int, KlogError] = {}
    copies: dict[int, PartitionCopy] = {}

    def lost(feed: Feed, begin: int, end: int) -> None:
        note(f"{feed.partition}: {begin} to {end} was removed by retention before it was copied")

    def failed(copy: PartitionCopy, error: KlogError) -> None:
        failures[copy.source.partition] = error

    reader = SourceReader(source, lost=lost)
    copier = Copier(failed=failed)

    def rows() -> list[ReplayedRange]:
        return [_row(topic, copy, failures.get(number)) for number, copy in sorted(copies.items())]

    try:
        places = await asyncio.gather(
            *(
                _place(opened, source, topic, into, one, begin, end, options, note)
                for one, (begin, end) in ranges.items()
            )
        )
        if options.dry_run:
            left = {one: (begin, max(begin, ranges[one][1])) for one, begin in places}
            return await _would_copy(source, topic, left, options, note)
        largest = await batch_bytes_max(target.cluster, into)
        pace = await _pace(source.cluster, topic, ranges, options)
        budget = Budget(options.count)
        for (one, begin), (_, end) in zip(places, ranges.values(), strict=True):
            copies[one] = PartitionCopy(
                reader,
                opened,
                Source(source.cluster_id, topic, one),
                TopicPartition(into, one),
                begin=begin,
                end=end,
                batch_bytes_max=largest,
                pace=pace,
                budget=budget,
            )
        begun(sum(max(0, ranges[one][1] - begin) for one, begin in places))
        for copy in copies.values():
            copier.start(copy)
        await _watch(copier, lambda: show(rows()), failures)
    finally:
        await copier.stop()
        await reader.close()
        await opened.close()
        if not options.dry_run:
            show(rows())
    return rows()


async def _would_copy(
    source: ClusterEndpoint,
    topic: str,
    ranges: dict[int, tuple[int, int]],
    options: ReplayOptions,
    note: Callable[[str], None],
) -> list[ReplayedRange]:
    """The rows of a dry run."""
    from klog.client import leader_requests

    spans = {TopicPartition(topic, one): span for one, span in ranges.items()}
    answers = await source.cluster.to_leaders(spans, leader_requests.count_messages, wait_for_leader=True)
    rows = []
    for one, (begin, end) in ranges.items():
        found = answers[TopicPartition(topic, one)]
        if isinstance(found, KlogError):
            raise found
        size = (None, None) if found is None else (found.messages, found.bytes)
        rows.append(ReplayedRange(topic, one, begin, end, *size))
    if options.count is not None and sum(row.messages or 0 for row in rows) > options.count:
        note(f"the first {options.count} of them would be copied (-c)")
    return rows


async def _watch(copier: Copier, show: Callable[[], None], failures: dict[int, KlogError]) -> None:
    while copier.is_busy:
        await copier.wait(0.5)
        show()
        if failures:
            return


async def _ranges(
    source: ClusterEndpoint, topic: str, options: ReplayOptions, note: Callable[[str], None]
) -> dict[int, tuple[int, int]]:
    """What is wanted of each partition, as offsets."""
    from klog.client.resolve import bounds, resolve

    cluster = source.cluster
    node = await cluster.topic(topic)
    chosen = list(node.partitions) if options.partitions is None else list(options.partitions)
    missing = [one for one in chosen if one not in node.partitions]
    if missing:
        count = len(node.partitions)
        raise UnknownTopicOrPartition(
            f"topic {topic!r} on {cluster} has {counted(count, 'partition')} (0 to {count - 1}),"
            f" no partition {missing[0]}"
        )
    begin, end = options.range or Range(START, END)
    within = await bounds(cluster, topic, chosen)
    begins = await resolve(cluster, topic, chosen, begin, within)
    ends = await resolve(cluster, topic, chosen, _or_end(end), within)
    _note_moved(topic, begin, within, begins, note)
    return {one: (begins[one], max(begins[one], ends[one])) for one in chosen}


def _note_moved(
    topic: str, begin: Position, within: dict[int, Bounds], begins: dict[int, int], note: Callable[[str], None]
) -> None:
    """Say so where a range begins elsewhere than was asked for: "0 messages" would look as if there were none left."""
    if begin.anchor is Anchor.OFFSET:
        for one, (start, end) in within.items():
            if begins[one] != begin.value:
                note(f"{topic}-{one} has {start} to {end}, not {begin.value}: starting at {begins[one]}")
    elif begin.anchor is Anchor.TIME and all(begins[one] == end for one, (_, end) in within.items()):
        note(f"{topic} has no message at or after the start time")


def _or_end(position: Position | None) -> Position:
    return END if position is None else position


async def _place(
    begun: Target,
    source: ClusterEndpoint,
    topic: str,
    into: str,
    partition: int,
    begin: int,
    end: int,
    options: ReplayOptions,
    note: Callable[[str], None],
) -> tuple[int, int]:
    """The partition, and where to go on in it."""
    from klog.record.provenance_header import Source
    from klog.tools.copying.originals import Originals
    from klog.tools.copying.target import AT_END

    where = TopicPartition(into, partition)
    origin = Source(source.cluster_id, topic, partition)
    log = begun.log(where)
    log.originals[origin] = Originals(source, TopicPartition(topic, partition), keeps_times=begun.is_exact)
    log.floors[origin] = begin
    await begun.find(where, origin, below=AT_END if options.again else None)
    at = min(log.next_of(origin), max(begin, end))
    if at > begin:
        known = f"{where} has {topic}-{partition} up to {at - 1}"
        note(f"{known}: nothing left to copy of {begin} to {end}" if at >= end else f"{known}: continuing from there")
    return partition, at


async def _pace(
    cluster: Cluster, topic: str, ranges: dict[int, tuple[int, int]], options: ReplayOptions
) -> RateLimiter | None:
    from klog.client.resolve import timestamps
    from klog.tools.copying.rate_limiter import AsWritten, AtRate

    if options.rate is not None:
        return AtRate(options.rate)
    if options.speed is None:
        return None
    first = await timestamps(cluster, topic, {one: begin for one, (begin, end) in ranges.items() if begin < end})
    return AsWritten(options.speed, min((time_ms for time_ms in first.values() if time_ms is not None), default=0))


def _row(topic: str, copy: PartitionCopy, error: KlogError | None) -> ReplayedRange:
    return ReplayedRange(
        topic,
        copy.source.partition,
        copy.begin,
        copy.position,
        copy.messages,
        copy.bytes,
        None if error is None else error.code,
        None if error is None else error.message,
    )
