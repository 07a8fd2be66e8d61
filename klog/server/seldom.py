"""A limit on how often something is logged that any client can cause."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 60.0


class Seldom:
    """At most so many in `WINDOW_S`."""

    def __init__(self, times_max: int) -> None:
        self._times: deque[float] = deque(maxlen=times_max)
        self._max = times_max

    def may(self, now_s: float) -> bool:
        """Whether it may happen now; then it counts."""
        if len(self._times) == self._max and now_s - self._times[0] < WINDOW_S:
            return False
        self._times.append(now_s)
        return True
