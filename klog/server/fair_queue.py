"""Work that waits for threads, with turns: an owner with much work delays only itself."""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """One queue per owner (``whose``). The queues take turns, one piece each; each queue is first in, first out.

    Thread-safe. A new owner waits for at most one piece of each other owner.
    """

    def __init__(self, waiting_max: int | None = None) -> None:
        self._waiting_max: Final = waiting_max
        self._lock = threading.Lock()
        self._queues: dict[str, deque[T]] = {}
        """In the order of their turns; an empty queue is removed."""
        self._waiting = 0
        self._told: SimpleQueue[None] = SimpleQueue()
        """At least one entry for each piece: what `take` waits for."""

    def put(self, whose: str, piece: T) -> T | None:
        """Add a piece; returns the piece that finds no room. When full, the owner with the most loses its last one."""
        with self._lock:
            gone = None
            if self._waiting_max is not None and self._waiting >= self._waiting_max:
                longest: deque[T] = max(self._queues.values(), key=len, default=deque())
                if len(longest) <= len(self._queues.get(whose, ())) + 1:
                    return piece
                gone = longest.pop()
                self._waiting -= 1
            queue = self._queues.get(whose)
            if queue is None:
                queue = self._queues[whose] = deque()
            queue.append(piece)
            self._waiting += 1
        if gone is None:
            self._told.put(None)
        return gone

    def take(self) -> T | None:
        """Wait for the piece whose turn it is; None when the queue is closed."""
        self._told.get()
        with self._lock:
            if not self._queues:
                return None
            whose = next(iter(self._queues))
            queue = self._queues.pop(whose)
            piece = queue.popleft()
            self._waiting -= 1
            if queue:
                self._queues[whose] = queue  # behind all others
            return piece

    def close(self, takers: int) -> list[T]:
        """Remove and return all waiting pieces. ``takers`` calls of `take`, present or later, return None."""
        with self._lock:
            pieces = [piece for queue in self._queues.values() for piece in queue]
            self._queues.clear()
            self._waiting = 0
        for _ in range(takers):
            self._told.put(None)
        return pieces
