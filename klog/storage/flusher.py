"""Group commit: one flush serves every append before it.

Strategy: the owner thread calls ``want`` after an append, and ``begin`` when all that has come together is appended.
One thread per log dir takes all logs that want a flush, flushes them, posts the outcomes, and repeats while there are
more. Appends never wait for one another. A thread that began with the first of many appends would contend for the
interpreter's lock and flush every few messages: a fifth to a third of a small message's cost.
Rule L9: many dirty files share one ``syncfs``, and each is asked for its own write-back error. Where the syncfs itself
fails, perhaps because of another program's file, each file's fdatasync decides.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import NoDescriptors, StorageError
from klog.metrics import Timing
from klog.storage.filesystem import FileSystem
from klog.storage.log import NEVER, FlushMark, Log
from klog.storage.log_end import LogEnd

_log = logging.getLogger(__name__)

SYNCFS_FILES_MIN: Final = 12
"""For this many dirty files or more one syncfs is cheaper: 300 fdatasync took 47 ms, one syncfs 2 ms."""

LOOK_EVERY_S: Final = 0.1
"""Interval of checks for a thread that never ends."""

NO_DESCRIPTORS_RETRY_S: Final = 0.1
"""Retry without free descriptors: short for waiting clients, long enough not to disturb others."""

Outcome: TypeAlias = "LogEnd | StorageError"
Post: TypeAlias = Callable[..., object]
OnFlushed: TypeAlias = Callable[[Log, "LogEnd | StorageError"], None]


class Flusher:
    """``post(function, *arguments)`` runs a function in the owner thread: ``loop.call_soon_threadsafe``.

    ``on_flushed(log, outcome)`` is called there with the log's durable end, or the error. ``soon(function)`` runs one
    at the end of the owner's current turn, for appends that no ``begin`` follows: ``loop.call_soon``; default: at once.
    ``want`` and ``begin`` belong to the owner thread.
    """

    def __init__(
        self,
        post: Post,
        on_flushed: OnFlushed,
        file_system: FileSystem,
        clock: Clock = SYSTEM_CLOCK,
        *,
        soon: Callable[[Callable[[], None]], object] = lambda begin: begin(),
    ) -> None:
        self._clock = clock
        self._post = post
        self._on_flushed = on_flushed
        self._file_system = file_system
        self._threads: dict[str, _DirThread] = {}
        self._given_up: set[str] = set()
        self._soon = soon
        self._wanted: list[Log] = []

    def want(self, log: Log) -> None:
        """After an append: flush the log when its flush rule says so."""
        if log.flush_is_queued:
            return
        config = log.config
        if config.flush_messages == 1 or log.wants_flush:
            log.flush_is_queued = True
            self._wanted.append(log)
            if len(self._wanted) == 1:
                self._soon(self.begin)
        elif config.flush_ms < NEVER and not log.flush_is_scheduled:
            log.flush_is_scheduled = True
            self._thread(log).queue.put((self._clock.monotonic_s() + config.flush_ms / 1000, log))

    def begin(self) -> None:
        """Start the wanted flushes."""
        if self._wanted:
            wanted, self._wanted = self._wanted, []
            for log in wanted:
                self._thread(log).queue.put(log)

    def flush_now(self, log: Log) -> None:
        """Flush regardless of the rule."""
        if not log.flush_is_queued:
            log.flush_is_queued = True
            self._thread(log).queue.put(log)

    def stop(self) -> None:
        """Finish the requested flushes and end the threads."""
        self.begin()
        for thread in self._threads.values():
            thread.queue.put(None)
        for thread in self._threads.values():
            while thread.is_alive() and not self._is_lost(thread):
                thread.join(LOOK_EVERY_S)
        self._threads.clear()

    def _is_lost(self, thread: _DirThread) -> bool:
        """Whether it is in a flush of an abandoned dir, which may never end."""
        return thread.busy_since_s is not None and thread.path in self._given_up

    def give_up(self, path: str) -> None:
        """Abandon a dir that does not answer: stop waiting for its flushes."""
        self._given_up.add(path)

    def busy_since_s(self, path: str) -> float | None:
        """Start of the dir's current flush (monotonic seconds); None while idle."""
        thread = self._threads.get(path)
        return None if thread is None else thread.busy_since_s

    def times(self) -> list[Timing]:
        """Durations of flushes per dir. Any thread."""
        return [thread.timing for thread in list(self._threads.values())]

    def _thread(self, log: Log) -> _DirThread:
        path = log.log_dir.path
        thread = self._threads.get(path)
        if thread is None:
            thread = self._threads[path] = _DirThread(path, self._file_system, self._post, self._deliver, self._clock)
            thread.start()
        return thread

    def _deliver(self, outcomes: list[tuple[Log, Outcome]]) -> None:
        for log, outcome in outcomes:
            self._on_flushed(log, outcome)


_Item: TypeAlias = "Log | tuple[float, Log] | None"


class _DirThread(threading.Thread):
    """Flushes the logs of one dir."""

    def __init__(
        self,
        path: str,
        file_system: FileSystem,
        post: Post,
        deliver: Callable[[list[tuple[Log, Outcome]]], None],
        clock: Clock,
    ) -> None:
        super().__init__(name=f"flusher {path}", daemon=True)
        self.queue: SimpleQueue[_Item] = SimpleQueue()
        self.timing = Timing()
        self.path = path
        self.busy_since_s: float | None = None
        self._file_system = file_system
        self._post = post
        self._deliver = deliver
        self._clock = clock
        self._due: list[tuple[float, int, Log]] = []
        self._ties = itertools.count()
        self._stopping = False

    def run(self) -> None:
        while True:
            logs = self._next()
            if logs:
                self.busy_since_s = self._clock.monotonic_s()
                self._flush(logs)
                self.busy_since_s = None
            elif self._stopping:
                return

    def _next(self) -> list[Log]:
        """Wait for logs to flush; returns all that wait by then."""
        logs: list[Log] = []
        try:
            if self._due:
                item = self.queue.get(timeout=max(self._due[0][0] - self._clock.monotonic_s(), 0))
            elif self._stopping:
                item = self.queue.get_nowait()
            else:
                item = self.queue.get()
            while True:
                if isinstance(item, tuple):
                    self._flush_at(*item)
                elif item is None:
                    self._stopping = True
                else:
                    logs.append(item)
                item = self.queue.get_nowait()
        except Empty:
            pass
        now = self._clock.monotonic_s()
        while self._due and (self._stopping or self._due[0][0] <= now):
            _, _, log = heapq.heappop(self._due)
            if log not in logs:
                logs.append(log)
        return logs

    def _flush_at(self, due: float, log: Log) -> None:
        heapq.heappush(self._due, (due, next(self._ties), log))

    def _flush(self, logs: list[Log]) -> None:
        began = self._clock.monotonic_s()
        outcomes: list[tuple[Log, Outcome]] = []
        marks: list[tuple[Log, FlushMark]] = []
        for log in logs:
            # Before the flush reads the end: a later append asks for another flush.
            log.flush_is_queued = log.flush_is_scheduled = False
            try:
                marks.append((log, log.begin_flush()))
            except StorageError as error:
                outcomes.append((log, error.bare()))
        written = len(marks) >= SYNCFS_FILES_MIN and self._sync_everything()
        for log, mark in marks:
            try:
                outcomes.append((log, log.finish_flush(mark, written=written)))
            except NoDescriptors as error:
                if self._stopping:
                    outcomes.append((log, error.bare()))
                else:
                    self._flush_at(self._clock.monotonic_s() + NO_DESCRIPTORS_RETRY_S, log)
            except StorageError as error:
                outcomes.append((log, error.bare()))
        self.timing.took((self._clock.monotonic_s() - began) * 1000)
        try:
            self._post(self._deliver, outcomes)
        except RuntimeError:
            _log.debug("the event loop is closed: the outcomes of %d flushes are dropped", len(outcomes))

    def _sync_everything(self) -> bool:
        try:
            self._file_system.sync_everything(self.path)
        except StorageError as error:
            _log.warning("%s: asking each file", error)
            return False
        return True
