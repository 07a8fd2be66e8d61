"""How far a look-up may go: so many bytes, so many seconds, and only while somebody waits for what it finds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from klog.errors import RequestTimedOut


class Patience:
    """Spent by whoever walks through a log, batch by batch. One thread's; ``is_wanted`` is asked there too."""

    def __init__(
        self,
        *,
        seconds: float = math.inf,
        bytes_max: float = math.inf,
        is_wanted: Callable[[], bool] | None = None,
    ) -> None:
        """The seconds begin with the first ``spend``, so that waiting for a thread costs none."""
        self._seconds = seconds
        self._bytes_max = self._bytes_left = bytes_max
        self._is_wanted = is_wanted
        self._until_s: float | None = None

    def spend(self, size: int = 0) -> None:
        """Note so many bytes read or walked over; RequestTimedOut where that is enough.

        What was walked is remembered in the segment's index, so that whoever asks again begins further on.
        """
        now_s = time.monotonic()
        if self._until_s is None:
            self._until_s = now_s + self._seconds
        self._bytes_left -= size
        if self._is_wanted is not None and not self._is_wanted():
            raise RequestTimedOut("a look-up was given up: the client has disconnected")
        if self._bytes_left < 0:
            raise RequestTimedOut(f"a look-up was given up: it has read {self._bytes_max:.0f} bytes")
        if now_s > self._until_s:
            raise RequestTimedOut(f"a look-up was given up after {self._seconds:g} s")


ENDLESS: Final = Patience()
"""For those who ask their own files."""
