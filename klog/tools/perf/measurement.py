"""What measuring has in common: times, the threads it takes, and 0.8's way to write times.

`klog.tools.perf.produce`, `consume` and `latency` measure; librdkafka sends and reads for them, in as many
threads as are asked for, each with a client of its own.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

R = TypeVar("R")

GRACE_S = 0.4
"""After an interruption: how long to wait for what is under way."""

MIB = 1024 * 1024


class Clock:
    """From the beginning of a measurement to its end."""

    def __init__(self) -> None:
        self.start_time = datetime.now(UTC)
        self._began = time.perf_counter()
        self._last: float | None = None

    def lap(self) -> None:
        """Something was measured: where this is called, time ends with the last call and not with tidying up."""
        self._last = time.perf_counter()

    def stop(self) -> tuple[datetime, float]:
        """The time, and the seconds since the beginning, never 0."""
        ended = self._last or time.perf_counter()
        return self.start_time + timedelta(seconds=ended - self._began), max(ended - self._began, 1e-6)


FINE_US = 10_000
COARSE_US = 100
"""Below 10 ms to the microsecond, above it to a tenth of a millisecond: never more than one part in a hundred off."""


class Latencies:
    """How long things took, as a histogram: any number takes bounded memory. One thread adds."""

    def __init__(self, *parts: Latencies) -> None:
        """With what several have counted."""
        self._counts: Counter[int] = Counter()
        for part in parts:
            self._counts.update(part._counts)
        self._sum_us: int = sum(part._sum_us for part in parts)
        self._largest_us: int = max((part._largest_us for part in parts), default=0)
        self.count: int = sum(part.count for part in parts)

    def add(self, seconds: float) -> None:
        us = int(seconds * 1_000_000)
        self._sum_us += us
        self.count += 1
        if us > self._largest_us:
            self._largest_us = us
        self._counts[us if us < FINE_US else us - us % COARSE_US] += 1

    @property
    def average_ms(self) -> float | None:
        return round(self._sum_us / self.count / 1000, 3) if self.count else None

    @property
    def largest_ms(self) -> float | None:
        return self._largest_us / 1000 if self.count else None

    def percentile_ms(self, percent: float) -> float | None:
        """The smallest time that at least ``percent`` of them did not exceed; None where there are none."""
        wanted, seen = max(math.ceil(self.count * percent / 100), 1), 0
        for bucket, count in sorted(self._counts.items()):
            seen += count
            if seen >= wanted:
                return bucket / 1000
        return None


@dataclass(frozen=True, slots=True)
class Measurement(Generic[R]):
    """What is to be measured: ``work`` of each thread, what ends it, the messages so far, and the figures so far."""

    work: Sequence[Callable[[], Any]]
    stop: threading.Event
    count: Callable[[], int]
    row: Callable[[], R]

    async def run(self) -> R:
        """The row when the last thread has ended, or has failed. Where this is cancelled the figures stand soon."""
        if not self.work:
            return self.row()
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(len(self.work), "klog-perf")
        running = [loop.run_in_executor(pool, one) for one in self.work]
        try:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
            for one in done:
                one.result()
        finally:
            self.stop.set()
            await asyncio.wait(running, timeout=GRACE_S)
            pool.shutdown(wait=False)
        return self.row()


def csv_time(moment: datetime) -> str:
    """As 0.8 writes it: ``2026-02-01 10:00:00:123``."""
    return f"{moment:%Y-%m-%d %H:%M:%S}:{moment.microsecond // 1000:03d}"
