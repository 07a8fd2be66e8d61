"""Counts, times, epochs and producers of segments: from each batch, from a checkpoint, or from a walk over the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from klog.record.batch import BatchHeader
from klog.storage.checkpoint import SegmentSummary
from klog.storage.epochs import Epochs, EpochStart
from klog.storage.log_end import LogEnd
from klog.storage.producers import NO_PRODUCER, Producer, Producers
from klog.storage.segment import Segment

MEASURE_BATCHES: Final = 10_000
"""About 10 ms of work."""


def apply_batch(segment: Segment, address: int, header: BatchHeader, epochs: Epochs, producers: Producers) -> None:
    """Account for a batch of the log."""
    if header.leader_epoch > epochs.last:
        epochs.begin(header.leader_epoch, LogEnd(address, segment.end_offset))
    if header.producer_id != NO_PRODUCER:
        producers.written(address, header)
    segment.appended(address, header)


def restore(segment: Segment, summary: SegmentSummary) -> None:
    """Fill a segment in from its checkpoint, which names what it keeps as the segment does."""
    for name, value in summary._asdict().items():
        setattr(segment, name, value)
    segment.flushed_size = summary.size


def summarize(segment: Segment) -> SegmentSummary | None:
    """A segment for the checkpoint; None while its count is unknown."""
    if segment.count is None:
        return None
    return SegmentSummary._make(getattr(segment, name) for name in SegmentSummary._fields)


class Rebuilt(NamedTuple):
    """The result of a walk over segments without a summary, oldest first."""

    epochs: tuple[EpochStart, ...]
    producers: dict[int, Producer]


def measure(segment: Segment, pause: Callable[[], object] = lambda: None) -> Rebuilt:
    """Walk a closed segment and fill it in. Blocks for the length of the file; any thread.

    ``pause`` is called every ``MEASURE_BATCHES`` batches, to let other threads run.
    """
    epochs, producers = Epochs(), Producers()
    count, end, max_timestamp_ms, max_at, has_holes = 0, segment.base_address, -1, segment.base_address, False
    for number, (anchor, header) in enumerate(segment.remembering_walk(segment.base_address)):
        epochs.begin(header.leader_epoch, LogEnd(anchor.address, end))
        if header.producer_id != NO_PRODUCER:
            producers.written(anchor.address, header)
        count += header.count
        end = anchor.address + header.count
        has_holes = has_holes or header.count > header.size_bytes
        if header.max_timestamp_ms > max_timestamp_ms:
            max_timestamp_ms, max_at = header.max_timestamp_ms, anchor.address
        if number % MEASURE_BATCHES == 0:
            pause()
    segment.end_offset = end
    segment.max_timestamp_ms, segment.max_timestamp_address = max_timestamp_ms, max_at
    segment.has_holes = has_holes
    segment.count = count  # last: readers trust the rest once it is set
    return Rebuilt(epochs.starts, producers.snapshot())
