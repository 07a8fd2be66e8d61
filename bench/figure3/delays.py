"""How long messages were under way: counted by milliseconds, so that millions of them cost little memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

FINE_MS: Final = 10_000
COARSE_MS: Final = 100
"""Delays from `FINE_MS` on are rounded up to this: a chaos of an hour has some ten thousand different ones."""


class Spread(NamedTuple):
    """Delays in ms. ``p50`` and ``p99``: as long as that, or less, were 50 and 99 of 100 messages under way."""

    messages: int
    p50_ms: int
    p99_ms: int
    worst_ms: int


class Delays:
    """Of the messages of one tier. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: Counter[int] = Counter()
        self._recent: Counter[int] = Counter()

    def add(self, delays_ms: Iterable[int]) -> None:
        """Negative ones, of a clock that was set back, count as 0."""
        rounded = [max(0, one) if one < FINE_MS else -(-one // COARSE_MS) * COARSE_MS for one in delays_ms]
        with self._lock:
            self._all.update(rounded)
            self._recent.update(rounded)

    def forget(self) -> None:
        with self._lock:
            self._all, self._recent = Counter(), Counter()

    def all(self) -> Spread | None:
        """None before the first message."""
        with self._lock:
            return spread(self._all)

    def take_recent(self) -> Spread | None:
        """Those since the last call; None where there were none."""
        with self._lock:
            found, self._recent = spread(self._recent), Counter()
        return found


def spread(counts: Counter[int]) -> Spread | None:
    """By nearest rank."""
    total = counts.total()
    if not total:
        return None
    ranks = {name: max(1, -(-total * share // 100)) for name, share in (("p50", 50), ("p99", 99))}
    found: dict[str, int] = {}
    passed = worst = 0
    for delay_ms in sorted(counts):
        passed += counts[delay_ms]
        worst = delay_ms
        for name, rank in ranks.items():
            if passed >= rank:
                found.setdefault(name, delay_ms)
    return Spread(total, found["p50"], found["p99"], worst)
