"""Queues that take turns: one for each owner, one piece each. Who asks for much waits for himself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """First in, first out within an owner; a new owner waits for at most one piece of each other. Not thread-safe."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}
        """In the order of their turns; an empty queue is removed."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, owner: str) -> bool:
        return owner in self._queues

    def __iter__(self) -> Iterator[T]:
        """What waits, owner by owner."""
        for queue in self._queues.values():
            yield from queue

    def put(self, owner: str, piece: T) -> None:
        queue = self._queues.get(owner)
        if queue is None:
            queue = self._queues[owner] = deque()
        queue.append(piece)
        self._count += 1

    def take(self, may: Callable[[str], bool] | None = None) -> T | None:
        """The next piece, of an owner that ``may`` have one taken; None where there is none."""
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
        """Remove the last piece of the owner with the most, for one more of ``owner``; None where that would have as
        many then, and must give way itself."""
        longest: deque[T] = max(self._queues.values(), key=len, default=deque())
        if len(longest) <= len(self._queues.get(owner, ())) + 1:
            return None
        self._count -= 1
        return longest.pop()
