"""Memory for requests that have come in part, as Kafka's MemoryPool: bounded for all connections together (rule P2).

Strategy
    A request that fits into one receive is handed on where it lies and costs nothing here. Of a larger one the
    connection holds what has come, in a buffer that grows with it, and asks here before each growth. Where there is no
    room it is not read from until there is: the kernel's buffers fill up, and the peer waits. A quarter of the room is
    for requests of `LITTLE_BYTES` at most, so that a few large ones do not keep the many small ones waiting.

Rules
    * One connection at a time may grow beyond the bound, so that unfinished requests can always be finished.
    * What is tiny (`TINY_BYTES`) always has room: an unfinished head, a small request in two pieces.
    * A broker that has shown the cluster's secret always has room, so that no leadership or replica waits for clients.
      What it holds counts all the same: clients wait for it.
    * A connection that is read from must make progress, and waits for room for a limited time
      (`Connection.overdue`): a request that comes too slowly is given up with its connection, sooner while others wait
      for room.

Bound
    ``bytes_max``, one request of the largest size, `TINY_BYTES` (or one receive) for each connection, and one request
    for each connection of another broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

TINY_BYTES: Final = 16 * 1024
LITTLE_BYTES: Final = 1024 * 1024
"""Kafka's clients send produce requests of a megabyte at most unless told otherwise."""


class Pace(NamedTuple):
    """How much of an unfinished request must come in how long."""

    seconds: float
    bytes: int


PACE = Pace(30.0, 64 * 1024)
"""What must come of an unfinished request. A slow line brings more; a client gives up on an answer after as long."""
PACE_FULL = Pace(5.0, 1024 * 1024)
"""The same while others wait for the room that it takes."""


class MemoryHolder(Protocol):
    """A connection, as this module needs it."""

    def memory_freed(self) -> None:
        """Ask again."""
        ...


class MemoryPool:
    """See the module. Event loop only."""

    def __init__(self, bytes_max: float, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.bytes = 0
        """Held just now."""
        self.is_low = False
        """A connection waits, or little room is left: each read takes at most what always has room."""
        self.bytes_max = bytes_max
        self._large_bytes_max = bytes_max - bytes_max / 4
        self._held: dict[MemoryHolder, int] = {}
        self._waiting: tuple[dict[MemoryHolder, None], dict[MemoryHolder, None]] = {}, {}
        """Those with little requests and the others, in the order they came."""
        self._beyond: MemoryHolder | None = None
        """Who may grow beyond the bound, and takes nothing of what is within."""
        self._call_soon = call_soon
        self._is_looking = False

    @property
    def free_bytes(self) -> float:
        return max(self.bytes_max - self.bytes, 0)

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting[0] or self._waiting[1])

    def try_allocate(self, holder: MemoryHolder, size: int, request_bytes: int, *, is_of_broker: bool = False) -> bool:
        """Whether ``holder`` may hold ``size`` bytes of a request of ``request_bytes``, in place of what it holds.

        If not, ``holder`` is called when it may ask again.
        """
        before = self._held.get(holder, 0)
        is_little = request_bytes <= LITTLE_BYTES
        bound = self.bytes_max if is_little else self._large_bytes_max
        beyond = self._beyond
        others = self.bytes - before - (0 if beyond is None or beyond is holder else self._held.get(beyond, 0))
        if size > max(before, TINY_BYTES) and others + size > bound and not is_of_broker:
            if beyond not in (None, holder):
                self._waiting[not is_little][holder] = None
                self.is_low = True
                return False
            self._beyond = holder
        self._holds(holder, size, before)
        return True

    def held(self, holder: MemoryHolder) -> int:
        return self._held.get(holder, 0)

    def charge(self, holder: MemoryHolder, size: int) -> None:
        """``holder`` holds so much more, since it has been received already."""
        before = self._held.get(holder, 0)
        self._holds(holder, before + size, before)

    def _holds(self, holder: MemoryHolder, size: int, before: int) -> None:
        self.bytes += size - before
        self._held[holder] = size
        if self.bytes > self._large_bytes_max:
            self.is_low = True

    def release(self, holder: MemoryHolder) -> None:
        """The connection holds nothing and waits for nothing from now on."""
        held = self._held.pop(holder, None)
        if held is not None:
            self.bytes -= held
        if self._beyond is holder:
            self._beyond = None
        if self.is_low:
            for waiting in self._waiting:
                waiting.pop(holder, None)
            if self.is_waited_for:
                if not self._is_looking:
                    self._is_looking = True
                    self._call_soon(self._look)
            elif self.bytes <= self._large_bytes_max:
                self.is_low = False

    def _look(self) -> None:
        """Have those ask again who may find room: in their order, until one does not."""
        self._is_looking = False
        for waiting in self._waiting:
            asking = list(waiting)
            waiting.clear()
            for index, holder in enumerate(asking):
                holder.memory_freed()
                if holder in waiting:
                    waiting.update(dict.fromkeys(asking[index + 1 :]))
                    break
        if not self.is_waited_for and self.bytes <= self._large_bytes_max:
            self.is_low = False
