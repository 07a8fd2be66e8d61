"""Repairs a range of a log with another replica's bytes: a hole between two segments, or bit rot within one.

Replicas are byte for byte the same, so missing bytes have their place. A hole becomes a new segment, under a temporary
name until it is complete and durable. Invalid bytes are overwritten in place, a batch at a time. Nothing else of the
log moves.

Any thread may `add` and `make_durable`; `apply` and `forget_repaired_damages` belong to the log's owner.
"""

from __future__ import annotations

from klog.errors import CorruptLog, OffsetOutOfRange
from klog.record.batch import check_crc, walk
from klog.storage import checksums
from klog.storage.accounting import apply_batch
from klog.storage.epochs import Epochs
from klog.storage.filesystem import TEMPORARY_SUFFIX
from klog.storage.log_state import LogState
from klog.storage.producers import Producers
from klog.storage.segment import Segment


class RangeRepair:
    """Addresses [first, end) of one log. ``into``: the segment around them; None for a hole."""

    def __init__(self, log: LogState, first: int, end: int) -> None:
        """Blocks briefly. Raises OffsetOutOfRange where [first, end) is neither a hole nor inside one segment."""
        log.check_open()
        segments = log.segments
        self.into: Segment | None = None
        if (first, end) not in checksums.holes(segments):
            self.into = next((one for one in segments if one.base_address <= first and end <= one.end_address), None)
            if self.into is None:
                raise OffsetOutOfRange(f"{log.topic_partition}: {first} to {end} is neither a hole nor in one segment")
        self.first, self.end = first, end
        self.next_address = first
        self._log = log
        self._epochs = Epochs()
        self._producers = Producers()
        self._segment = Segment(log.file_system, log.folder, first, log.log_dir.pool)
        self._segment.end_offset = next(
            (one.end_offset for one in reversed(segments) if one.size and one.base_address < first), first
        )
        if self.into is None:
            temporary = self._segment.path + TEMPORARY_SUFFIX
            log.file_system.remove(temporary)
            self._file = log.file_system.open(temporary, create=True)
            self._base = first
        else:
            self._file = self.into.file
            self._base = self.into.base_address

    @property
    def is_whole(self) -> bool:
        return self.next_address == self.end

    def add(self, records: memoryview) -> None:
        """Write batches that follow on `next_address`; ignores those at or behind ``end``.

        Raises CorruptBatch, and CorruptLog where they do not fit. What was added before them stays.
        """
        for at, header in walk(records):
            if self.is_whole:
                return
            check_crc(records, at, header)
            if header.base_offset != self.next_address or header.next_address > self.end:
                raise CorruptLog(
                    f"{self._segment.path}: a batch of addresses {header.base_offset} to {header.next_address} does not"
                    f" fit into {self.next_address} to {self.end}"
                )
            self._file.write_at(header.base_offset - self._base, records[at : at + header.size_bytes])
            if self.into is None:
                apply_batch(self._segment, header.base_offset, header, self._epochs, self._producers)
            self.next_address = header.next_address

    def make_durable(self) -> None:
        """Sync the written bytes; a hole's file gets its final name. Blocks."""
        self._file.sync()
        if self.into is None:
            segment, file_system = self._segment, self._log.file_system
            file_system.remove(segment.path)  # an empty one, where the log was rolled before the hole
            file_system.rename(segment.path + TEMPORARY_SUFFIX, segment.path)
            segment.flushed_size = segment.size
            segment.name_is_durable = True
            segment.index.close()

    def apply(self) -> None:
        """Serve the repaired range, which is complete and durable. Call `forget_repaired_damages`, which blocks,
        afterwards.

        Owner thread.
        """
        assert self.is_whole
        if self.into is not None:
            return
        log, segment = self._log, self._segment
        kept = [one for one in log.segments if one.base_address != segment.base_address]
        log.segments = tuple(sorted((*kept, segment), key=lambda one: one.base_address))
        log.epochs.insert(self._epochs.starts)
        log.epochs.correct(self.end, segment.end_offset)
        log.producers.merge(self._producers.snapshot())

    def discard(self) -> None:
        """Remove the bytes of an unfinished repair."""
        if self.into is None:
            self._log.file_system.remove(self._segment.path + TEMPORARY_SUFFIX)


def forget_repaired_damages(log: LogState) -> None:
    """Remove the records of holes that are filled. Blocks."""
    holes = checksums.holes(log.segments)
    for damage in log.damages:
        if not any(first < damage.end_address and damage.first_address < end for first, end in holes):
            log.file_system.remove(f"{log.folder}/{damage.file_name}")
            log.damages = tuple(one for one in log.damages if one is not damage)
    log.file_system.sync_folder(log.folder)
