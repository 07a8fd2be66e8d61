"""The checkpoint files of one log dir, and when they are written.

Strategy: the owner thread notes the state of changed logs (cheap, at their current end); a thread flushes up to there
and writes the files. So a checkpoint never claims more than is durable. States are noted at rolls, after `DUE_BATCHES`
batches or `DUE_BYTES`, and when the caller's timer fires.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from klog.clock import SYSTEM_CLOCK
from klog.errors import CorruptLog, DiskFull, StorageError
from klog.names import TopicPartition
from klog.storage import checkpoint
from klog.storage.checkpoint import LogSummary
from klog.storage.disk import Disk
from klog.storage.file_pool import FilePool
from klog.storage.filesystem import FileSystem
from klog.storage.log_end import LogEnd

_log = logging.getLogger(__name__)

DUE_BATCHES: Final = 100_000
DUE_BYTES: Final = 256 << 20
"""A checkpoint is due after this many batches or bytes in a dir: re-checking them takes less than half a second."""


class CheckpointedLog(Protocol):
    """A log as its checkpoints see it (`klog.storage.log.Log` is one). Compared by identity."""

    topic_partition: TopicPartition
    never_flushes: bool

    @property
    def generation(self) -> int: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def is_dirty(self) -> bool: ...

    @property
    def durable_end(self) -> LogEnd: ...

    def summary(self) -> LogSummary | None: ...

    def flush(self) -> LogEnd: ...


class Checkpoints:
    """See the module. ``appended``, ``rolled``, ``note`` belong to the owner thread; the rest is thread-safe."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._lock = threading.RLock()
        self._points: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._lines: dict[TopicPartition, str] = {}
        """Rendered summaries: a fourth of the size of the summaries, and rendered once."""
        self._changed: set[CheckpointedLog] = set()
        self._rolled: set[CheckpointedLog] = set()
        self._changed_batches = 0
        self._changed_bytes = 0
        self._noted: dict[CheckpointedLog, tuple[int, checkpoint.LogSummary]] = {}
        """With the log's generation: a truncation invalidates the state."""
        self._noting = threading.Lock()
        """Guards ``_noted`` alone: the owner thread must not wait for a write."""
        self.busy_since_s: float | None = None
        """Start of the current write (monotonic seconds); None while there is none."""
        self._thread: threading.Thread | None = None
        """Writes when woken."""
        self._woken = threading.Event()
        self._is_stopping = False

    # --- What is kept ---

    def load(self) -> dict[TopicPartition, checkpoint.LogSummary]:
        """Read the files; returns the valid summaries."""
        self._points = self._read(checkpoint.RECOVERY_POINTS)
        self._starts = self._read(checkpoint.LOG_STARTS)
        data = self._disk.file_system.read(self._path(checkpoint.SUMMARIES))
        if data is None:
            return {}
        found = checkpoint.parse_summaries(data)
        if found.rejected:
            _log.warning("%s: %d lines do not check", self._path(checkpoint.SUMMARIES), found.rejected)
        self._lines = found.lines
        return found.known

    def _keep(self, name: TopicPartition, summary: checkpoint.LogSummary | None) -> None:
        if summary is None:
            self._lines.pop(name, None)
        else:
            self._lines[name] = checkpoint.render_summary(name, summary)

    def recovery_point(self, name: TopicPartition) -> int:
        return self._points.get(name, 0)

    def start(self, name: TopicPartition) -> int | None:
        return self._starts.get(name)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return self._read(checkpoint.HIGH_WATERMARKS)

    def keep_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Durable when it returns."""
        with self._lock:
            self._replace(checkpoint.HIGH_WATERMARKS, checkpoint.render_offsets(high_watermarks))

    def keep_starts(self, starts: Mapping[TopicPartition, int]) -> None:
        """Write the log start offsets of several logs at once. Durable when it returns."""
        with self._lock:
            self._starts.update(starts)
            self._write_starts()

    def lower_recovery_point(self, name: TopicPartition, address: int) -> None:
        """Lower the log's recovery point to ``address`` at most. Durable when it returns."""
        with self._lock:
            with self._noting:
                self._noted = {log: one for log, one in self._noted.items() if log.topic_partition != name}
            line = self._lines.get(name)
            known = None if line is None else checkpoint.parse_summary(line)[1]
            if (known is None or known.recovery_point <= address) and self._points.get(name, 0) <= address:
                return
            kept = known.below(address) if known else None
            self._keep(name, kept)
            self._points[name] = kept.recovery_point if kept else 0
            self._write_points()

    def forget(self, log: CheckpointedLog) -> None:
        """Drop all state of a removed log, so that none is taken for its successor's."""
        with self._lock:
            self._changed.discard(log)
            self._rolled.discard(log)
            with self._noting:
                self._noted.pop(log, None)
            name = log.topic_partition
            if name in self._lines or name in self._points:
                self._keep(name, None)
                self._points.pop(name, None)
                self._write_points()
            if self._starts.pop(name, None) is not None:
                self._write_starts()

    # --- When ---

    def appended(self, log: CheckpointedLog, batches: int, size: int) -> None:
        """Count towards the next checkpoint."""
        self._changed.add(log)
        self._changed_batches += batches
        self._changed_bytes += size
        if self._changed_batches >= DUE_BATCHES or self._changed_bytes >= DUE_BYTES:
            self.soon()

    def rolled(self, log: CheckpointedLog) -> None:
        """A segment was closed: checkpoint soon, or the next start would count it again."""
        self._changed.add(log)
        self._rolled.add(log)
        self.soon()

    def changed(self, log: CheckpointedLog) -> None:
        self._changed.add(log)

    def note(self, *, all_logs: bool = False) -> None:
        """Note the state of every changed log.

        Of logs that are never flushed only those that rolled, as in Kafka: noted states will be flushed.
        """
        seen = self._changed.copy()  # threads that create and remove logs change it meanwhile
        changed = {log for log in seen if all_logs or not log.never_flushes or log in self._rolled}
        self._changed -= changed
        self._rolled.clear()
        self._changed_batches = self._changed_bytes = 0
        noted = {log: (log.generation, summary) for log in changed if (summary := log.summary()) is not None}
        with self._noting:
            self._noted.update(noted)

    def soon(self) -> None:
        """Note the changed logs and wake the thread."""
        self.note()
        self._woken.set()

    def write(self) -> None:
        """Flush up to the noted states and write them. Blocks."""
        with self._noting:
            noted, self._noted = self._noted, {}
        durable: list[tuple[CheckpointedLog, int, checkpoint.LogSummary]] = []
        for log, (generation, summary) in noted.items():
            if log.is_closed:
                continue
            if log.durable_end.address < summary.recovery_point or log.is_dirty:
                log.flush()
            durable.append((log, generation, summary))
        if not durable:
            return
        with self._lock:
            for log, generation, summary in durable:
                if not log.is_closed and log.generation == generation:
                    self._keep(log.topic_partition, summary)
                    self._points[log.topic_partition] = summary.recovery_point
            self._write_points()

    def start_thread(self) -> None:
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def stop_thread(self, *, write: bool = True) -> None:
        """End the thread; ``write``: after it has written the noted states."""
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._disk.is_stalled and self._disk.failure is not None:
                return  # it may wait for a disk that never answers; it is a daemon thread
            if not write:
                with self._noting:
                    self._noted.clear()
            self._is_stopping = True
            self._woken.set()
            thread.join()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._woken.wait()
            self._woken.clear()
            is_last = self._is_stopping  # before it writes: what was noted before the stop is written too
            try:
                self.write()
            except StorageError as error:
                _log.error("the checkpoint was not written: %s", error)

    # --- The files ---

    def _path(self, file_name: str) -> str:
        return f"{self._disk.path}/{file_name}"

    def _read(self, file_name: str) -> dict[TopicPartition, int]:
        path = self._path(file_name)
        data = self._disk.file_system.read(path)
        try:
            return {} if data is None else checkpoint.parse_offsets(data, path)
        except CorruptLog as error:
            _log.warning("%s: rebuilt from the logs", error)
            return {}

    def _write_starts(self) -> None:
        self._replace(checkpoint.LOG_STARTS, checkpoint.render_offsets(self._starts))

    def _write_points(self) -> None:
        # The summaries first: each has its own recovery point, and a log without one keeps the older.
        self._replace(checkpoint.SUMMARIES, checkpoint.render_summaries(list(self._lines.values())))
        self._replace(checkpoint.RECOVERY_POINTS, checkpoint.render_offsets(self._points))

    def _replace(self, file_name: str, data: bytes) -> None:
        disk = self._disk
        if disk.failure is not None:
            raise disk.failure.bare()
        self.busy_since_s = self.busy_since_s or self._disk.clock.monotonic_s()
        try:
            try:
                disk.file_system.replace(self._path(file_name), data)
            except DiskFull:
                disk.is_full = True
                if not disk.give_reserve():
                    raise
                disk.file_system.replace(self._path(file_name), data)
        except StorageError as error:
            raise disk.write_failed(error) from error
        finally:
            self.busy_since_s = None


class CheckpointedDir(Disk):
    """A log dir as its logs see it: the disk, and the checkpoints on it."""

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        pool: FilePool | None = None,
        clock_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms,
    ) -> None:
        super().__init__(file_system, path, pool, clock_ms)
        self.checkpoints = Checkpoints(self)
