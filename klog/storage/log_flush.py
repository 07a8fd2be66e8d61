"""The part of a log that flushes it, and knows up to where it is on the disk.

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
    """See the module. One for each log."""

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
        """Make everything appended so far durable, and return the durable end. Blocks.

        A failed flush takes the dir offline and the log back to its durable end: the kernel may have marked the lost
        pages clean, so a second attempt would succeed without them (rule L1).
        """
        return self.finish_flush(self.begin_flush())

    def begin_flush(self) -> FlushMark:
        """Note what to flush, and keep other flushes of this log out until ``finish_flush``, which must follow.

        For many logs at once: begin them all, ``FileSystem.sync_everything``, finish them all (rule L9).
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
        """Flush, and return the durable end. ``written``: everything was synced since ``begin_flush``; only ask the
        kernel whether the write-back of these files failed."""
        state = self._state
        try:
            try:
                for segment, size in mark.dirty:
                    # Oldest first, and the name before the bytes: the durable end never passes what is missing.
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
        """Close the log for its parts, once a running flush has ended. Flushes nothing."""
        with self._flush_lock:
            self._state.is_closed = True

    def _fall_back(self) -> None:
        """Back to the durable end, so that the log has no page that never reached the disk."""
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
