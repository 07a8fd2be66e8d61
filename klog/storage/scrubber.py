"""Reads the logs again at a set interval and rate, to find bit rot.

Strategy: every batch of every segment is checked as by recovery, up to the durable end. The scrubber changes nothing:
its owner fetches an invalid range again from a replica, or reports it. Pages that were not in the page cache before are
dropped from it again, so that a pass does not evict what consumers read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from klog.errors import KlogError
from klog.storage.checking import CHECK_BYTES, Skipped, check_batches
from klog.storage.damage_record import DamageRecord
from klog.storage.filesystem import LogFile
from klog.storage.log import Log
from klog.storage.segment import Segment

_log = logging.getLogger(__name__)


class _StoppedError(Exception):
    """The scrubber was stopped during a pass."""


class _PacedFile:
    """A LogFile that limits bytes per second, and leaves the page cache as it was."""

    def __init__(self, file: LogFile, rate_bytes: int, stop: threading.Event) -> None:
        self._file = file
        self._rate_bytes = rate_bytes
        self._stop = stop
        self.path = file.path

    def read_at(self, position: int, size: int) -> bytes:
        was_resident = self._file.is_resident(position, max(size, 1))
        data = self._file.read_at(position, size)
        if not was_resident:
            self._file.forget(position, size)
        if self._stop.wait(len(data) / self._rate_bytes):
            raise _StoppedError
        return data


class Scrubber:
    """One thread. It calls ``on_damage(log, damage)``, once per pass and range."""

    def __init__(
        self,
        logs: Callable[[], Iterable[Log]],
        on_damage: Callable[[Log, DamageRecord], object],
        *,
        interval_s: float,
        rate_bytes: int,
    ) -> None:
        """Wait ``interval_s`` before each pass; read ``rate_bytes`` per second at most (at least one chunk)."""
        self._logs = logs
        self._on_damage = on_damage
        self._interval_s = interval_s
        self._rate_bytes = max(rate_bytes, CHECK_BYTES // 64)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrubber", daemon=True)
        self.passes = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, even during a pass."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._interval_s):
                self.scrub()
        except _StoppedError:
            pass

    def scrub(self) -> None:
        """Check every segment of every log once."""
        for log in self._logs():
            for segment in log.segments:
                try:
                    self._scrub_segment(log, segment)
                except KlogError as error:
                    if not segment.is_removed and not log.is_closed:
                        _log.error("%s: cannot be read again: %s", segment.path, error)
        self.passes += 1

    def _scrub_segment(self, log: Log, segment: Segment) -> None:
        end = min(segment.base_address + segment.size, log.durable_end.address)
        if segment.base_address >= end:
            return
        file = _PacedFile(segment.file, self._rate_bytes, self._stop)
        for event in check_batches(file, segment.base_address, segment.base_address, end):
            # Truncated or removed while it was read: then missing bytes are not damage.
            if isinstance(event, Skipped) and segment in log.segments and not log.is_closed:
                damage = DamageRecord(event.address, event.end, event.reason)
                _log.error(
                    "%s: addresses %d to %d no longer check: %s", segment.path, event.address, event.end, event.reason
                )
                self._on_damage(log, damage)
