"""Flushes a log, and knows up to where it is durable.

Any thread may flush; a lock lets one flush of a log run at a time.
"""

from __future__ import annotations

import logging
import threading

from klog.errors import NoDescriptors, OffsetOutOfRange, StorageError
from klog.storage.log_end import LogEnd
from klog.storage.log_state import FlushMark, LogState
from klog.storage.segment import Segment

_log = logging.getLogger(__name__)


class LogFlush:
    """See the module. One per log."""

    __slots__ = ("_flush_lock", "_flushed_messages", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._flush_lock = threading.Lock()
        self._flushed_messages = 0

    @property
    def unflushed_messages(self) -> int:
        return self._state.appended_messages - self._flushed_messages

    @property
    def is_dirty(self) -> bool:
        """Whether a flush would sync anything."""
        return bool(self._dirty())

    def _dirty(self) -> list[Segment]:
        """Segments with bytes or a name that are not durable yet, oldest first."""
        dirty: list[Segment] = []
        for segment in reversed(self._state.segments):
            if segment.flushed_size >= segment.size and segment.name_is_durable:
                break
            dirty.append(segment)
        return dirty[::-1]

    def flush(self) -> LogEnd:
        """Make all appends so far durable; returns the durable end. Blocks.

        A failed flush takes the dir offline and truncates the log to its durable end: the kernel may have marked the
        lost pages clean, so that a second attempt would succeed without them (rule L1).
        """
        return self.finish_flush(self.begin_flush())

    def begin_flush(self) -> FlushMark:
        """Note what to flush, and block other flushes of this log until ``finish_flush``, which must follow.

        For many logs at once: begin all, ``FileSystem.sync_everything``, finish all (rule L9).
        """
        state = self._state
        self._flush_lock.acquire()
        try:
            state.check_open()
            with state.lock:
                dirty = [(segment, segment.size) for segment in self._dirty()]
                return FlushMark(state.generation, state.end, state.appended_messages, dirty)
        except BaseException:
            self._flush_lock.release()
            raise

    def finish_flush(self, mark: FlushMark, *, written: bool = False) -> LogEnd:
        """Flush; returns the durable end. ``written``: everything was synced since ``begin_flush``; only ask the kernel
        whether the write-back of these files failed."""
        state = self._state
        try:
            try:
                for segment, size in mark.dirty:
                    # Oldest first, and names before bytes: the durable end never passes what is missing.
                    if not written and not segment.name_is_durable:
                        state.file_system.sync_folder(state.folder)
                    segment.name_is_durable = True
                    if segment.flushed_size < size:
                        try:
                            segment.sync(size, written=written)
                        except OffsetOutOfRange:
                            continue  # a truncation has removed it meanwhile, and moved the durable end
            except NoDescriptors:
                raise  # nothing was tried, so nothing is lost: the caller tries again
            except StorageError as error:
                failure = state.log_dir.fail(error)
                self._fall_back()
                raise failure.bare() from error
            with state.lock:
                if mark.generation == state.generation:
                    state.durable_end = mark.end
                    self._flushed_messages = mark.messages
                state.log_dir.pool.trim()  # files that had to stay open for this flush
                return state.durable_end
        finally:
            self._flush_lock.release()

    def close(self) -> None:
        """Wait for a running flush, then close the log for its parts. Flushes nothing."""
        with self._flush_lock:
            self._state.is_closed = True

    def _fall_back(self) -> None:
        """Truncate to the durable end, so that no page of the log is missing on the disk."""
        state = self._state
        with state.lock:
            state.generation += 1
            state.end = durable = state.durable_end
        for segment in reversed(state.segments):
            try:
                segment.file.truncate(max(min(segment.size, durable.address - segment.base_address), 0))
            except StorageError as error:
                _log.warning("%s: %s", state.topic_partition, error)
            if segment.base_address <= durable.address:
                break
