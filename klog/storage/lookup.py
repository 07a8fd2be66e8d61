"""Looks up in a log: counts, offsets by number or time, places. Any thread.

Raises StorageError if the log is closed or its dir offline, and RequestTimedOut where a look-up asks for more budget
than was given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from klog.errors import OffsetOutOfRange, PeerError
from klog.record.admission import unpacked_bytes_max
from klog.record.batch import BatchHeader
from klog.record.records import record_times
from klog.storage.log_state import LogState, reads
from klog.storage.lookup_budget import UNLIMITED, LookupBudget
from klog.storage.segment import PAGE_BYTES, Segment

_base_address = attrgetter("base_address")

RECORDS_A_LOOK: Final = 4096
"""Records of a batch between two checks of the budget: a few milliseconds."""


class Location(NamedTuple):
    """A batch in its file."""

    path: str
    position: int
    size: int
    header: BatchHeader


def segment_at(segments: tuple[Segment, ...], offset: int) -> int:
    """The index of the segment whose addresses include ``offset``; 0 if it lies before all."""
    return max(bisect_right(segments, offset, key=_base_address) - 1, 0)


class LookUps(LogState):
    """See the module."""

    __slots__ = ()

    @reads
    def count(self, from_offset: int, to_offset: int) -> int | None:
        """Messages with from_offset <= offset < to_offset, exactly; None while a segment between is not counted yet."""
        segments, from_offset = self.segments, max(from_offset, self.start_offset)
        if to_offset <= from_offset:
            return 0
        first, last = segment_at(segments, from_offset), segment_at(segments, to_offset)
        total = segments[last].count_before(to_offset) - segments[first].count_before(from_offset)
        for segment in segments[first:last]:
            if segment.count is None:
                return None
            total += segment.count
        return total

    @reads
    def nth(self, n: int, from_offset: int) -> int | None:
        """The offset of message ``n`` (from 0) at or after ``from_offset``; the end if there are fewer, None while a
        segment between is not counted yet."""
        segments, end, from_offset = self.segments, self.end, max(from_offset, self.start_offset)
        at = segment_at(segments, from_offset)
        n += segments[at].count_before(from_offset)
        for segment in segments[at:]:
            if segment.count is None:
                return None
            if n < segment.count:
                return segment.nth(n)
            n -= segment.count
        return end.offset

    @reads
    def offset_for_time(self, timestamp_ms: int, budget: LookupBudget = UNLIMITED) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record whose timestamp is at or after ``timestamp_ms``; None without one.

        Headers tell which batches may have it; those are decoded, since their records need not be in order.
        """
        segments, start_offset = self.segments, self.start_offset
        for segment in segments[segment_at(segments, start_offset) :]:
            if segment.count is not None and segment.max_timestamp_ms < timestamp_ms:
                continue
            # Anchors have the largest timestamp before them: start at the last one whose timestamp is too early.
            anchors = segment.index.anchors
            at = bisect_right(anchors.max_timestamps_before_ms, timestamp_ms - 1) - 1
            first = segment.index.floor(max(start_offset, segment.base_address)).address
            for anchor, header in segment.remembering_walk(max(anchors.addresses[max(at, 0)], first)):
                budget.spend(min(header.size_bytes, PAGE_BYTES))
                if header.max_timestamp_ms < timestamp_ms or header.last_offset < start_offset:
                    continue
                for offset, found_ms in self._times(segment, anchor.address, budget):
                    if found_ms >= timestamp_ms and offset >= start_offset:
                        return offset, found_ms
        return None

    def may_have_time(self, timestamp_ms: int) -> bool:
        """Whether `offset_for_time` may find a record, from what is known of the segments; reads nothing."""
        self.check_open()
        return any(one.count is None or one.max_timestamp_ms >= timestamp_ms for one in self.segments)

    @reads
    def time_of(self, offset: int, budget: LookupBudget = UNLIMITED) -> int | None:
        """The timestamp of the first record at or after ``offset``; None without one, -1 if it has none.

        Decodes a batch only if its header leaves the record's timestamp open.
        """
        segments, offset = self.segments, max(offset, self.start_offset)
        for segment in segments[segment_at(segments, offset) :]:
            budget.spend()
            start = segment.find(offset)
            if start is None:
                continue
            _, header = next(segment.walk(start))
            if header.is_log_append_time or header.base_timestamp_ms == header.max_timestamp_ms:
                return header.max_timestamp_ms
            if offset <= start:
                return header.base_timestamp_ms
            return next(
                (found_ms for at, found_ms in self._times(segment, start, budget) if at >= offset),
                header.max_timestamp_ms,
            )
        return None

    @reads
    def max_timestamp(self, budget: LookupBudget = UNLIMITED) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the largest timestamp; None without one."""
        start_offset = self.start_offset
        best: tuple[int, int] | None = None
        for segment in self.segments:
            if segment.size == 0 or segment.end_offset <= start_offset:
                continue
            if segment.count is not None and best is not None and segment.max_timestamp_ms <= best[1]:
                continue
            found = self._max_timestamp_in(segment, start_offset, budget)
            if found is not None and (best is None or found[1] > best[1]):
                best = found
        return best

    def _max_timestamp_in(self, segment: Segment, start_offset: int, budget: LookupBudget) -> tuple[int, int] | None:
        if segment.count is not None and segment.max_timestamp_address >= start_offset:
            candidates = [segment.max_timestamp_address]
        else:  # not counted yet, or the largest was deleted by DeleteRecords: headers tell the next largest
            headers: list[tuple[int, int]] = []
            for anchor, header in segment.remembering_walk(max(start_offset, segment.base_address)):
                budget.spend(min(header.size_bytes, PAGE_BYTES))
                if header.last_offset >= start_offset:
                    headers.append((header.max_timestamp_ms, -anchor.address))
                    headers = sorted(headers, reverse=True)[:2]
            candidates = [-address for _, address in headers]
        best: tuple[int, int] | None = None
        for address in candidates:
            _, header = next(segment.walk(address))
            for offset, found_ms in self._times(segment, address, budget):
                if offset >= start_offset and found_ms >= 0 and (best is None or found_ms > best[1]):
                    best = offset, found_ms
                    if found_ms >= header.max_timestamp_ms:  # none is later, and a batch may have millions of records
                        break
        return best

    def _times(self, segment: Segment, address: int, budget: LookupBudget) -> Iterator[tuple[int, int]]:
        """(offset, timestamp) of each record of the batch at ``address``.

        Uncompressed batches, and old ones, were appended without inspecting their records, so one may be invalid, or
        unpack to too much: an unreadable record, and all after it, count as one last record with the largest timestamp.
        Otherwise a single one would fail every look-up that passes it.
        """
        header, data = segment.read_batch(address)
        budget.spend(header.size_bytes)
        try:
            most = unpacked_bytes_max(self.config.max_message_bytes)
            for at, found in enumerate(record_times(data, max_bytes=most)):
                if not at % RECORDS_A_LOOK:
                    budget.spend()
                yield found
        except PeerError:
            yield header.last_offset, header.max_timestamp_ms

    @reads
    def locate(self, offset: int) -> Location:
        """The batch that a fetch at ``offset`` begins with. Raises OffsetOutOfRange without one."""
        self.check_offset(offset)
        for segment in self.segments[segment_at(self.segments, offset) :]:
            start = segment.find(offset)
            if start is not None:
                _, header = next(segment.walk(start))
                return Location(segment.path, start - segment.base_address, header.size_bytes, header)
        raise OffsetOutOfRange(f"no batch at or after offset {offset}")
