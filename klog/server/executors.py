"""The threads in which a broker waits for disks and for ZooKeeper: one small pool per purpose (rule P1).

Strategy
    Work in a full pool waits only for work of its own purpose: sixty look-ups that read whole segments never delay an
    election. Purposes that touch a disk have one pool per log dir, so that a disk that hangs does not delay another.
    Threads are started on demand, and then wait for more work.

Rules
    * Only asyncio itself uses its own executor (`asyncio.to_thread`), to look up host names.
    * A purpose that serves clients limits waiting work. Beyond the limit the address with the most waiting work is
      refused, not queued. Addresses take turns (`run_in_turn`): a busy one waits only behind its own work.
    * The threads are daemons: a thread that hangs on a dead disk does not keep the process from ending.

Limits
    A thread cannot be interrupted. A caller that no longer wants an answer cancels the wait, and work that has not
    begun never begins; long work must check for cancellation itself.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from queue import SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar

from klog.errors import RequestTimedOut
from klog.net.round_robin import RoundRobin

T = TypeVar("T")
P = ParamSpec("P")


class Purpose(Enum):
    """Of a pool, or of one per log dir where it says so: its name, its threads, and for one that serves clients the
    limit of waiting work."""

    def __init__(self, label: str, threads: int, waiting_max: int | None = None) -> None:
        self.label = label
        self.threads = threads
        self.waiting_max = waiting_max

    ELECTIONS = "elections", 4
    """The controller's and the candidates' reads and writes in ZooKeeper."""
    IN_SYNC = "in-sync", 4
    """Leaders' writes of their in-sync sets, and the leadership transfers they ask for."""
    REPLICAS = "replicas", 4
    """LeaderAndIsr and StopReplica: opening, creating, truncating, repairing, deleting logs. One pool per log dir."""
    FOLLOWERS = "followers", 4
    """Followers' fetches of data that is not in the page cache. One pool per log dir."""
    COLD_READS = "cold-reads", 4
    """Messages that are not in the page cache. One pool per log dir."""
    LOOK_UPS = "look-ups", 2, 1000
    """Look-ups by time or by count, checksums. One pool per log dir."""
    UNPACKING = "unpacking", 2, 10_000
    """Decompression of batches: CPU work."""
    ANSWERS = "answers", 2, 1000
    """Encoding of answers with many elements: CPU work."""
    AUTHENTICATION = "authentication", 2, 1000
    """Stretching clients' passwords: CPU work."""
    UPKEEP = "upkeep", 4
    """Retention, checkpoints, rebuilding of counts. One pool per log dir."""
    GROUPS = "groups", 4
    """Reads about groups in ZooKeeper."""
    SCHEMAS = "schemas", 2
    """The schema registry in ZooKeeper."""
    ACLS = "acls", 1, 1000
    """Clients' changes of ACLs and quotas in ZooKeeper."""
    OTHER = "other", 4
    """Starting, stopping, producer ids."""


class Executors:
    """All pools of a broker. Event loop only."""

    def __init__(self) -> None:
        self._pools: dict[tuple[Purpose, str], _Pool] = {}
        self._is_closed = False

    async def run(self, purpose: Purpose, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run ``work(*arguments)`` in a thread of that purpose that belongs to no disk; returns or raises what it does.

        Work that is cancelled before it begins never begins. Raises RequestTimedOut if too much of that purpose waits.
        """
        return await self.run_in_turn("", "", purpose, work, *arguments, **named)

    async def run_at(
        self, disk: str, purpose: Purpose, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """The same in a thread of that log dir: its path, ``log.log_dir.path``."""
        return await self.run_in_turn("", disk, purpose, work, *arguments, **named)

    async def run_in_turn(
        self, whose: str, disk: str, purpose: Purpose, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """The same for an address, which takes turns with the other addresses that have waiting work.

        ``disk`` "": a thread of the common pool; ``whose`` "": the broker's own work, which takes turns as one owner.
        """
        pool = self._pool(purpose, disk)
        return await asyncio.wrap_future(pool.submit(whose, lambda: work(*arguments, **named)))

    def _pool(self, purpose: Purpose, disk: str) -> _Pool:
        pool = self._pools.get((purpose, disk))
        if pool is None:
            if self._is_closed:
                raise RuntimeError("the broker has stopped")
            name = f"{purpose.label} {disk}".strip()
            pool = self._pools[purpose, disk] = _Pool(name, purpose.threads, purpose.waiting_max)
        return pool

    def close(self) -> None:
        """Cancel work that has not begun; threads end after their current work. Does not wait."""
        self._is_closed = True
        for pool in self._pools.values():
            pool.close()


class _Pool:
    """Threads and their waiting work. ``submit`` and ``close`` belong to the owner thread."""

    def __init__(self, name: str, threads_max: int, waiting_max: int | None) -> None:
        self._name = name
        self._waiting_max = waiting_max
        self._threads_max = threads_max
        self._threads = 0
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._waiting = RoundRobin[_Work]()
        self._told: SimpleQueue[None] = SimpleQueue()
        """At least one entry per waiting piece of work."""
        self._is_closed = False

    def submit(self, whose: str, work: Callable[[], T]) -> Future[T]:
        """Add work. If the pool is full, the owner with the most waiting work loses its last piece."""
        if self._is_closed:
            raise RuntimeError("the broker has stopped")
        future: Future[T] = Future()
        piece, refused = _Work(future, work), None
        with self._lock:
            if self._waiting_max is not None and len(self._waiting) >= self._waiting_max:
                refused = self._waiting.make_room(whose) or piece
            if refused is not piece:
                self._waiting.put(whose, piece)
        if refused is None:
            self._told.put(None)
        elif refused.future.set_running_or_notify_cancel():
            words = f"{self._waiting_max} pieces of work wait for the threads of {self._name!r} already"
            refused.future.set_exception(RequestTimedOut(words))
        if refused is piece:
            return future
        if not self._idle.acquire(blocking=False) and self._threads < self._threads_max:
            self._threads += 1
            threading.Thread(target=self._run, name=f"{self._name} {self._threads}", daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            self._told.get()
            with self._lock:
                work = self._waiting.take()
            if work is None:
                return
            _perform(*work)
            del work  # it may hold much, and the next may be long in coming
            self._idle.release()

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            waiting, self._waiting = list(self._waiting), RoundRobin[_Work]()
        for _ in range(self._threads):
            self._told.put(None)
        for work in waiting:
            work.future.cancel()


class _Work(NamedTuple):
    future: Future[Any]
    work: Callable[[], Any]


def _perform(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
        del future  # else the error's frame would be in a cycle with it
    else:
        future.set_result(result)


def share_the_interpreter() -> None:
    """Shorten the interpreter's switch interval for the flusher's thread.

    A thread that returns from fdatasync waits until the loop releases the interpreter, by default for 5 ms: longer than
    the flush. With half a millisecond, throughput at one message per request rose by a third, and the p99 latency from
    producer to consumer fell.
    """
    sys.setswitchinterval(0.0005)
