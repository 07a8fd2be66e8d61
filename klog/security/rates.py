"""Rates of use, and the time until they are within a limit.

`Rate` is Kafka's: time is divided into windows of a fixed length, and the rate is the count of the last windows over
the time that they cover. So after a silence a client may use at once what the limit allows for all windows but one.
`TokenBucket` is KIP-599's: it fills at the limit, up to what all windows allow, and may be overdrawn.

A client that is silent for all windows is like a new one, so that `Meters` can drop its meter.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

METERS_MAX: Final = 20_000
"""Per kind: some 10 MB. Clients make up their ids; beyond it, the least recently seen are dropped."""
FORGOTTEN_AT_ONCE: Final = 2
"""Silent meters dropped per new one: the table shrinks faster than it grows."""


class Windows(NamedTuple):
    """quota.window.num and quota.window.size.seconds."""

    number: int
    size_s: float

    @property
    def all_s(self) -> float:
        return self.number * self.size_s


class Meter(Protocol):
    """For one thread; ``now_s`` is monotonic."""

    def silent_after_s(self) -> float:
        """The time from which on it is like a new one, if nothing more happens."""


class Rate:
    """The count of the last windows, as a rate."""

    __slots__ = ("_counts", "_total", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._counts: deque[tuple[int, float]] = deque()
        """(number of the window, its count), the oldest first."""
        self._total = 0.0

    def add(self, amount: float, now_s: float) -> None:
        """Count; a negative amount takes back what was counted just now."""
        number = int(now_s / self._windows.size_s)
        counts = self._counts
        if counts and counts[-1][0] >= number:
            number, before = counts.pop()
            amount_there = before + amount
        else:
            amount_there = amount
        counts.append((number, amount_there))
        self._total += amount

    def counted(self, now_s: float) -> float:
        """The count of the last windows."""
        oldest = int(now_s / self._windows.size_s) - self._windows.number + 1
        counts = self._counts
        while counts and counts[0][0] < oldest:
            self._total -= counts.popleft()[1]
        if not counts:
            self._total = 0.0  # remove rounding errors
        return self._total

    def wait_s(self, limit: float, now_s: float) -> float:
        """Seconds until the rate has fallen to the limit; 0.0 while it is below."""
        size_s = self._windows.size_s
        covered_s = max((self._windows.number - 1) * size_s + now_s % size_s, 0.001)
        return max(0.0, self.counted(now_s) / limit - covered_s)

    def allowed_at_once(self, limit: float) -> float:
        """The burst allowed after a silence."""
        return limit * max(self._windows.number - 1, 1) * self._windows.size_s

    def silent_after_s(self) -> float:
        return (self._counts[-1][0] + self._windows.number) * self._windows.size_s if self._counts else 0.0


class TokenBucket:
    """Starts full."""

    __slots__ = ("_filled_s", "_rate", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens: float | None = None
        self._filled_s = 0.0
        self._rate = 1.0

    def take(self, tokens: float, limit: float, now_s: float) -> None:
        """Take tokens; the bucket may be overdrawn."""
        self._tokens = self._fill(limit, now_s) - tokens

    def wait_s(self, limit: float, now_s: float) -> float:
        """Seconds until the bucket is no longer overdrawn."""
        return max(0.0, -self._fill(limit, now_s) / limit)

    def _fill(self, limit: float, now_s: float) -> float:
        burst = limit * self._windows.all_s
        tokens = burst if self._tokens is None else self._tokens + limit * (now_s - self._filled_s)
        self._tokens, self._filled_s, self._rate = min(tokens, burst), now_s, limit
        return self._tokens

    def silent_after_s(self) -> float:
        return self._filled_s + self._windows.all_s - (self._tokens or 0.0) / self._rate


M = TypeVar("M", bound=Meter)
K = TypeVar("K")


class Meters(Generic[K, M]):
    """Meters of recent clients, `METERS_MAX` at most."""

    def __init__(self, make: Callable[[], M], most: int = METERS_MAX) -> None:
        self._make = make
        self._most = most
        self._meters: OrderedDict[K, M] = OrderedDict()
        """The most recently used are at the end."""
        self.cut_short = 0
        """Meters dropped before they had been silent for long enough."""

    def __len__(self) -> int:
        return len(self._meters)

    def of(self, key: K, now_s: float) -> M:
        meters = self._meters
        found = meters.get(key)
        if found is not None:
            meters.move_to_end(key)
            return found
        for _ in range(FORGOTTEN_AT_ONCE):
            if not meters or next(iter(meters.values())).silent_after_s() > now_s:
                break
            meters.popitem(last=False)
        if len(meters) >= self._most:
            meters.popitem(last=False)
            self.cut_short += 1
        made = meters[key] = self._make()
        return made
