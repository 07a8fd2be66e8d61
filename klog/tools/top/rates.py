"""Rates from counters, and the trend of a number over minutes. Pure: the caller says what time it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

TREND_S: Final = 120.0
TREND_POINTS_MAX: Final = 60


class Rates:
    """How fast counters grow, by their keys."""

    def __init__(self) -> None:
        self._before: dict[Hashable, tuple[float, float]] = {}
        self._now: dict[Hashable, tuple[float, float]] = {}

    def begin(self) -> None:
        """A look begins: counters that the look before did not see are forgotten."""
        self._before, self._now = self._now, {}

    def of(self, key: Hashable, value: float | None, now_s: float, *, beside: Hashable = None) -> float | None:
        """Per second since the look before; None at the first look, and where the counter has restarted.

        ``beside``: a counter of the same source. Where that was seen before and this one was not, this one was 0.
        """
        if value is None:
            return None
        self._now[key] = now_s, value
        before = self._before.get(key)
        if before is None and beside in self._before:
            before = self._before[beside][0], 0.0
        if before is None or value < before[1] or now_s <= before[0]:
            return None
        return (value - before[1]) / (now_s - before[0])


class Trend:
    """How a number has moved in the last `TREND_S`."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=TREND_POINTS_MAX)

    def add(self, value: float, now_s: float) -> None:
        self._points.append((now_s, value))
        while len(self._points) > 2 and self._points[0][0] < now_s - TREND_S:
            self._points.popleft()

    @property
    def per_second(self) -> float | None:
        """None before there are two points."""
        if len(self._points) < 2 or self._points[-1][0] <= self._points[0][0]:
            return None
        (first_s, first), (last_s, last) = self._points[0], self._points[-1]
        return (last - first) / (last_s - first_s)
