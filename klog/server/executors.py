"""The threads in which a broker waits for disks and for ZooKeeper: for each purpose its own, and few (rule P1).

Strategy
    What waits in a full pool waits for its own kind alone: sixty look-ups that read whole segments never stand before
    an election. Purposes that touch a disk have a pool for each log dir, so that a disk that hangs holds up nothing of
    another. Threads are made when they are needed, and wait for more.

Rules
    * Nothing in the broker uses asyncio's own executor (`asyncio.to_thread`) but asyncio, which looks up host names
      in it.
    * A purpose whose callers are strangers has a bound on what may wait; beyond it whoever has most there is refused,
      not queued. The addresses that they call from take turns (`run_in_turn`): one that sends much waits behind itself.
    * The threads are daemons: one that hangs in a dead disk keeps no process from ending.

Limits
    A thread cannot be interrupted. Who no longer wants an answer cancels the wait, and what has not begun never does;
    long work has to look for a sign by itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from klog.errors import RequestTimedOut
from klog.server.fair_queue import FairQueue

P = ParamSpec("P")
T = TypeVar("T")


class Purpose(Enum):
    """Who waits there, and in how many threads: of the broker, or of each log dir where it says so."""

    ELECTIONS = "elections"
    """The controller's and the candidates' reads and writes in ZooKeeper."""
    IN_SYNC = "in-sync"
    """What leaders write of their in-sync sets, and the handovers they ask for."""
    REPLICAS = "replicas"
    """LeaderAndIsr and StopReplica: logs are opened, made, cut, filled again, deleted. A pool a log dir."""
    FOLLOWERS = "followers"
    """What followers ask of their leader and is not in the page cache. A pool a log dir."""
    COLD_READS = "cold-reads"
    """Messages that are not in the page cache. A pool a log dir."""
    LOOK_UPS = "look-ups"
    """By time, by count, checksums: whatever reads to find out. A pool a log dir."""
    UNPACKING = "unpacking"
    """Batches that must be decompressed: work of the processor."""
    ANSWERS = "answers"
    """Answers of many elements are encoded: work of the processor."""
    UPKEEP = "upkeep"
    """Retention, checkpoints, counting again. A pool a log dir."""
    OTHER = "other"
    """Starting, stopping, producer ids."""


THREADS: Final = {
    Purpose.ELECTIONS: 4,
    Purpose.IN_SYNC: 4,
    Purpose.REPLICAS: 4,
    Purpose.FOLLOWERS: 4,
    Purpose.COLD_READS: 4,
    Purpose.LOOK_UPS: 2,
    Purpose.UNPACKING: 2,
    Purpose.ANSWERS: 2,
    Purpose.UPKEEP: 4,
    Purpose.OTHER: 4,
}
WAITING_MAX: Final = {Purpose.LOOK_UPS: 1000, Purpose.UNPACKING: 10_000, Purpose.ANSWERS: 1000}
"""Pieces of work that may wait for a thread, where strangers ask for them."""


class Executors:
    """All of a broker. Event loop only."""

    def __init__(self) -> None:
        self._pools: dict[tuple[Purpose, str], _Pool] = {}
        self._is_closed = False

    async def run(self, purpose: Purpose, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What ``work(*arguments)`` returns or raises, in a thread of that purpose that belongs to no disk.

        Cancelled, it does not begin any more. RequestTimedOut where too much of that purpose waits.
        """
        return await self.run_in_turn("", "", purpose, work, *arguments, **named)

    async def run_at(
        self, disk: str, purpose: Purpose, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """The same in a thread of that log dir: its path, which a log has as ``log.home.path``."""
        return await self.run_in_turn("", disk, purpose, work, *arguments, **named)

    async def run_in_turn(
        self, whose: str, disk: str, purpose: Purpose, work: Callable[P, T], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """The same for an address, which takes turns with the others that have something waiting there.

        ``disk`` "": a thread that belongs to no log dir; ``whose`` "": the broker's own work, one more among them.
        """
        pool = self._pool(purpose, disk)
        return await asyncio.wrap_future(pool.submit(whose, lambda: work(*arguments, **named)))

    def _pool(self, purpose: Purpose, disk: str) -> _Pool:
        pool = self._pools.get((purpose, disk))
        if pool is None:
            if self._is_closed:
                raise RuntimeError("the broker has stopped")
            name = f"{purpose.value} {disk}".strip()
            pool = self._pools[purpose, disk] = _Pool(name, THREADS[purpose], WAITING_MAX.get(purpose))
        return pool

    def close(self) -> None:
        """What has not begun is cancelled; threads end with what they do. Waits for nothing."""
        self._is_closed = True
        for pool in self._pools.values():
            pool.close()


class _Pool:
    """Some threads and what waits for them. ``submit`` and ``close`` belong to the owner thread."""

    def __init__(self, name: str, threads_max: int, waiting_max: int | None) -> None:
        self._name = name
        self._waiting_max = waiting_max
        self._threads_max = threads_max
        self._threads = 0
        self._idle = threading.Semaphore(0)
        self._waiting: FairQueue[_Work] = FairQueue(waiting_max)
        self._is_closed = False

    def submit(self, whose: str, work: Callable[[], T]) -> Future[T]:
        if self._is_closed:
            raise RuntimeError("the broker has stopped")
        future: Future[T] = Future()
        refused = self._waiting.put(whose, _Work(future, work))
        if refused is not None:
            if refused.future.set_running_or_notify_cancel():
                words = f"{self._waiting_max} pieces of work wait for the threads of {self._name!r} already"
                refused.future.set_exception(RequestTimedOut(words))
            if refused.future is future:
                return future
        if not self._idle.acquire(blocking=False) and self._threads < self._threads_max:
            self._threads += 1
            threading.Thread(target=self._run, name=f"{self._name} {self._threads}", daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            work = self._waiting.take()
            if work is None:
                return
            _perform(*work)
            del work  # what it holds may be large, and the next may be long in coming
            self._idle.release()

    def close(self) -> None:
        self._is_closed = True
        for work in self._waiting.close(self._threads):
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
        del future  # else the error's own frame would hold what holds the error
    else:
        future.set_result(result)
