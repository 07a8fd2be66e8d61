"""What waits for threads, where everybody has a turn: whoever brings much waits behind himself."""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue for each ``whose``; they take turns, a piece each, and within one the first comes first.

    Thread-safe. Of each ``whose`` that waits with him, a newcomer has at most one piece in front of him.
    """

    def __init__(self, waiting_max: int | None = None) -> None:
        self._waiting_max: Final = waiting_max
        self._lock = threading.Lock()
        self._queues: dict[str, deque[T]] = {}
        """In the order of their turns; none is empty."""
        self._waiting = 0
        self._told: SimpleQueue[None] = SimpleQueue()
        """At least one entry for each piece: what `take` waits for."""

    def put(self, whose: str, piece: T) -> T | None:
        """The piece that finds no room: where it is full, the last of whoever has most gives way."""
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
        """The piece whose turn it is, waited for; None when it is closed."""
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
        """All that waited. So many who are in `take`, or come there, get nothing."""
        with self._lock:
            pieces = [piece for queue in self._queues.values() for piece in queue]
            self._queues.clear()
            self._waiting = 0
        for _ in range(takers):
            self._told.put(None)
        return pieces
