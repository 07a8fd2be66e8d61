"""A segment file: ``<20-digit first address>.log``, record batches and nothing else.

A batch at address A lies at file position A - base_address. A batch with more records than bytes is followed by a hole
of zeros up to the next batch's address; zeros are never sent. A segment ends at ``end_address``, where the next begins
unless a ``.damaged`` record says otherwise.
After a crash the file may end in a part of a batch: recovery truncates it.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from klog.errors import CorruptLog, OffsetOutOfRange, StorageError
from klog.record.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader, read_header
from klog.storage.batch_index import Anchor, BatchIndex
from klog.storage.file_pool import FilePool
from klog.storage.filesystem import FileSystem, LogFile

SUFFIX: Final = ".log"
WALK_BYTES: Final = 128 * 1024
"""Bytes that a walk reads at once where batches are small; a page where they are larger."""
PAGE_BYTES: Final = 4096


class FileRange(NamedTuple):
    """A run of whole batches, ready for sendfile. It keeps the descriptor open."""

    file: LogFile
    position: int
    size: int


def segment_name(base_address: int) -> str:
    """The file name of the segment that begins at ``base_address``."""
    return f"{base_address:020d}{SUFFIX}"


def base_address_of(name: str) -> int | None:
    """The base address in a file name; None if it is not a segment's."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if len(stem) == 20 and stem.isdecimal() and name.endswith(SUFFIX) else None


class Segment:
    """A segment and its totals. The owner thread appends and truncates; any thread reads.

    ``count`` is None while unknown; ``end_offset`` is the last record's offset + 1 (``base_address`` while empty).
    """

    __slots__ = (
        "_file",
        "_file_system",
        "_pool",
        "base_address",
        "count",
        "created_ms",
        "end_address",
        "end_offset",
        "flushed_size",
        "has_holes",
        "index",
        "is_removed",
        "max_timestamp_address",
        "max_timestamp_ms",
        "modified_ms",
        "name_is_durable",
        "path",
        "size",
        "was_used",
    )

    def __init__(self, file_system: FileSystem, folder: str, base_address: int, pool: FilePool) -> None:
        self._file_system = file_system
        self._pool = pool
        self._file: LogFile | None = None
        self.path = f"{folder}/{segment_name(base_address)}"
        self.base_address = base_address
        self.end_address = base_address
        self.end_offset = base_address
        self.size = 0
        self.flushed_size = 0
        self.count: int | None = 0
        self.max_timestamp_ms = -1
        self.max_timestamp_address = base_address
        self.has_holes = False
        self.created_ms = 0
        self.modified_ms = 0
        self.index = BatchIndex(base_address, pool.index_budget)
        self.name_is_durable = False
        self.was_used = False
        self.is_removed = False

    def __repr__(self) -> str:
        return f"Segment({self.path}, to {self.end_address})"

    # --- The file ---

    @property
    def file(self) -> LogFile:
        """The open file; opens it if necessary."""
        file = self._file
        if file is None:
            try:
                file = self._file_system.open(self.path)
            except StorageError:
                if self.is_removed:  # retention has removed it before this read
                    raise OffsetOutOfRange(f"{self.path} was removed by retention") from None
                raise
            self._file = file
            self._pool.opened(self)
        self.was_used = True
        return file

    def create(self) -> None:
        """Create the file. Its name is durable only after the folder is flushed."""
        self._file = self._file_system.open(self.path, create=True)
        self._pool.opened(self)

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def may_let_go(self) -> bool:
        return self.flushed_size >= self.size

    def let_go(self) -> None:
        self._file = None

    def close(self) -> None:
        self._pool.closed(self)
        self._file = None

    # --- What is appended ---

    def appended(self, address: int, header: BatchHeader) -> None:
        """Account for the batch written (or found) at ``address``, the end so far."""
        count = header.count
        size = header.batch_length + LENGTH_PREFIX_BYTES
        end = address + size
        self.count = count_after = (self.count or 0) + count
        self.index.add(address, count_after, self.max_timestamp_ms)
        if header.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp_ms
            self.max_timestamp_address = address
        self.size = end - self.base_address
        self.end_offset = address + count
        if count > size:
            self.has_holes = True
            end = address + count
        self.end_address = end

    # --- Finding batches ---

    def walk(self, anchor: int, until: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from the batch start ``anchor`` on that begin below ``until``. Raises CorruptLog."""
        end = self.base_address + self.size
        until = end if until is None else min(until, end)
        file = self.file
        chunk_bytes = PAGE_BYTES
        address = anchor
        while address < until:
            chunk = file.read_at(address - self.base_address, min(chunk_bytes, end - address))
            origin = address
            last = origin + len(chunk) - HEADER_BYTES
            if last < address:
                raise CorruptLog(f"{self.path}: no whole batch header at {address}; the file ends there")
            seen = 0
            while address <= last and address < until:
                header = read_header(chunk, address - origin)
                if header.base_offset != address or header.size_bytes < HEADER_BYTES:
                    raise CorruptLog(
                        f"{self.path}: at address {address} found base offset {header.base_offset}"
                        f" and length {header.batch_length}, expected a batch of that address"
                    )
                yield address, header
                address = header.next_address
                seen += 1
            chunk_bytes = WALK_BYTES if seen > 1 else PAGE_BYTES

    def remembering_walk(self, address: int, until: int | None = None) -> Iterator[tuple[Anchor, BatchHeader]]:
        """``walk`` from the last anchor at or below ``address``, with the counts before each batch; adds anchors."""
        return self._walk_from(self.index.floor(address), until)

    def _walk_from(self, first: Anchor, until: int | None = None) -> Iterator[tuple[Anchor, BatchHeader]]:
        index = self.index
        start, count, max_timestamp_ms, offset_before = first
        reach = start + 2 * WALK_BYTES
        for at, header in self.walk(start, until):
            anchor = Anchor(at, count, max_timestamp_ms, offset_before)
            if at >= reach:
                index.remember(anchor)
                reach = at + 2 * WALK_BYTES
            yield anchor, header
            count += header.count
            max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp_ms)
            offset_before = at + header.count

    def find(self, offset: int) -> int | None:
        """The start of the first batch that has a record at or after ``offset``; None without one."""
        if offset >= self.end_offset or not self.size:
            return None
        if offset <= self.base_address:
            return self.base_address
        starts, counts_before = self.index.dense
        length = len(starts)
        if length and offset >= starts[0]:
            at = bisect_right(starts, offset, 0, length) - 1
            start = starts[at]
            if offset == start or offset - start < counts_before[at + 1] - counts_before[at]:
                return start
            return starts[at + 1] if at + 1 < length else None
        near = self.index.floor_by_offset(offset)
        if offset <= near.address:
            return near.address
        for anchor, header in self._walk_from(near):
            if header.last_offset >= offset:
                return anchor.address
        return None

    def count_before(self, offset: int) -> int:
        """The number of records in this segment below ``offset``, exactly."""
        if offset <= self.base_address:
            return 0
        if offset >= self.end_offset and self.count is not None:
            return self.count
        starts, counts_before = self.index.dense
        length = len(starts)
        if length and offset >= starts[0]:
            at = bisect_right(starts, offset, 0, length) - 1
            before = counts_before[at]
            return before + min(offset - starts[at], counts_before[at + 1] - before)
        first = self.index.floor(offset)
        before = first.count_before  # final if the offset is the anchor's: then nothing is walked
        for anchor, header in self._walk_from(first, offset):
            before = anchor.count_before + min(header.count, offset - anchor.address)
        return before

    def nth(self, index: int) -> int:
        """The offset of record ``index`` (from 0) of this segment, which must have that many."""
        starts, counts_before = self.index.dense
        length = len(starts)
        if length and index >= counts_before[0]:
            at = bisect_right(counts_before, index, 0, length) - 1
            return starts[at] + index - counts_before[at]
        anchors = self.index.anchors
        at = bisect_right(anchors.counts_before, index) - 1
        for anchor, header in self.remembering_walk(anchors.addresses[at]):
            if index < anchor.count_before + header.count:
                return anchor.address + index - anchor.count_before
        raise CorruptLog(f"{self.path}: has no record {index}")

    def ranges(self, start: int, max_bytes: int, limit_address: int, *, at_least_one: bool) -> list[FileRange]:
        """Whole batches from the batch start ``start``, none of which reaches past ``limit_address``.

        Up to ``max_bytes``, but the first batch whole if ``at_least_one`` (KIP-74).
        """
        limit = min(limit_address, self.end_address)
        if start + max_bytes >= limit and limit == self.end_address:
            end = limit
        else:
            end = self._whole_batches_end(start, min(start + max_bytes, limit))
            if end <= start:
                if not at_least_one:
                    return []
                _, header = next(self.walk(start))
                end = header.next_address
                if end > limit:
                    return []
        if self.has_holes:
            return self._ranges_around_holes(start, end)
        return [FileRange(self.file, start - self.base_address, end - start)]

    def _whole_batches_end(self, start: int, reach: int) -> int:
        """The last known batch start in (start, reach]; ``start`` if there is none."""
        starts, _ = self.index.dense
        length = len(starts)
        if length and reach >= starts[0]:
            end = starts[bisect_right(starts, reach, 0, length) - 1]
            if end > start or starts[0] <= start:
                return end
        anchor = self.index.floor(reach).address
        # Fewer bytes than asked for are better than a walk.
        if anchor - start >= (reach - start) // 2 and anchor > start:
            return anchor
        end = start
        for at, header in self.walk(max(start, anchor), reach):
            end = at
            if header.next_address <= reach:
                end = header.next_address
        return end

    def _ranges_around_holes(self, start: int, end: int) -> list[FileRange]:
        file = self.file
        ranges: list[FileRange] = []
        run = at = start
        for address, header in self.walk(start, end):
            if address != at:
                ranges.append(FileRange(file, run - self.base_address, at - run))
                run = address
            at = address + header.size_bytes
        ranges.append(FileRange(file, run - self.base_address, at - run))
        return ranges

    # --- Cutting ---

    def cut(self, address: int) -> Segment:
        """A copy of this segment without the batches from the batch start ``address`` on; leaves the file unchanged.

        Raises CorruptLog where no batch starts there.
        """
        cut = Segment(self._file_system, os.path.dirname(self.path), self.base_address, self._pool)
        cut.created_ms, cut.modified_ms, cut.name_is_durable = self.created_ms, self.modified_ms, self.name_is_durable
        keeps_newest = self.max_timestamp_address < address
        first = self.index.floor(address - 1) if keeps_newest and address > self.base_address else None
        start = self.base_address
        if first is not None:
            for known in self.index.known_below(first.address):
                cut.index.remember(known)
            cut.index.remember(first)
            cut.index.start_dense(first.count_before)
            cut.count, start = first.count_before, first.address
            cut.max_timestamp_ms = first.max_timestamp_before_ms
            cut.has_holes = self.has_holes
        cut.end_address = start
        for at, header in self.walk(start, address):
            cut.appended(at, header)
        if keeps_newest and cut.size:
            cut.max_timestamp_ms, cut.max_timestamp_address = self.max_timestamp_ms, self.max_timestamp_address
        if cut.end_address != address:
            raise CorruptLog(f"{self.path}: no batch starts at {address}; one reaches from before to {cut.end_address}")
        cut.flushed_size = min(self.flushed_size, cut.size)
        return cut

    # --- Making it last ---

    def sync(self, size: int, *, written: bool = False) -> None:
        """Flush the file, which has ``size`` bytes. ``written``: it was synced already; only raise its write-back
        error.

        Blocks; any thread.
        """
        if written:
            self.file.confirm()
        else:
            self.file.sync()
        self.flushed_size = max(self.flushed_size, size)

    def read_batch(self, address: int) -> tuple[BatchHeader, bytes]:
        """The whole batch at the batch start ``address``."""
        _, header = next(self.walk(address))
        data = self.file.read_at(address - self.base_address, header.size_bytes)
        if len(data) < header.size_bytes:
            raise StorageError(f"{self.path}: batch at {address} ends after {len(data)} bytes")
        return header, data
