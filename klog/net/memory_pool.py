"""Memory for unfinished requests, as Kafka's MemoryPool: one bound for all connections (rule P2).

Strategy
    A request that fits into one receive is handled where it lies and costs nothing here. For a larger one the
    connection has a buffer that grows with what has come, and asks here before each growth. Where there is no memory
    the connection is not read: the kernel's buffers fill up, and the peer waits. A quarter is reserved for requests of
    up to `LITTLE_BYTES`, so that a few large ones do not delay many small ones.

Rules
    * One connection at a time may exceed the bound, so that unfinished requests can always be finished.
    * Requests of up to `TINY_BYTES` are always granted: an unfinished head, a small request in two pieces.
    * A broker that has proved the cluster's secret is always granted memory, so that replication and leadership never
      wait for clients. What it holds counts: clients wait for it.
    * A connection that is read must make progress, and waits for memory for a limited time (`Connection.overdue`): a
      request that comes too slowly is dropped with its connection, sooner while others wait.

Bound
    ``bytes_max``, one request of the largest size, `TINY_BYTES` (or one receive) per connection, and one request per
    connection of another broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

TINY_BYTES: Final = 16 * 1024
LITTLE_BYTES: Final = 1024 * 1024
"""The largest request of Kafka's clients by default (max.request.size)."""


class Pace(NamedTuple):
    """Bytes of an unfinished request that must come per time."""

    seconds: float
    bytes: int


PACE = Pace(30.0, 64 * 1024)
"""A slow line brings more; clients time out after as long."""
PACE_FULL = Pace(5.0, 1024 * 1024)
"""The same while others wait for memory."""


class MemoryHolder(Protocol):
    """A connection, as the pool sees it."""

    def memory_freed(self) -> None:
        """Memory is free: ask again."""
        ...


class MemoryPool:
    """See the module. Event loop only."""

    def __init__(self, bytes_max: float, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.bytes = 0
        """Bytes held now."""
        self.is_low = False
        """A connection waits, or little is left: receive `TINY_BYTES` at a time, which are always granted."""
        self.bytes_max = bytes_max
        self._large_bytes_max = bytes_max - bytes_max / 4
        self._held: dict[MemoryHolder, int] = {}
        self._waiting: tuple[dict[MemoryHolder, None], dict[MemoryHolder, None]] = {}, {}
        """Small requests and large ones, each in the order in which they came."""
        self._beyond: MemoryHolder | None = None
        """The connection that may exceed the bound; its bytes do not count."""
        self._call_soon = call_soon
        self._is_looking = False

    @property
    def free_bytes(self) -> float:
        return max(self.bytes_max - self.bytes, 0)

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting[0] or self._waiting[1])

    def try_allocate(self, holder: MemoryHolder, size: int, request_bytes: int, *, is_of_broker: bool = False) -> bool:
        """Whether ``holder`` may hold ``size`` bytes, in total, of a request of ``request_bytes``.

        If not, the pool calls `memory_freed` when it may ask again.
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
        """Add bytes that ``holder`` has received already."""
        before = self._held.get(holder, 0)
        self._holds(holder, before + size, before)

    def _holds(self, holder: MemoryHolder, size: int, before: int) -> None:
        self.bytes += size - before
        self._held[holder] = size
        if self.bytes > self._large_bytes_max:
            self.is_low = True

    def release(self, holder: MemoryHolder) -> None:
        """Free all that ``holder`` holds, and end its wait."""
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
        """Call waiting holders in order, until one is not granted."""
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
