"""A stretch of a log written again from another replica's bytes: a hole between two segments, or rot within one.

Replicas are byte for byte the same, so what is missing has its place: a hole becomes a segment of its own, under a
temporary name until it is whole and durable; bytes that no longer check are written over where they lie, a batch at a
time. Nothing else of the log moves, and nothing is cut for it.

Any thread may `add` and `make_last`; taking the segment in belongs to the log's owner (`DurableLog.take_in_refill`).
"""

from __future__ import annotations

from klog.errors import CorruptLog
from klog.record.batch import check_crc, walk
from klog.storage.accounting import take_in
from klog.storage.epochs import Epochs
from klog.storage.file_pool import FilePool
from klog.storage.filesystem import TEMPORARY_SUFFIX, FileSystem
from klog.storage.producers import Producers
from klog.storage.segment import Segment


class Refill:
    """Addresses [first, end) of one log. ``into``: the segment that they lie in; None for a hole."""

    def __init__(
        self,
        file_system: FileSystem,
        folder: str,
        pool: FilePool,
        first: int,
        end: int,
        *,
        offset_before: int,
        into: Segment | None,
    ) -> None:
        """``offset_before`` is the last record's offset + 1 of what lies before."""
        self.first, self.end = first, end
        self.next_address = first
        self.epochs = Epochs()
        self.producers = Producers()
        self.into = into
        self._file_system = file_system
        self.segment = Segment(file_system, folder, first, pool)
        self.segment.end_offset = offset_before
        if into is None:
            temporary = self.segment.path + TEMPORARY_SUFFIX
            file_system.remove(temporary)
            self._file = file_system.open(temporary, create=True)
            self._base = first
        else:
            self._file = into.file
            self._base = into.base_address

    @property
    def is_whole(self) -> bool:
        return self.next_address == self.end

    def add(self, records: memoryview) -> None:
        """Batches that follow on `next_address`; those at or behind ``end`` are left alone.

        Raises CorruptBatch, and CorruptLog where they do not fit: then what was added before them stays.
        """
        for at, header in walk(records):
            if self.is_whole:
                return
            check_crc(records, at, header)
            if header.base_offset != self.next_address or header.next_address > self.end:
                raise CorruptLog(
                    f"{self.segment.path}: a batch of addresses {header.base_offset} to {header.next_address} does not"
                    f" fit into {self.next_address} to {self.end}"
                )
            self._file.write_at(header.base_offset - self._base, records[at : at + header.size_bytes])
            if self.into is None:
                take_in(self.segment, header.base_offset, header, self.epochs, self.producers)
            self.next_address = header.next_address

    def make_last(self) -> None:
        """Durable when it returns: as a segment's file where it was a hole. Blocks."""
        self._file.sync()
        if self.into is None:
            self._file_system.remove(self.segment.path)  # an empty one, where the log was rolled before the hole
            self._file_system.rename(self.segment.path + TEMPORARY_SUFFIX, self.segment.path)
            self.segment.flushed_size = self.segment.size
            self.segment.name_is_durable = True
            self.segment.index.close()

    def give_up(self) -> None:
        """Leave no trace of what was not finished."""
        if self.into is None:
            self._file_system.remove(self.segment.path + TEMPORARY_SUFFIX)
