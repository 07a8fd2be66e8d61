"""Limits on events and log lines that clients can cause."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

WINDOW_S: Final = 60.0
EVENTS_A_MINUTE: Final = 60
"""Per kind and broker."""
SAME_EVERY_S: Final = 60.0
REMEMBERED_MAX: Final = 10_000

K = TypeVar("K", bound=Hashable)


class EventLimit:
    """A limit per `WINDOW_S`."""

    def __init__(self, times_max: int) -> None:
        self._times: deque[float] = deque(maxlen=times_max)
        self._max = times_max

    def allows(self, now_s: float) -> bool:
        """Whether one more is allowed now; counts it."""
        if len(self._times) == self._max and now_s - self._times[0] < WINDOW_S:
            return False
        self._times.append(now_s)
        return True


@dataclass(slots=True)
class _Same:
    """``untold``: number since the last event."""

    told_s: float
    untold: int = 0


class Repeats(Generic[K]):
    """One event for many of the same, and few of all together. Event loop only."""

    def __init__(self) -> None:
        self._limit = EventLimit(EVENTS_A_MINUTE)
        self._same: dict[K, _Same] = {}
        self._unsaid = 0
        """Events suppressed by the limit."""

    def count(self, key: K, now_s: float) -> dict[str, int] | None:
        """Count an occurrence. None: no event; else the numbers since the last: ``same_before`` of the same key,
        ``others_before`` of all, each only if not 0."""
        same = self._same.get(key)
        if same is not None and now_s - same.told_s < SAME_EVERY_S:
            same.untold += 1
            return None
        if not self._limit.allows(now_s):
            self._unsaid += 1
            return None
        if same is None and len(self._same) >= REMEMBERED_MAX:
            self._same.clear()
        before: dict[str, int] = {}
        if same is not None and same.untold:
            before["same_before"] = same.untold
        self._same[key] = _Same(now_s)
        if self._unsaid:
            before["others_before"], self._unsaid = self._unsaid, 0
        return before
