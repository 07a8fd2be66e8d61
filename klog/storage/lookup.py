"""Look-ups in a log: counts, offsets by number or time, places. Over a tuple of segments; any thread."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from klog.errors import OffsetOutOfRange, PeerError
from klog.record.batch import BatchHeader
from klog.record.records import record_times
from klog.storage.log_end import LogEnd
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


def count(segments: tuple[Segment, ...], from_offset: int, to_offset: int) -> int | None:
    """Records with from_offset <= offset < to_offset; None while a segment between is not counted yet."""
    if to_offset <= from_offset:
        return 0
    first, last = segment_at(segments, from_offset), segment_at(segments, to_offset)
    total = segments[last].count_before(to_offset) - segments[first].count_before(from_offset)
    for segment in segments[first:last]:
        if segment.count is None:
            return None
        total += segment.count
    return total


def nth(segments: tuple[Segment, ...], end: LogEnd, n: int, from_offset: int) -> int | None:
    """The offset of record ``n`` (from 0) at or after ``from_offset``; the end's if there are fewer."""
    at = segment_at(segments, from_offset)
    n += segments[at].count_before(from_offset)
    for segment in segments[at:]:
        if segment.count is None:
            return None
        if n < segment.count:
            return segment.nth(n)
        n -= segment.count
    return end.offset


def offset_for_time(
    segments: tuple[Segment, ...],
    start_offset: int,
    timestamp_ms: int,
    unpacked_bytes_max: int,
    budget: LookupBudget = UNLIMITED,
) -> tuple[int, int] | None:
    """The first record at or after ``start_offset`` whose timestamp is at or after ``timestamp_ms``: (offset,
    timestamp).

    Headers tell which batches may have it; those are decoded, since their records need not be in order. A batch that
    unpacks to more than ``unpacked_bytes_max`` counts as unreadable (see `_times`).
    """
    for segment in segments[segment_at(segments, start_offset) :]:
        if segment.count is not None and segment.max_timestamp_ms < timestamp_ms:
            continue
        # Anchors have the largest timestamp before them: start at the last one whose timestamp is too early.
        anchors = segment.index.anchors
        at = bisect_right(anchors.max_timestamps_before_ms, timestamp_ms - 1) - 1
        start = max(anchors.addresses[max(at, 0)], segment.index.floor(max(start_offset, segment.base_address)).address)
        for anchor, header in segment.remembering_walk(start):
            budget.spend(min(header.size_bytes, PAGE_BYTES))
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < start_offset:
                continue
            for offset, found_ms in _times(segment, anchor.address, unpacked_bytes_max, budget):
                if found_ms >= timestamp_ms and offset >= start_offset:
                    return offset, found_ms
    return None


def time_of(
    segments: tuple[Segment, ...], offset: int, unpacked_bytes_max: int, budget: LookupBudget = UNLIMITED
) -> int | None:
    """The timestamp of the first record at or after ``offset``; None without one, -1 if it has none.

    Decodes a batch only if its header leaves the record's timestamp open.
    """
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
            (found_ms for at, found_ms in _times(segment, start, unpacked_bytes_max, budget) if at >= offset),
            header.max_timestamp_ms,
        )
    return None


def max_timestamp(
    segments: tuple[Segment, ...], start_offset: int, unpacked_bytes_max: int, budget: LookupBudget = UNLIMITED
) -> tuple[int, int] | None:
    """The first record with the largest timestamp."""
    best: tuple[int, int] | None = None
    for segment in segments:
        if segment.size == 0 or segment.end_offset <= start_offset:
            continue
        if segment.count is not None and best is not None and segment.max_timestamp_ms <= best[1]:
            continue
        found = _max_timestamp_in(segment, start_offset, unpacked_bytes_max, budget)
        if found is not None and (best is None or found[1] > best[1]):
            best = found
    return best


def _max_timestamp_in(
    segment: Segment, start_offset: int, unpacked_bytes_max: int, budget: LookupBudget
) -> tuple[int, int] | None:
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
        for offset, found_ms in _times(segment, address, unpacked_bytes_max, budget):
            if offset >= start_offset and found_ms >= 0 and (best is None or found_ms > best[1]):
                best = offset, found_ms
                if found_ms >= header.max_timestamp_ms:  # none is later, and a batch may have millions of records
                    break
    return best


def _times(segment: Segment, address: int, unpacked_bytes_max: int, budget: LookupBudget) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record of the batch at ``address``.

    Uncompressed batches, and old ones, were appended without inspecting their records, so one may be invalid: an
    unreadable record, and all after it, count as one last record with the largest timestamp. Otherwise a single one
    would fail every look-up that passes it.
    """
    header, data = segment.read_batch(address)
    budget.spend(header.size_bytes)
    try:
        for at, found in enumerate(record_times(data, max_bytes=unpacked_bytes_max)):
            if not at % RECORDS_A_LOOK:
                budget.spend()
            yield found
    except PeerError:
        yield header.last_offset, header.max_timestamp_ms


def locate(segments: tuple[Segment, ...], offset: int) -> Location:
    """The batch that a fetch at ``offset`` begins with."""
    for segment in segments[segment_at(segments, offset) :]:
        start = segment.find(offset)
        if start is not None:
            _, header = next(segment.walk(start))
            return Location(segment.path, start - segment.base_address, header.size_bytes, header)
    raise OffsetOutOfRange(f"no batch at or after offset {offset}")
