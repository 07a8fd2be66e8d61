"""The checkpoint files of one log dir, and when they are written.

Strategy: the owner thread notes the state of logs that changed (cheap, at their end of the moment); a thread flushes up
to there and writes the files. A noted state is written only once it is durable: a checkpoint never says more than the
disk holds. Noted at rolls, after so many batches or bytes, and at the interval of the caller's timer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

from klog.errors import CorruptLog, DiskFull, StorageError
from klog.names import TopicPartition
from klog.storage import checkpoint
from klog.storage.log_dir_context import CheckpointedLog, Health

_log = logging.getLogger(__name__)

DUE_BATCHES: Final = 100_000
DUE_BYTES: Final = 256 << 20
"""A checkpoint is due after this many batches or bytes in a dir: checking them again takes less than half a
second."""


class Checkpoints:
    """See the module. ``appended``, ``rolled``, ``note`` belong to the owner thread; the rest is thread-safe."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._lock = threading.RLock()
        self._points: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._lines: dict[TopicPartition, str] = {}
        """The summaries as they are written: rendered once, and a fourth of the size of what they say."""
        self._changed: set[CheckpointedLog] = set()
        self._rolled: set[CheckpointedLog] = set()
        self._changed_batches = 0
        self._changed_bytes = 0
        self._noted: dict[CheckpointedLog, tuple[int, checkpoint.LogSummary]] = {}
        """With the log's generation: a truncation makes what was noted untrue."""
        self._noting = threading.Lock()
        """For ``_noted`` alone: the owner thread must not wait for a write."""
        self.busy_since_s: float | None = None
        """Since when (monotonic seconds) a file has been being written; None where none is."""
        self._thread: _Thread | None = None

    # --- What is kept ---

    def load(self) -> dict[TopicPartition, checkpoint.LogSummary]:
        """Read the files; the summaries that check."""
        self._points = self._read(checkpoint.RECOVERY_POINTS)
        self._starts = self._read(checkpoint.LOG_STARTS)
        data = self._health.file_system.read(self._path(checkpoint.SUMMARIES))
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
        """The starts shown of several logs, with one write. Durable when it returns."""
        with self._lock:
            self._starts.update(starts)
            self._write_starts()

    def lower_recovery_point(self, name: TopicPartition, address: int) -> None:
        """No checkpoint says more than ``address`` of this log when it returns."""
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
        """A log that is no longer here: nothing of it may be taken for its successor's."""
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
        """A segment was closed: its summary is worth keeping soon, or the next start would count it again."""
        self._changed.add(log)
        self._rolled.add(log)
        self.soon()

    def changed(self, log: CheckpointedLog) -> None:
        self._changed.add(log)

    def note(self, *, all_logs: bool = False) -> None:
        """Note the state of every log that changed.

        Of logs that are never flushed only those that rolled, as Kafka does it: what is noted will be flushed.
        """
        seen = self._changed.copy()  # threads that make and remove logs change it meanwhile
        changed = {log for log in seen if all_logs or not log.never_flushes or log in self._rolled}
        self._changed -= changed
        self._rolled.clear()
        self._changed_batches = self._changed_bytes = 0
        noted = {log: (log.generation, summary) for log in changed if (summary := log.summary()) is not None}
        with self._noting:
            self._noted.update(noted)

    def soon(self) -> None:
        """Note, and let the thread write."""
        self.note()
        if self._thread is not None:
            self._thread.wake()

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
        if self._thread is None:
            self._thread = _Thread(self)
            self._thread.start()

    def stop_thread(self, *, write: bool = True) -> None:
        """End the thread; ``write``: when it has written what is noted."""
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._health.is_stalled and self._health.failure is not None:
                return  # it may wait for a disk that never answers; it is a daemon
            if not write:
                with self._noting:
                    self._noted.clear()
            thread.stop()

    # --- The files ---

    def _path(self, file_name: str) -> str:
        return f"{self._health.path}/{file_name}"

    def _read(self, file_name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoint.read_offsets(self._health.file_system, self._path(file_name))
        except CorruptLog as error:
            _log.warning("%s: rebuilt from the logs", error)
            return {}

    def _write_starts(self) -> None:
        self._replace(checkpoint.LOG_STARTS, checkpoint.render_offsets(self._starts))

    def _write_points(self) -> None:
        # The summaries first: each carries its own recovery point, and where it has none the older one holds.
        self._replace(checkpoint.SUMMARIES, checkpoint.render_summaries(list(self._lines.values())))
        self._replace(checkpoint.RECOVERY_POINTS, checkpoint.render_offsets(self._points))

    def _replace(self, file_name: str, data: bytes) -> None:
        health = self._health
        if health.failure is not None:
            raise health.failure.bare()
        self.busy_since_s = self.busy_since_s or self._health.clock.monotonic_s()
        try:
            try:
                health.file_system.replace(self._path(file_name), data)
            except DiskFull as error:
                health.filled(error)
                if not health.give_reserve():
                    raise
                health.file_system.replace(self._path(file_name), data)
        except DiskFull:
            raise
        except StorageError as error:
            raise health.fail(error) from error
        finally:
            self.busy_since_s = None


class _Thread(threading.Thread):
    """Writes the checkpoints when woken."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        super().__init__(name="checkpoints", daemon=True)
        self._checkpoints = checkpoints
        self._woken = threading.Event()
        self._stopping = False

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self._stopping = True
        self._woken.set()
        self.join()

    def run(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            stopping = self._stopping
            try:
                self._checkpoints.write()
            except StorageError as error:
                _log.error("the checkpoint was not written: %s", error)
            if stopping:
                return
