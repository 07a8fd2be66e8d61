"""The interpreter's collector of cycles, run by the clock.

What a request makes is freed by its count, and no request leaves a cycle (tests/server/test_memory.py). What is left to
the collector comes from libraries, and from what lives long and ends: connections, partitions, sessions. By its own
thresholds the interpreter looked for it at each step, which took a seventh of the loop's time at one message a request;
with thresholds that cost nothing it never came to its oldest generation, and what had got there stayed for ever.

So all that a start has made is put aside, and the rest is looked at whole every `EVERY_S`. That holds the loop for some
100 ns an object: 2 to 6 ms in a broker of 300 partitions and 200 groups. Where it takes longer than `HOLDS_MAX_S`, as
after thousands of partitions were made, what lives is put aside as well, so that the next time costs what is new. What
ends among that waits until as much again has gathered, and everything is looked at once more.
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
"""How many times as long as one took the next waits: no more than a five-hundredth of the loop's time goes into it."""
MORE = 2
"""Times as many objects put aside as when all were looked at last: then all are, once more."""


class Collector:
    """Event loop only; one a process."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._aside = 0
        """How many objects were put aside when all had been looked at."""
        self._all_is_due = True

    def start(self) -> None:
        """When all is there that will stay as long as the process."""
        gc.set_threshold(50_000, 20, 1_000)
        self.collect()
        self._later(EVERY_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def collect(self) -> float:
        """Look at what is not put aside, or at everything where that is due; how many seconds it held the loop."""
        began_s = time.perf_counter()
        if self._all_is_due:
            gc.unfreeze()
        gc.collect()
        took_s = time.perf_counter() - began_s
        if self._all_is_due:
            gc.freeze()
            self._aside = gc.get_freeze_count()
            self._all_is_due = False
        elif took_s > HOLDS_MAX_S:
            log.debug("looking for cycles took %.0f ms: what lives is put aside", took_s * 1000)
            gc.freeze()
            self._all_is_due = gc.get_freeze_count() > MORE * self._aside
        return took_s

    def _later(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._run)

    def _run(self) -> None:
        self._later(max(EVERY_S, PAUSES * self.collect()))
