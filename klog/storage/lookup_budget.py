"""The cost limit of a look-up: bytes, seconds, and only while its client waits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import RequestTimedOut


class LookupBudget:
    """Spent by a look-up as it walks through a log, batch by batch. For one thread, which also calls ``is_wanted``."""

    def __init__(
        self,
        *,
        seconds: float = math.inf,
        bytes_max: float = math.inf,
        is_wanted: Callable[[], bool] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """``seconds`` run from the first ``spend``, so waiting for a thread costs none. ``is_wanted``: whether the
        client still waits."""
        self._clock = clock
        self._seconds = seconds
        self._bytes_max = self._bytes_left = bytes_max
        self._is_wanted = is_wanted
        self._until_s: float | None = None

    def spend(self, size: int = 0) -> None:
        """Count ``size`` bytes as read or walked over. Raises RequestTimedOut when the budget is used up.

        The segment's index keeps what was walked, so that a repeated look-up begins further on.
        """
        now_s = self._clock.monotonic_s()
        if self._until_s is None:
            self._until_s = now_s + self._seconds
        self._bytes_left -= size
        if self._is_wanted is not None and not self._is_wanted():
            raise RequestTimedOut("a look-up was given up: the client has disconnected")
        if self._bytes_left < 0:
            raise RequestTimedOut(f"a look-up was given up: it has read {self._bytes_max:.0f} bytes")
        if now_s > self._until_s:
            raise RequestTimedOut(f"a look-up was given up after {self._seconds:g} s")


UNLIMITED: Final = LookupBudget()
"""For tools that read their own files."""
