"""The clock that code which waits or writes dates is given. Tests give one that they move themselves."""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """Thread-safe."""

    def now_ms(self) -> int:
        """The wall clock: milliseconds since 1970. It may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start. Never goes back; may stand still while the machine is suspended."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's. Streams read it for every message, so it adds no call of Python's own to the system's."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


SYSTEM_CLOCK: Final = SystemClock()
