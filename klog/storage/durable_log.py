"""The half of a log that makes things last, and takes them back: flushes, truncation, a new beginning.

Also what replicas ask by address: reads from a place to the end, and where a log may end.

Concurrency: ``truncate``, ``restart`` and ``skip_to`` belong to the owner, in whatever thread it runs them, with
nothing else changing the log meanwhile. Flushes are for any thread, one at a time by their own lock. Reads are for any
thread.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from operator import attrgetter

from klog.errors import DiskFull, NoDescriptors, OffsetOutOfRange, StorageError
from klog.names import TopicPartition
from klog.storage import lost
from klog.storage.damage import Damage
from klog.storage.filesystem import FileSystem
from klog.storage.home import Home
from klog.storage.log_end import LogEnd
from klog.storage.log_results import FlushMark
from klog.storage.producers import Producers
from klog.storage.readable_log import ReadableLog
from klog.storage.recovery import Recovered
from klog.storage.refill import Refill
from klog.storage.segment import FileRange, Segment

_log = logging.getLogger(__name__)

_base_address = attrgetter("base_address")


class DurableLog(ReadableLog):
    """See the module. ``Log`` adds appending and deletion."""

    never_flushes: bool

    def __init__(
        self, name: TopicPartition, folder: str, home: Home, file_system: FileSystem, found: Recovered
    ) -> None:
        super().__init__(name, home, found)
        self.folder = folder
        self._file_system = file_system
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._generation = 0
        self._active = found.segments[-1]
        self._producers: Producers = found.producers
        self._durable = found.end
        self._appended_messages = self._flushed_messages = 0

    @property
    def flushed_end(self) -> LogEnd:
        """What is safe under the flush rule; all of it where the rule is never to flush."""
        return self._end if self.never_flushes else self._durable

    @property
    def durable_end(self) -> LogEnd:
        """What is on the disk, whatever the rule."""
        return self._durable

    # --- What replicas ask ---

    def read_from(self, address: int, max_bytes: int) -> tuple[int, list[FileRange]]:
        """For a follower: whole batches from ``address`` on, up to the log's end, and where they begin.

        Whatever start is shown.
        ``address`` must be a place where a log may end (`floor`, `is_in_hole`); behind a hole the batches begin later.
        Of one segment, ``max_bytes`` at most, but the first batch whole. Raises OffsetOutOfRange, StorageError.
        """
        if self._home.failure is not None or self._closed:
            self._check_open()
        end, segments = self._end.address, self._segments
        if address >= end:
            return address, []
        at = len(segments) - 1
        if address < segments[at].base_address:
            at = bisect_right(segments, address, key=_base_address) - 1
            if at < 0:
                raise OffsetOutOfRange(f"{self.topic_partition}: {address} is below {segments[0].base_address}")
            while address >= segments[at].end_address:
                at += 1
        segment = segments[at]
        start = max(address, segment.base_address)
        try:
            return start, segment.ranges(start, max_bytes, end, at_least_one=True)
        except StorageError as error:
            raise self._read_failed(error) from error

    def floor(self, address: int) -> LogEnd:
        """The highest batch start or end at or below ``address``. Raises OffsetOutOfRange below the first segment.

        Walks over headers where the place is not known: in a thread unless `is_known`.
        """
        end, segments = self._end, self._segments
        if address >= end.address:
            return end
        at = bisect_right(segments, address, key=_base_address) - 1
        if at < 0:
            raise OffsetOutOfRange(f"{self.topic_partition}: {address} is below {segments[0].base_address}")
        segment = segments[at]
        if address >= segment.end_address:  # at its end, or in the hole behind it
            return LogEnd(segment.end_address, segment.end_offset)
        before = next((one.end_offset for one in reversed(segments[:at]) if one.size), self._start_offset)
        found = LogEnd(segment.base_address, min(before, segment.base_address))
        if address == segment.base_address:
            return found
        return self._ask(_floor_in, segment, address, found)

    def is_in_hole(self, address: int) -> bool:
        """Whether there is a hole in the log that reaches, with its edges, over ``address``."""
        segments = self._segments
        at = bisect_right(segments, address, key=_base_address) - 1
        if at < 0:
            return False
        if segments[at].base_address == address and at:
            at -= 1
        return (
            segments[at].end_address <= address
            and at + 1 < len(segments)
            and segments[at + 1].base_address > (segments[at].end_address)
        )

    @property
    def last_batch_epoch(self) -> int:
        """The leader epoch of the last batch, retention notwithstanding; -1 where the log never held one.

        Unlike ``last_epoch`` it knows nothing of an epoch that was begun and has no batch yet.
        """
        end = self._end.address
        return next((one.epoch for one in reversed(self._epochs.starts) if one.address < end), -1)

    def forget_empty_epochs(self) -> None:
        """Forget epochs in which nothing was written: whoever leads no longer never wrote in them. Owner thread."""
        self._epochs.truncate(self._end.address)

    # --- Cutting and beginning anew (owner) ---

    def _begin_segment(self, address: int) -> Segment:
        """Close the active segment and begin the next, at the log's end or behind a recorded hole."""
        old = self._active
        segment = Segment(self._file_system, self.folder, address, self._home.pool)
        try:
            segment.create()
        except DiskFull as error:
            self._home.filled(error)
            raise
        except StorageError as error:
            raise self._home.fail(error) from error
        segment.created_ms = segment.modified_ms = self._home.clock_ms()
        old.modified_ms = self._home.clock_ms()
        old.index.close()
        segment.end_offset = segment.base_address
        self._segments = (*self._segments, segment)
        self._active = segment
        return segment

    def skip_to(self, address: int, reason: str) -> None:
        """Leave a recorded hole from the end to ``address``, where the leader has one (rule L2). Blocks.

        Recorded before the segment behind it is made, so that a crash leaves no hole that nobody has named.
        """
        self._check_open()
        damage = Damage(self._end.address, address, reason)
        try:
            self._file_system.replace(f"{self.folder}/{damage.file_name}", damage.render(b""))
        except DiskFull as error:
            self._home.filled(error)
            raise
        except StorageError as error:
            raise self._home.fail(error) from error
        self._begin_segment(address)
        self.damages = (*self.damages, damage)
        with self._lock:
            self._end = LogEnd(address, self._end.offset)

    def restart(self, address: int, start_offset: int, *, keep_cut: bool = False) -> list[str]:
        """Remove everything and begin anew, empty, at ``address``; the start shown is ``start_offset`` or ``address``,
        whichever is lower. Durable when it returns. Blocks.

        ``keep_cut`` and what is returned: see `truncate`. After a crash in the middle the log is a part of what it was,
        or empty.
        """
        self._check_open()
        start_offset = min(start_offset, address)
        with self._lock:
            self._generation += 1
        self._home.lower_recovery_point(self.topic_partition, 0)
        self._home.keep_starts({self.topic_partition: start_offset})
        removed = self._segments
        for segment in removed:
            segment.is_removed = True
        new = Segment(self._file_system, self.folder, address, self._home.pool)
        new.created_ms = new.modified_ms = self._home.clock_ms()
        self._epochs.truncate(-1)
        self._producers = Producers()
        with self._lock:
            self._generation += 1
            self._segments = (new,)
            self._active = new
            self._end = self._durable = LogEnd(address, start_offset)
        self._start_offset = start_offset
        kept_files: list[str] = []
        try:
            if keep_cut:
                kept_files = lost.keep(self._file_system, self.folder, [(one, None) for one in removed])
            for segment in reversed(removed):
                self._file_system.remove(segment.path)
                segment.close()
            self._forget_damages(-1)
            self._file_system.sync_folder(self.folder)
            new.create()
            self._file_system.sync_folder(self.folder)
            new.name_is_durable = True
        except StorageError as error:
            raise self._home.fail(StorageError(error.message)) from error
        return kept_files

    # --- Written again (owner) ---

    def begin_refill(self, first: int, end: int) -> Refill:
        """For addresses [first, end): a hole, or batches of one segment that no longer check. Blocks a little.

        Raises OffsetOutOfRange where there is neither.
        """
        self._check_open()
        segments = self._segments
        into: Segment | None = None
        if (first, end) not in self.holes:
            into = next((one for one in segments if one.base_address <= first and end <= one.end_address), None)
            if into is None:
                raise OffsetOutOfRange(f"{self.topic_partition}: {first} to {end} is neither a hole nor in one segment")
        before = next((one.end_offset for one in reversed(segments) if one.size and one.base_address < first), first)
        pool = self._home.pool
        return Refill(self._file_system, self.folder, pool, first, end, offset_before=before, into=into)

    def take_in_refill(self, refill: Refill) -> None:
        """Serve what was refilled, whole and durable; its record of damage goes (`forget_refilled`, which blocks)."""
        assert refill.is_whole
        if refill.into is not None:
            return
        segment = refill.segment
        kept = [one for one in self._segments if one.base_address != segment.base_address]
        self._segments = tuple(sorted((*kept, segment), key=_base_address))
        self._epochs.insert(refill.epochs.starts)
        self._epochs.correct(refill.end, segment.end_offset)
        self._producers.merge(refill.producers.snapshot())

    def forget_refilled(self) -> None:
        """Remove the records of holes that are none any more. Blocks."""
        holes = self.holes
        for damage in self.damages:
            if not any(first < damage.end_address and damage.first_address < end for first, end in holes):
                self._file_system.remove(f"{self.folder}/{damage.file_name}")
                self.damages = tuple(one for one in self.damages if one is not damage)
        self._file_system.sync_folder(self.folder)

    def _forget_damages(self, address: int) -> None:
        """Records of holes at or behind a cut: what will be written there is whole, and a hole no longer legal."""
        for damage in self.damages:
            if damage.first_address >= address:
                self._file_system.remove(f"{self.folder}/{damage.file_name}")
        self.damages = tuple(damage for damage in self.damages if damage.first_address < address)

    def truncate(self, address: int, *, keep_cut: bool = False) -> list[str]:
        """Remove everything from the batch start ``address`` on. Durable when it returns (rule L3). Blocks.

        ``keep_cut``: what is removed stays beside the log in ``.lost`` files (see `klog.storage.lost`), whose names are
        returned. Raises OffsetOutOfRange below the first segment, CorruptLog where no batch starts at ``address``.
        """
        self._check_open()
        if address >= self._end.address:
            return []
        if address < self.start_address:
            raise OffsetOutOfRange(f"{self.topic_partition}: cannot cut at {address}, below {self.start_address}")
        kept = [segment for segment in self._segments if segment.base_address < address]
        removed = [segment for segment in self._segments if segment.base_address >= address]
        if removed and removed[0].base_address == address:
            cut, removed = removed[0].cut(address), removed[1:]  # an empty file of the right name stays
        else:
            cut = kept.pop().cut(address)
        # No checkpoint may speak of what is about to go: a crash between the two would believe it. One that is being
        # written sees the generation.
        with self._lock:
            self._generation += 1
        self._home.lower_recovery_point(self.topic_partition, address)
        for segment in removed:
            segment.is_removed = True
        offset = next((one.end_offset for one in reversed((*kept, cut)) if one.size), 0)
        if self._start_offset <= address:
            offset = max(offset, self._start_offset)
        else:  # cut below the start shown: what is written from here on must not be hidden by it
            offset = offset or address
            self._home.keep_starts({self.topic_partition: offset})
        with self._lock:
            self._generation += 1  # once more: a flush may have begun since
            self._segments = (*kept, cut)
            self._active = cut
            self._end = LogEnd(cut.end_address, offset)
            if self._durable.address > address:
                self._durable = self._end
        self._start_offset = min(self._start_offset, offset)
        # Of a log that is cut to its very start nothing is known any more, nor of epochs that began before it.
        self._epochs.truncate(address if address > self.start_address else -1)
        self._producers.truncate(address)
        with self._lock:
            self._generation += 1  # a summary that was noted since has epochs and producers of what is cut
        kept_files: list[str] = []
        try:
            if keep_cut:
                kept_files = lost.keep(
                    self._file_system, self.folder, [(cut, address), *((one, None) for one in removed)]
                )
            for segment in reversed(removed):
                self._file_system.remove(segment.path)
                segment.close()
            cut.file.truncate(cut.size)
            cut.sync(cut.size)
            self._forget_damages(address)
            self._file_system.sync_folder(self.folder)
        except StorageError as error:
            # Whatever it was, descriptors included: memory and disk disagree from here on.
            raise self._home.fail(StorageError(error.message)) from error
        return kept_files

    # --- Flushing (any thread, one at a time) ---

    @property
    def unflushed_messages(self) -> int:
        return self._appended_messages - self._flushed_messages

    @property
    def generation(self) -> int:
        """How often the log was cut back since it was opened."""
        return self._generation

    def dirty_files(self) -> int:
        """How many files a flush would flush."""
        return len(self._dirty())

    def _dirty(self) -> list[Segment]:
        """Segments whose bytes or name a flush must make last, oldest first."""
        dirty: list[Segment] = []
        for segment in reversed(self._segments):
            if segment.flushed_size >= segment.size and segment.name_is_durable:
                break
            dirty.append(segment)
        return dirty[::-1]

    def flush(self) -> LogEnd:
        """Make everything that is appended now last, and return the durable end. Blocks.

        A failed flush takes the dir offline and the log back to its durable end: the kernel may have marked the lost
        pages clean, so trying again would succeed without them (rule L1).
        """
        return self.finish_flush(self.begin_flush())

    def begin_flush(self) -> FlushMark:
        """Note what is to be flushed, and keep other flushes of this log out until ``finish_flush``, which must follow.

        For many logs at once: begin them all, ``FileSystem.sync_everything``, finish them all (rule L9).
        """
        self._flush_lock.acquire()
        try:
            self._check_open()
            with self._lock:
                dirty = [(segment, segment.size) for segment in self._dirty()]
                return FlushMark(self._generation, self._end, self._appended_messages, dirty)
        except BaseException:
            self._flush_lock.release()
            raise

    def finish_flush(self, mark: FlushMark, *, written: bool = False) -> LogEnd:
        """Flush, and return the durable end. ``written``: everything was synced since ``begin_flush``; only ask how
        that went for these files."""
        try:
            try:
                for segment, size in mark.dirty:
                    # Oldest first, and the name before the bytes behind it: the durable end never passes what is not
                    # there.
                    if not written and not segment.name_is_durable:
                        self._file_system.sync_folder(self.folder)
                    segment.name_is_durable = True
                    if segment.flushed_size < size:
                        try:
                            segment.sync(size, written=written)
                        except OffsetOutOfRange:
                            continue  # a truncation has removed it meanwhile, and moved the durable end
            except NoDescriptors:
                raise  # nothing was tried, so nothing is lost: ask again
            except StorageError as error:
                failure = self._home.fail(error)
                self._fall_back()
                raise failure.bare() from error
            with self._lock:
                if mark.generation == self._generation:
                    self._durable = mark.end
                    self._flushed_messages = mark.messages
                self._home.pool.trim()  # files that had to stay open for this flush
                return self._durable
        finally:
            self._flush_lock.release()

    def _fall_back(self) -> None:
        """Back to the durable end, so that no page that never reached the disk is taken for one that did."""
        with self._lock:
            self._generation += 1
            self._end = durable = self._durable
        for segment in reversed(self._segments):
            try:
                segment.file.truncate(max(min(segment.size, durable.address - segment.base_address), 0))
            except StorageError as error:
                _log.warning("%s: %s", self.topic_partition, error)
            if segment.base_address <= durable.address:
                break


def _floor_in(segment: Segment, address: int, found: LogEnd) -> LogEnd:
    """``DurableLog.floor`` within one segment; ``found`` is its first address."""
    first = segment.index.floor(address)
    starts, counts_before = segment.index.dense
    length = len(starts)
    if length and address >= starts[0]:
        at = bisect_right(starts, address, 0, length) - 1
        if at:
            return LogEnd(starts[at], starts[at - 1] + counts_before[at] - counts_before[at - 1])
    if first.address > segment.base_address:
        found = LogEnd(first.address, first.offset_before)
    for at, header in segment.walk(first.address, address):
        if header.next_address > address:
            break
        found = LogEnd(header.next_address, at + header.count)
    return found
