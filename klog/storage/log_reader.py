"""Reads a log: ranges of batches for fetches, places in it. Any thread."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from klog.errors import OffsetOutOfRange, StorageError
from klog.storage import checksums
from klog.storage.checksums import Checksum
from klog.storage.log_end import LogEnd
from klog.storage.log_state import reads
from klog.storage.lookup import LookUps
from klog.storage.segment import FileRange, Segment

_base_address = attrgetter("base_address")


class LogReader(LookUps):
    """See the module."""

    __slots__ = ()

    # --- Reading ---

    def read(self, offset: int, max_bytes: int, limit_address: int, at_least_one: bool = True) -> list[FileRange]:
        """Whole batches from the first that has a record at or after ``offset``, none beyond ``limit_address``.

        From one segment, up to ``max_bytes``, but the first batch whole if ``at_least_one``. Empty if nothing follows
        below the limit. Raises OffsetOutOfRange, StorageError.
        """
        if self.log_dir.failure is not None or self.is_closed:
            self.check_open()
        end = self.end
        if offset < self.start_offset or offset > end.address:
            self.check_offset(offset)
        if offset >= end.offset:
            return []
        segments = self.segments
        at = len(segments) - 1
        if offset < segments[at].base_address:
            at = max(bisect_right(segments, offset, key=_base_address) - 1, 0)
        try:
            while at < len(segments):
                segment = segments[at]
                if segment.base_address >= limit_address:
                    return []
                start = segment.find(offset)
                if start is not None:
                    if start >= limit_address:
                        return []
                    return segment.ranges(start, max_bytes, limit_address, at_least_one=at_least_one)
                at += 1
        except StorageError as error:
            raise self.read_failed(error) from error
        return []

    def read_from(self, address: int, max_bytes: int) -> tuple[int, list[FileRange]]:
        """For a follower: whole batches from ``address`` up to the log end, and the address where they begin.

        Ignores the log start offset. ``address`` must be a place where a log may end (`floor`, `is_in_hole`); behind a
        hole the batches begin later. From one segment, up to ``max_bytes``, but the first batch whole. Raises
        OffsetOutOfRange, StorageError.
        """
        if self.log_dir.failure is not None or self.is_closed:
            self.check_open()
        end, segments = self.end.address, self.segments
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
            raise self.read_failed(error) from error

    def floor(self, address: int) -> LogEnd:
        """The highest batch start or end at or below ``address``. Raises OffsetOutOfRange below the first segment.

        Walks over headers, so call it in a thread unless `is_known`.
        """
        end, segments = self.end, self.segments
        if address >= end.address:
            return end
        at = bisect_right(segments, address, key=_base_address) - 1
        if at < 0:
            raise OffsetOutOfRange(f"{self.topic_partition}: {address} is below {segments[0].base_address}")
        segment = segments[at]
        if address >= segment.end_address:  # at its end, or in the hole behind it
            return LogEnd(segment.end_address, segment.end_offset)
        before = next((one.end_offset for one in reversed(segments[:at]) if one.size), self.start_offset)
        found = LogEnd(segment.base_address, min(before, segment.base_address))
        if address == segment.base_address:
            return found
        return self._floor_in(segment, address, found)

    @reads
    def _floor_in(self, segment: Segment, address: int, found: LogEnd) -> LogEnd:
        """`floor` within one segment; ``found`` is its first address."""
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

    def is_in_hole(self, address: int) -> bool:
        """Whether ``address`` lies in a hole of the log, or at one of its edges."""
        segments = self.segments
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

    def is_known(self, offset: int, walk_bytes: int = 1 << 20) -> bool:
        """Whether ``read`` finds its batch without a long walk; if not, read in a thread."""
        if self.log_dir.is_stalled:
            return False
        if offset >= self.end.offset:
            return True
        segments = self.segments
        segment = segments[max(bisect_right(segments, offset, key=_base_address) - 1, 0)]
        return offset <= segment.base_address or segment.index.distance(offset) <= walk_bytes

    def is_resident(self, ranges: list[FileRange]) -> bool:
        """Whether the page cache has these bytes, so that sendfile does not wait for the disk (rule L8)."""
        return all(file.is_resident(position, size) for file, position, size in ranges)

    def warm(self, ranges: list[FileRange]) -> None:
        """Read these bytes into the page cache. Blocks."""
        try:
            for file, position, size in ranges:
                file.warm(position, size)
        except StorageError as error:
            raise self.read_failed(error) from error

    @reads
    def checksum(self, first: int, end: int, seed: int = 0) -> Checksum:
        """The CRC of addresses [first, end), which must be in the log; see `klog.storage.checksums`."""
        return checksums.checksum(self.segments, first, end, seed)

    def batch_checks(self, address: int) -> bool:
        """Whether the batch around the byte at ``address`` is valid."""
        self.check_open()
        return checksums.batch_checks(self.segments, address)
