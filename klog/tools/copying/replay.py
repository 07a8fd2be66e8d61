"""A range of one topic copied into another, of the same cluster or of another one; once, however often it is begun.

Partitions, keys, headers, times and compression are kept; each message carries where it comes from. A replay that was
interrupted is begun again by the same command: in each partition it goes on behind the last message of the range that
the target has.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.positions import END, START, Anchor, Range
from klog.client.resolve import timestamps
from klog.config.units import Rate
from klog.errors import KlogError, Refused, UsageError
from klog.metrics import Count
from klog.names import TopicPartition
from klog.render.columns import MayFail
from klog.tools.copying.cluster_endpoint import ClusterEndpoint
from klog.tools.copying.copier import Budget, Copier, PartitionCopy
from klog.tools.copying.rate_limiter import AsWritten, AtRate, RateLimiter
from klog.tools.copying.source import SourceReader
from klog.tools.copying.target import AT_END, AT_LEAST_ONCE, Target, TargetLog
from klog.tools.copying.topics import batch_bytes_max, matching_topic
from klog.tools.tail import spans_of

Ranges = dict[TopicPartition, tuple[int, int]]

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
class ReplayedRange(MayFail):
    """What was copied of one partition: offsets [from, to) of the source. ``bytes`` as they lie in the target.

    Of a dry run: what would be copied, with the bytes of the source; None where the source does not count messages.
    """

    topic: str
    partition: int
    from_: int
    to: int
    messages: int | None
    bytes: int | None


async def replay(
    source: ClusterEndpoint,
    target: ClusterEndpoint,
    topic: str,
    into: str,
    options: ReplayOptions,
    *,
    rows: list[ReplayedRange] | None = None,
    count: Count | None = None,
) -> list[ReplayedRange]:
    """Copy; one row per partition. ``rows`` has them while it goes on, and when it is cancelled. ``count`` counts
    messages where only so many are copied, else addresses of the source.

    Raises UsageError for options that exclude each other, Refused where a topic would be copied into itself,
    UnknownTopicOrPartition, InvalidPartitions where the target has too few partitions.
    """
    if options.rate is not None and options.speed is not None:
        raise UsageError("--rate and --speed exclude each other")
    if source.cluster_id == target.cluster_id and topic == into:
        raise Refused(f"{topic} cannot be copied into itself", hint="name another topic")
    ranges = await _ranges(source, topic, options)
    partitions = len((await source.cluster.topic(topic)).partitions)
    with target.named():
        is_there = await matching_topic(target.cluster, into, partitions, note=target.note, dry_run=options.dry_run)
    if not is_there:
        return await _would_copy(source, ranges, options)
    opened = Target(target)
    if not opened.is_exact:
        target.note(AT_LEAST_ONCE.format(target.bootstrap))

    async def found(one: TopicPartition, begin: int, end: int) -> TargetLog:
        """What the target has of a range already."""
        place, below = TopicPartition(into, one.partition), AT_END if options.again else None
        log = await opened.log(place, source, one, floor=begin, below=below)
        if begin < (at := min(log.next_offset, end)):
            left = f"nothing left to copy of {begin} to {end}" if at >= end else "continuing from there"
            target.note(f"{place} has {one} up to {at - 1}: {left}")
        return log

    logs = await asyncio.gather(*(found(one, *span) for one, span in ranges.items()))
    left = {one: (min(log.next_offset, end), end) for log, (one, (_, end)) in zip(logs, ranges.items(), strict=True)}
    if options.dry_run:
        return await _would_copy(source, left, options)
    with target.named():
        largest = await batch_bytes_max(target.cluster, into)
    pace = await _pace(source.cluster, ranges, options)
    budget = Budget(options.count)
    reader, copier = SourceReader(source), Copier()
    shown = [] if rows is None else rows
    count = count or Count()
    count.total = options.count or sum(end - begin for begin, end in left.values())

    def tell() -> None:
        shown[:] = [_row(copy, copier.failures.get(copy)) for copy in copier.copies]
        count.done = sum((row.messages or 0) if options.count else row.to - row.from_ for row in shown)

    try:
        for log, (begin, end) in zip(logs, left.values(), strict=True):
            copier.start(
                PartitionCopy(reader, log, begin=begin, end=end, batch_bytes_max=largest, pace=pace, budget=budget)
            )
        await copier.run(tell, every_s=0.5)
    finally:
        await copier.stop()
        await reader.close()
        tell()
    return shown


async def _would_copy(source: ClusterEndpoint, ranges: Ranges, options: ReplayOptions) -> list[ReplayedRange]:
    """The rows of a dry run."""
    answers = await source.cluster.ask_leaders(ranges, leader_requests.count_messages)
    rows = []
    for one, (begin, end) in ranges.items():
        found = answers[one]
        size = (None, None) if found is None else (found.messages, found.bytes)
        rows.append(ReplayedRange(*one, begin, end, *size))
    if options.count is not None and sum(row.messages or 0 for row in rows) > options.count:
        source.note(f"the first {options.count} of them would be copied (-c)")
    return rows


async def _ranges(source: ClusterEndpoint, topic: str, options: ReplayOptions) -> Ranges:
    begin, end = options.range or Range(START, END)
    spans = await spans_of(source.cluster, [topic], options.partitions, begin, end or END, source.note)
    ranges = {one: (span.begin, max(span.begin, span.end or 0)) for one, span in spans.items()}
    if begin.anchor is Anchor.TIME and all(first == behind for first, behind in ranges.values()):
        # "0 messages" would look as if there were none left.
        source.note(f"{topic} has no message of that time")
    return ranges


async def _pace(cluster: Cluster, ranges: Ranges, options: ReplayOptions) -> RateLimiter | None:
    if options.rate is not None:
        return AtRate(options.rate)
    if options.speed is None:
        return None
    first = await timestamps(cluster, {one: begin for one, (begin, end) in ranges.items() if begin < end})
    return AsWritten(options.speed, min((time_ms for time_ms in first.values() if time_ms is not None), default=0))


def _row(copy: PartitionCopy, error: KlogError | None) -> ReplayedRange:
    place = copy.source.topic, copy.source.partition, copy.begin, copy.position
    return ReplayedRange(*place, copy.messages, copy.bytes).failed_by(error)
