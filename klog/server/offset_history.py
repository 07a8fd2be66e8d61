"""History of numbers over the last day: log ends, and committed offsets. For the lag of groups.

Strategy
    A leader keeps its log ends, a coordinator the commits of its groups. `klog status --html` asks all brokers
    (ReadLagHistory), and the difference is the lag. Each minute has the numbers that changed in it; an unchanged one
    costs nothing.

Limits of one `OffsetHistory`
    `CURVES_MAX` numbers: further ones are omitted, which the answer tells. `POINTS_MAX` changes of 12 bytes: beyond
    that minutes are merged in pairs, first where a pair is short for its age: the past becomes coarser; if that is not
    enough, the oldest minute is dropped. In all some 3 MB; 7 MB with names of maximum length.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from klog.clock import SYSTEM_CLOCK, Clock

WINDOW_MS: Final = 24 * 3_600_000
CURVES_MAX: Final = 4_000
POINTS_MAX: Final = 100_000
MERGES_A_MINUTE: Final = 2
"""Each takes some milliseconds of the event loop if 4,000 numbers change."""
UNKNOWN: Final = -1
"""This broker does not know the number from here on."""

K = TypeVar("K", bound=Hashable)


class Minute(NamedTuple):
    """Changes by ``time_ms``: numbers of curves, and their values."""

    time_ms: int
    curves: array[int]
    values: array[int]


class CurveStart(NamedTuple, Generic[K]):
    """``base``: the value at the snapshot's beginning."""

    number: int
    key: K
    base: int


class Snapshot(NamedTuple, Generic[K]):
    """From ``begin_ms`` on. ``is_full``: some numbers are omitted."""

    begin_ms: int
    curves: list[CurveStart[K]]
    minutes: list[Minute]
    is_full: bool


class _Curve(Generic[K]):
    __slots__ = ("base", "key", "noted_ms", "number", "points", "value")

    def __init__(self, number: int, key: K) -> None:
        self.number = number
        self.key = key
        self.base = self.value = UNKNOWN
        self.noted_ms = self.points = 0


class OffsetHistory(Generic[K]):
    """Event loop only. ``keeps_idle``: keep a number even without a change within the window."""

    def __init__(self, *, keeps_idle: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._keeps_idle = keeps_idle
        self._clock = clock
        self._curves: dict[K, _Curve[K]] = {}
        self._by_number: dict[int, _Curve[K]] = {}
        self._next = 0
        self._now: dict[K, int] = {}
        """Changes in the current minute."""
        self._minutes: list[Minute] = []
        self._points = 0
        self._begin_ms = clock.now_ms()
        """When the oldest minute began."""
        self._left_out = self._left_out_before = False

    def note(self, key: K, value: int) -> None:
        """Note the number's current value."""
        if key not in self._curves:
            if value == UNKNOWN:
                return
            if len(self._curves) >= CURVES_MAX:
                self._left_out = True
                return
            self._curves[key] = self._by_number[self._next] = _Curve(self._next, key)
            self._next += 1
        self._now[key] = value

    @property
    def known(self) -> Iterable[K]:
        """The numbers that are kept."""
        return self._curves.keys()

    def end_minute(self) -> None:
        """A minute is over."""
        now_ms = self._clock.now_ms()
        minute = self._unfinished(now_ms)
        for key in self._now:
            self._curves[key].noted_ms = now_ms
        self._now.clear()
        self._left_out_before, self._left_out = self._left_out, False
        for number, value in zip(minute.curves, minute.values, strict=True):
            curve = self._by_number[number]
            curve.value = value
            curve.points += 1
        if minute.curves:
            self._minutes.append(minute)
            self._points += len(minute.curves)
        while self._minutes and self._minutes[0].time_ms < now_ms - WINDOW_MS:
            self._drop_oldest()
        self._make_room()
        self._forget(now_ms - WINDOW_MS)

    def snapshot(self) -> Snapshot[K]:
        """All minutes, the oldest first; the last one is the current one. Its parts do not change."""
        return Snapshot(
            self._begin_ms,
            [CurveStart(one.number, one.key, one.base) for one in self._curves.values()],
            [*self._minutes, self._unfinished(self._clock.now_ms())],
            self._left_out or self._left_out_before,
        )

    def _unfinished(self, now_ms: int) -> Minute:
        changed = [
            (curve.number, value) for key, value in self._now.items() if (curve := self._curves[key]).value != value
        ]
        return Minute(now_ms, array("i", [one for one, _ in changed]), array("q", [value for _, value in changed]))

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        for _ in range(MERGES_A_MINUTE):
            if self._points <= POINTS_MAX or len(self._minutes) < 2:
                break
            self._merge(self._shortest_pair())
        while self._points > POINTS_MAX:
            self._drop_oldest()

    def _shortest_pair(self) -> int:
        """The index of the two minutes that together are shortest for their age."""
        times = [one.time_ms for one in self._minutes]
        begins = [self._begin_ms, *times]
        pairs = range(len(times) - 1)
        return min(pairs, key=lambda at: (times[at + 1] - begins[at]) / (times[-1] - begins[at] + 1))

    def _merge(self, at: int) -> None:
        """Merge a minute with the next, keeping the later values."""
        first, second = self._minutes[at : at + 2]
        merged = dict(zip(first.curves, first.values, strict=True))
        for number, value in zip(second.curves, second.values, strict=True):
            if number in merged:
                self._by_number[number].points -= 1
                self._points -= 1
            merged[number] = value
        self._minutes[at : at + 2] = [Minute(second.time_ms, array("i", merged), array("q", merged.values()))]

    def _drop_oldest(self) -> None:
        oldest = self._minutes.pop(0)
        self._begin_ms = oldest.time_ms
        self._points -= len(oldest.curves)
        for number, value in zip(oldest.curves, oldest.values, strict=True):
            curve = self._by_number[number]
            curve.base = value
            curve.points -= 1

    def _forget(self, before_ms: int) -> None:
        for curve in list(self._curves.values()):
            is_idle = not self._keeps_idle and curve.noted_ms < before_ms
            if not curve.points and (curve.value == UNKNOWN or is_idle):
                del self._by_number[curve.number], self._curves[curve.key]
