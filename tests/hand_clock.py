"""A clock that a test moves itself."""

from __future__ import annotations

import threading
import time


class HandClock:
    """Stands still until `move`. A `sleep` yields for a moment, moves nothing, and is counted."""

    def __init__(self, now_ms: int = 1_771_930_800_000) -> None:
        self._lock = threading.Lock()
        self._now_ms = now_ms
        self._monotonic_s = 1000.0
        self.slept = threading.Semaphore(0)
        """Released at each `sleep`."""

    def now_ms(self) -> int:
        with self._lock:
            return self._now_ms

    def monotonic_s(self) -> float:
        with self._lock:
            return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        self.slept.release()
        time.sleep(0.001)

    def move(self, seconds: float) -> None:
        with self._lock:
            self._now_ms += round(seconds * 1000)
            self._monotonic_s += seconds
