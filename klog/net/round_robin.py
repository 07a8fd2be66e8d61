"""Round robin over queues, one per owner: a busy owner waits only behind its own pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """First in, first out per owner; a new owner waits for at most one piece of each other. Not thread-safe."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}
        """In the order of turns; empty queues are removed."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, owner: str) -> bool:
        return owner in self._queues

    def __iter__(self) -> Iterator[T]:
        """All pieces, owner by owner."""
        for queue in self._queues.values():
            yield from queue

    def put(self, owner: str, piece: T) -> None:
        queue = self._queues.get(owner)
        if queue is None:
            queue = self._queues[owner] = deque()
        queue.append(piece)
        self._count += 1

    def take(self, may: Callable[[str], bool] | None = None) -> T | None:
        """Remove and return the next piece of an owner for which ``may`` is true; None if there is none."""
        owner = next(iter(self._queues), None) if may is None else next(filter(may, self._queues), None)
        if owner is None:
            return None
        queue = self._queues.pop(owner)
        piece = queue.popleft()
        self._count -= 1
        if queue:
            self._queues[owner] = queue  # behind all others
        return piece

    def make_room(self, owner: str) -> T | None:
        """Remove the last piece of the owner with most, for a new one of ``owner``; None if ``owner`` would then have
        as many."""
        longest: deque[T] = max(self._queues.values(), key=len, default=deque())
        if len(longest) <= len(self._queues.get(owner, ())) + 1:
            return None
        self._count -= 1
        return longest.pop()
