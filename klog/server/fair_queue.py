"""Work that waits for threads, in turns: an owner with much work delays only itself."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from klog.net.round_robin import RoundRobin

T = TypeVar("T")


class FairQueue(Generic[T]):
    """`RoundRobin` between threads, with a limit. Thread-safe."""

    def __init__(self, waiting_max: int | None = None) -> None:
        self._waiting_max: Final = waiting_max
        self._lock = threading.Lock()
        self._waiting = RoundRobin[T]()
        self._told: SimpleQueue[None] = SimpleQueue()
        """At least one entry per piece, for `take` to wait on."""

    def put(self, whose: str, piece: T) -> T | None:
        """Add a piece; returns the piece that is refused. If full, the owner with the most loses its last one."""
        gone = None
        with self._lock:
            if self._waiting_max is not None and len(self._waiting) >= self._waiting_max:
                gone = self._waiting.make_room(whose)
                if gone is None:
                    return piece
            self._waiting.put(whose, piece)
        if gone is None:
            self._told.put(None)
        return gone

    def take(self) -> T | None:
        """Wait for the piece whose turn it is; None if the queue is closed."""
        self._told.get()
        with self._lock:
            return self._waiting.take()

    def close(self, takers: int) -> list[T]:
        """Remove and return all waiting pieces. ``takers`` calls of `take`, present or later, return None."""
        with self._lock:
            pieces, self._waiting = list(self._waiting), RoundRobin[T]()
        for _ in range(takers):
            self._told.put(None)
        return pieces
