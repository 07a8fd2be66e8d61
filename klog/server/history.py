"""A broker's recent history: one point per minute, for a day, in memory.

Strategy
    Each minute a thread reads the counters and stores their rates since the last point. `klog status --html` asks for
    them (ReadHistory). They begin with the broker, and end with it.

    So do the ends of the logs that it leads, and the commits of its groups (`klog.server.offset_history`,
    ReadLagHistory): only of topics that a client has read, since no other has a group.

Limits
    `POINTS_MAX` points of ten numbers: some 200 KB. `offset_history` has its own.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from typing import Final, NamedTuple

from klog.clock import SYSTEM_CLOCK
from klog.names import TopicPartition
from klog.server.executors import Purpose
from klog.server.groups.commits import GroupPartition
from klog.server.metrics_table import Measured, max_lag, resident_bytes, under_replicated
from klog.server.offset_history import UNKNOWN, OffsetHistory, Snapshot

EVERY_S: Final = 60.0
POINTS_MAX: Final = 24 * 60

RATES: Final = (
    "messages_in",
    "bytes_in",
    "bytes_out",
    "replication_bytes_in",
    "replication_bytes_out",
    "requests",
    "cpu",
)
"""Per second since the last point; ``cpu``: the event loop's seconds."""
LEVELS: Final = ("memory_bytes", "replica_lag_bytes", "under_replicated")
"""At the time of the point."""
NAMES: Final = (*RATES, *LEVELS)


class Point(NamedTuple):
    """The values of `NAMES` in the time up to ``time_ms``."""

    time_ms: int
    values: array[float]


class Reading(NamedTuple):
    """Counters and levels at one moment."""

    at_s: float
    """By a monotonic clock."""
    time_ms: int
    counters: tuple[float, ...]
    levels: tuple[float, ...]


class History:
    """Appended by the event loop, or a test. Read by the event loop."""

    def __init__(self, first: Reading) -> None:
        self._last = first
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)

    def add(self, reading: Reading) -> None:
        """A minute is over."""
        self._points.append(self._point(reading))
        self._last = reading

    def points(self, since_ms: int, now: Reading) -> list[Point]:
        """Points after ``since_ms``, the oldest first; the last one is the current minute."""
        return [one for one in (*self._points, self._point(now)) if one.time_ms > since_ms]

    def _point(self, now: Reading) -> Point:
        seconds = max(now.at_s - self._last.at_s, 0.001)
        rates = [max(0.0, new - old) / seconds for new, old in zip(now.counters, self._last.counters, strict=True)]
        return Point(now.time_ms, array("d", (*rates, *now.levels)))


def read(measured: Measured) -> Reading:
    """The current values. Any thread."""
    measures = measured.runtime.measures
    total = measures.traffic.total()
    return Reading(
        SYSTEM_CLOCK.monotonic_s(),
        SYSTEM_CLOCK.now_ms(),
        (
            total.messages_in,
            total.bytes_in,
            total.bytes_out,
            measures.replication_bytes_in,
            measures.replication_bytes_out,
            sum(one.count for one in list(measures.requests.values())),
            measures.loop.cpu_seconds(),
        ),
        (resident_bytes(), max_lag(measured), under_replicated(measured)),
    )


class HistoryKeeper:
    """Keeps the history of a broker. Event loop only."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._ends = OffsetHistory[TopicPartition](keeps_idle=True)
        self._history: History | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        self._history = History(await self._read())
        while True:
            await asyncio.sleep(EVERY_S)
            self._history.add(await self._read())
            for one in self._offset_histories():
                one.end_minute()

    def lag(self) -> tuple[Snapshot[TopicPartition], Snapshot[GroupPartition]]:
        """The ends of the logs that this broker leads, and the commits of the groups that it coordinates."""
        ends, committed = self._offset_histories()
        return ends.snapshot(), committed.snapshot()

    def _offset_histories(self) -> tuple[OffsetHistory[TopicPartition], OffsetHistory[GroupPartition]]:
        """With the current values."""
        measured, ends = self._measured, self._ends
        led = measured.replicas.partitions
        read = {name for name, numbers in measured.runtime.measures.traffic.topics.items() if numbers.bytes_out}
        for name, partition in led.items():
            if name.topic in read:
                ends.note(name, partition.high_watermark.offset)
        for name in [one for one in ends.known if one not in led]:
            ends.note(name, UNKNOWN)
        measured.groups.note_lost_slots()
        return ends, measured.groups.committed

    def points(self, since_ms: int, now: Reading) -> list[Point]:
        """As `History.points`; none before the broker serves."""
        return [] if self._history is None else self._history.points(since_ms, now)

    async def _read(self) -> Reading:
        return await self._measured.runtime.executors.run(Purpose.OTHER, read, self._measured)
