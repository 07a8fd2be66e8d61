"""What measuring has in common: the time it takes, its threads, and 0.8's way to write times.

`klog.tools.perf.produce`, `consume` and `latency` measure; librdkafka sends and reads for them, in as many
threads as are asked for, each with a client of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
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
