"""The tiers of the audit: each finds out what it holds of some windows, and has it judged."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from klog.admin.settings import setting_of
from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.positions import Anchor, Position
from klog.client.resolve import bounds, resolve
from klog.errors import OffsetOutOfRange, Refused, UnknownTopicOrPartition, UsageError
from klog.names import TopicPartition
from klog.tools.audit.compare import Judgement, State, by_number, by_stamps
from klog.tools.audit.ledger import Ledger
from klog.tools.audit.tally import Tally, Window
from klog.tools.reader import read_ranges

Judged = dict[Window, Judgement]
Offsets = dict[TopicPartition, int]

QUESTIONS_AT_ONCE: Final = 8

OFFSETS, STAMPS, RUN, MANIFESTS = "offsets", "stamps", "run", "manifests"
EXPIRED: Final = Judgement(None, None, None, State.EXPIRED, note="its retention time is over", counted="")
"""Where no run has counted a window while it was there."""


class Tier(ABC):
    """A place where messages are."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self._ledger = ledger

    def known_ms(self, topic: str, now_ms: int) -> int:
        """Up to when it is known what the tier has."""
        return now_ms

    @abstractmethod
    async def judge(self, topic: str, windows: Sequence[Window], now_ms: int) -> Judged | None:
        """Windows of one topic that are over, without those that the tier does not know yet; None where the topic is
        not in this tier."""

    def _by_stamps(self, window: Window, tally: Tally, counted: str = STAMPS) -> Judgement:
        """By what was read of it."""
        produced, found = self._ledger.produced.get(window, {}), tally.windows.get(window, {})
        return replace(by_stamps(produced, found, self._ledger.publishes), counted=counted)


class ClusterTier(Tier):
    """A cluster that can be asked now."""

    def __init__(
        self, name: str, cluster: Cluster, ledger: Ledger, *, exact: bool, note: Callable[[str], None]
    ) -> None:
        super().__init__(name, ledger)
        self._cluster = cluster
        self._exact = exact
        self._note = note

    async def judge(self, topic: str, windows: Sequence[Window], now_ms: int) -> Judged:
        ledger = self._ledger
        kept_since_ms = now_ms - await retention_ms(self._cluster, topic)
        judged: Judged = {}
        there = []
        for window in windows:
            if window.start_ms >= kept_since_ms:
                there.append(window)
            else:
                judged[window] = RunTier(self.name, ledger).found(window) or EXPIRED
        if not there:
            return judged
        try:
            starts = (window.start_ms for window in there)
            counts = {} if self._exact else await count_windows(self._cluster, topic, starts, ledger.window_ms)
        except UnknownTopicOrPartition as error:
            for window in there:
                judged[window] = self._nothing(window, error.message)
            return judged
        to_read = []
        for window in there:
            produced, count = ledger.produced.get(window, {}), counts.get(window.start_ms)
            first_look = None if count is None else by_number(produced, count)
            if first_look is None or first_look.state is not State.OK:
                to_read.append(window)
            else:
                judged[window] = replace(first_look, counted=OFFSETS)
        if to_read:
            judged.update(await self._read(topic, to_read))
        return judged

    async def _read(self, topic: str, windows: Sequence[Window]) -> Judged:
        """Read from the first of these windows on.

        A message lies nowhere before the first one of its time or later. Behind, a window's worth is read first, which
        is longer than messages are under way; only if something is missing then, the rest of the log is looked through.
        """
        width = self._ledger.window_ms
        begin_ms, end_ms = windows[0].start_ms, windows[-1].start_ms + width
        self._note(f"{self.name}: reading the stamps of {topic}: {len(windows)} windows")
        try:
            at = await offsets_at(self._cluster, topic, [begin_ms, end_ms + width])
            within = await bounds(self._cluster, (await self._cluster.topic(topic)).names())
        except UnknownTopicOrPartition as error:
            return {window: self._nothing(window, error.message) for window in windows}
        ends = {one: found.end for one, found in within.items()}
        begins, middle = at[begin_ms], at[end_ms + width]
        tally = Tally(width)
        await self._tally(tally, begins, middle)
        judged = {window: self._by_stamps(window, tally) for window in windows}
        if any(found.missing for found in judged.values()) and middle != ends:
            await self._tally(tally, middle, ends)
            judged = {window: self._by_stamps(window, tally) for window in windows}
        return judged

    async def _tally(self, tally: Tally, begins: Offsets, ends: Offsets) -> None:
        ranges = {one: (begin, ends[one]) for one, begin in begins.items()}
        await read_ranges(
            self._cluster,
            ranges,
            lambda message: tally.add(message.topic(), message.timestamp()[1], message.headers()),
        )

    def _nothing(self, window: Window, why: str) -> Judgement:
        """The topic is not there, so everything is missing."""
        return replace(self._by_stamps(window, Tally(self._ledger.window_ms)), note=why)


class RunTier(Tier):
    """What `klog audit run` has counted of a tier, and published."""

    def known_ms(self, topic: str, now_ms: int) -> int:
        counted = self._ledger.counted.get((self.name, topic))
        return counted.counted_ms if counted is not None else 0

    async def judge(self, topic: str, windows: Sequence[Window], now_ms: int) -> Judged:
        found = {window: self.found(window) for window in windows}
        return {window: one for window, one in found.items() if one is not None}

    def found(self, window: Window) -> Judgement | None:
        """None where no run has been there after the window's end."""
        counted = self._ledger.counted.get((self.name, window.topic))
        if counted is None or counted.counted_ms < window.start_ms + self._ledger.window_ms:
            return None
        return self._by_stamps(window, counted.tally, RUN)


class ExportTier(Tier):
    """An export's folder: its manifests count messages by topic and window of their timestamps."""

    def __init__(self, name: str, root: str, source: Cluster, ledger: Ledger) -> None:
        """``source``: the cluster that is exported."""
        super().__init__(name, ledger)
        self._root = root
        self._source = source
        self._read: Exported | None = None

    async def judge(self, topic: str, windows: Sequence[Window], now_ms: int) -> Judged | None:
        if self._read is None:
            self._read = await asyncio.to_thread(read_export, self._root, self._ledger.window_ms)
            there, here = self._read.cluster_id, (await self._source.metadata([])).cluster_id
            if there is not None and here is not None and there != here:
                raise Refused(f"{self._root} was exported from cluster {there}; this one is {here}")
        export = self._read
        if topic not in export.topics:
            return None
        if not windows:
            return {}
        starts = (one.start_ms for one in windows)
        times = [time_ms for start_ms in starts for time_ms in (start_ms, start_ms + self._ledger.window_ms)]
        offsets = await offsets_at(self._source, topic, times)
        judged: Judged = {}
        for window in windows:
            begins, ends = offsets[window.start_ms], offsets[window.start_ms + self._ledger.window_ms]
            counted = export.counts.get(window)
            if any(begin < min(export.began.get(one, 0), ends[one]) for one, begin in begins.items()):
                found = Judgement(counted, None, None, State.EARLIER, note="the export begins after messages of it")
            elif all(export.upto.get(one, -1) >= end for one, end in ends.items()):
                found = by_number(self._ledger.produced.get(window, {}), counted or 0)
            else:
                found = Judgement(counted, None, None, State.OPEN, note="not yet exported up to here")
            judged[window] = replace(found, counted=MANIFESTS)
        return judged


class Exported(NamedTuple):
    """What manifests say. ``began`` and ``upto``: the offsets that each partition was exported from, and up to."""

    cluster_id: str | None
    topics: frozenset[str]
    counts: dict[Window, int]
    began: Offsets
    upto: Offsets


def read_export(root: str, window_ms: int) -> Exported:
    """Messages of an export by window, and where each partition of it begins and ends.

    UsageError where windows of that length are not made of the manifests'; errors of `ExportRoot`.
    """
    from klog.export.manifest import WINDOW_MS  # formats and stores: for this tier alone
    from klog.export.root import ExportRoot

    if window_ms % WINDOW_MS:
        raise UsageError(
            f"an export counts windows of {WINDOW_MS // 60_000} min; {window_ms} ms is not a multiple of that",
            hint="--window 10m",
        )
    counts: dict[Window, int] = {}
    exported: Offsets = {}
    place = ExportRoot(root)
    known = place.existing_identity()
    for manifest, _ in place.settled(lambda: list(place.chain())):
        exported.update({one: part.to_offset for one, part in manifest.partitions.items()})
        for (topic, start_ms), messages in manifest.windows.items():
            window = Window(topic, start_ms - start_ms % window_ms)
            counts[window] = counts.get(window, 0) + messages
    return Exported(known.cluster_id, frozenset(known.topic_ids), counts, known.initial, exported)


async def offsets_at(cluster: Cluster, topic: str, times_ms: Iterable[int]) -> dict[int, Offsets]:
    """For each time the offset of every partition's first message at or after it, its end where there is none.

    UnknownTopicOrPartition where the topic is not there; the first error of a leader is raised.
    """
    within = await bounds(cluster, (await cluster.topic(topic)).names())  # first: what comes later is not counted
    limit = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def ask(when: int) -> Offsets:
        async with limit:
            return await resolve(cluster, dict.fromkeys(within, Position(Anchor.TIME, when)), within)

    times = sorted(set(times_ms))
    return dict(zip(times, await asyncio.gather(*map(ask, times)), strict=True))


async def count_windows(
    cluster: Cluster, topic: str, starts_ms: Iterable[int], window_ms: int
) -> dict[int, int | None]:
    """Messages of each window by its brokers' word, by its start; None where one does not know.

    A window's messages are taken to lie between the first message of its time and the first one of the next window's.
    Where several producers write to a partition, or one is late, some are counted in the neighbouring window. So this
    is a first look: what it finds equal is equal in number, and what it finds to differ is for reading to judge.
    """
    starts = sorted(set(starts_ms))
    offsets = await offsets_at(cluster, topic, [*starts, *(start + window_ms for start in starts)])
    limit = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def count(start_ms: int) -> int | None:
        ends = offsets[start_ms + window_ms]
        spans = {one: (begin, ends[one]) for one, begin in offsets[start_ms].items() if begin < ends[one]}
        try:
            async with limit:
                counts = (await cluster.ask_leaders(spans, leader_requests.count_messages)).values()
        except OffsetOutOfRange:
            return None  # retention has come between the two questions
        messages = [None if one is None else one.messages for one in counts]
        return None if None in messages else sum(filter(None, messages))

    return dict(zip(starts, await asyncio.gather(*map(count, starts)), strict=True))


async def retention_ms(cluster: Cluster, topic: str) -> int:
    """How long the topic keeps messages; very long where it does so for ever, or no broker answers."""
    forever = 2**62
    try:
        value = await setting_of(cluster, topic, "retention.ms")
    except UnknownTopicOrPartition:
        return forever
    return forever if value is None or int(value) < 0 else int(value)
