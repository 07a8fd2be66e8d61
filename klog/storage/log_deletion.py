"""Removes a log's oldest segments: for retention and DeleteRecords.

Blocking steps are separate: plan, make the new start durable (``LogDirContext.keep_starts``, rule L4), `apply`,
`unlink`; `run` does the last three. Owner thread, except `unlink`.
"""

from __future__ import annotations

import logging

from klog.errors import OffsetOutOfRange, StorageError
from klog.storage.log_state import LogState
from klog.storage.retention import Deletion

_log = logging.getLogger(__name__)


class LogDeletion:
    """See the module. One per log."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def plan_records(self, offset: int) -> Deletion | None:
        """The deletion of everything below ``offset``; None if the log starts there already.

        Raises OffsetOutOfRange above the end.
        """
        state = self._state
        state.check_open()
        if offset > state.end.offset:
            raise OffsetOutOfRange(
                f"{state.topic_partition}: offset {offset} is outside {state.start_offset} to {state.end.offset}"
            )
        if offset <= state.start_offset:
            return None
        gone = []
        for segment in state.segments[:-1]:
            if segment.count is None or segment.end_offset > offset:
                break
            gone.append(segment)
        return Deletion(tuple(gone), offset, "DeleteRecords")

    def apply(self, deletion: Deletion) -> None:
        """Stop serving the removed segments. The new start must be durable already."""
        state = self._state
        state.start_offset = max(state.start_offset, deletion.start_offset)
        for segment in deletion.segments:
            segment.is_removed = True
        state.segments = tuple(segment for segment in state.segments if not segment.is_removed)
        state.epochs.forget_below(state.segments[0].base_address)

    def unlink(self, deletion: Deletion) -> None:
        """Remove the files of an applied deletion, oldest first (rule L3). Any thread."""
        state = self._state
        try:
            for segment in deletion.segments:
                state.file_system.remove(segment.path)
                segment.close()
            state.file_system.sync_folder(state.folder)
        except StorageError as error:
            if state.is_closed:
                return  # the topic was deleted meanwhile: its folder has another name and is removed as a whole
            raise state.log_dir.fail(error) from error

    def run(self, deletion: Deletion) -> None:
        """Make the new start durable, apply, unlink. Blocks."""
        state = self._state
        _log.info(
            "%s: removing %d segments (%s), the log starts at %d",
            state.topic_partition,
            len(deletion.segments),
            deletion.reason,
            deletion.start_offset,
        )
        state.log_dir.keep_starts({state.topic_partition: deletion.start_offset})
        self.apply(deletion)
        if deletion.segments:
            self.unlink(deletion)
