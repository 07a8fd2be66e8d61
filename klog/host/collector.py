"""The interpreter's garbage collector for reference cycles, run by the clock.

Reference counts free the objects of a request, and no request leaves a cycle (tests/server/test_memory.py). Cycles come
from libraries, and from long-lived objects that end: connections, partitions, sessions. With its default thresholds the
collector ran at each step, which took a seventh of the loop's time at one message per request. With thresholds that
cost nothing it never collected its oldest generation, and garbage there stayed forever.

A start makes objects that stay, with tens of thousands of partitions millions of them. The default thresholds walked
them again and again, which took a quarter of a start; to walk them once took a fifteenth, and found nothing.

So the broker freezes all objects that exist after its start as they are, and collects the rest every `EVERY_S`. That
holds the loop for some 100 ns per object: 2 to 6 ms in a broker of 300 partitions and 200 groups. If it takes longer
than `HOLDS_MAX_S`, as after the creation of thousands of partitions, the broker freezes the surviving objects too, so
that the next collection costs only the new ones. Frozen garbage waits until as many objects again have been frozen;
then everything is collected once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time

log = logging.getLogger(__name__)

EVERY_S = 20.0
HOLDS_MAX_S = 0.05
PAUSES = 500
"""The pause after a collection, as a multiple of its duration: it takes a five-hundredth of the loop's time at most."""
MORE = 2
"""The growth of the frozen objects, as a factor since the last full collection, at which the next one is due."""


_STARTING = 1_000_000, 20, 1_000
_RUNNING = 50_000, 20, 1_000
"""Thresholds. A start that has to wait makes garbage too, so it is not without any."""


class Collector:
    """Event loop only; one a process."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._aside = 0
        """The number of frozen objects after the start, or after the last full collection."""
        self._all_is_due = True
        gc.set_threshold(*_STARTING)

    def start(self) -> None:
        """Begin, when all objects exist that live as long as the process."""
        self._set_aside()
        gc.set_threshold(*_RUNNING)
        self._later(EVERY_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def collect(self) -> float:
        """Collect the objects that are not frozen, or all where that is due; returns the seconds it held the loop."""
        began_s = time.perf_counter()
        if self._all_is_due:
            gc.unfreeze()
        gc.collect()
        took_s = time.perf_counter() - began_s
        if self._all_is_due:
            self._set_aside()
        elif took_s > HOLDS_MAX_S:
            log.debug("garbage collection took %.0f ms: the surviving objects are frozen", took_s * 1000)
            gc.freeze()
            self._all_is_due = gc.get_freeze_count() > MORE * self._aside
        return took_s

    def _set_aside(self) -> None:
        gc.freeze()
        self._aside = gc.get_freeze_count()
        self._all_is_due = False

    def _later(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._run)

    def _run(self) -> None:
        self._later(max(EVERY_S, PAUSES * self.collect()))
