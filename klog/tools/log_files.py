"""``klog log dump`` and ``verify``: segment files as rows. PATH is a file, a partition's folder or a log dir."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, groupby

from klog.errors import UnsupportedCodec
from klog.record.batch import LENGTH_PREFIX_BYTES, BatchHeader
from klog.record.codec import CODEC_MASK
from klog.tools.log_survey import EVERYTHING, FAULTS, Batch, LogRange, Meter, State, Stretch, find_folders, survey


@dataclass(frozen=True, slots=True)
class LogRow:
    """A batch, or a stretch of addresses without one: [base_offset, end).

    ``bytes`` are those in the file. ``timestamp`` is the batch's largest; ``producer`` None without an idempotent one.
    ``reason`` names the error, or comes from the record of a hole.
    """

    base_offset: int
    end: int
    bytes: int
    messages: int | None = field(default=None, kw_only=True)
    codec: str | None = field(default=None, kw_only=True)
    timestamp: datetime | None = field(default=None, kw_only=True)
    epoch: int | None = field(default=None, kw_only=True)
    producer: int | None = field(default=None, kw_only=True)
    state: str
    file: str = field(metadata={"wide": True})
    reason: str | None = field(default=None, metadata={"wide": True})

    @property
    def is_fault(self) -> bool:
        return self.state in FAULTS


def dump(path: str | os.PathLike[str], within: LogRange = EVERYTHING) -> Iterator[LogRow]:
    """One row per batch that reaches into the range, and one for each stretch that has none, in the order of addresses.

    Raises NoSuchThing and UsageError for the path, StorageError; never for what is in the files.
    """
    for folder, segments in find_folders(path):
        for event in within.survey(folder, segments):
            yield row_of(event)


def verify(path: str | os.PathLike[str], meter: Meter | None = None) -> Iterator[LogRow]:
    """Every batch checked; a row for each run of good ones in a file, and for each stretch that holds none.

    A run's row has the sums, its first address, its largest timestamp and its last epoch; ``codec`` and ``producer``
    where all of it agrees. A fault anywhere (``LogRow.is_fault``) is a failed verification.
    """
    meter, folders = meter or Meter(), find_folders(path)
    meter.expect(folders)
    for folder, segments in folders:
        events = meter.over(survey(folder, segments))
        for file, some in groupby(events, lambda event: event.file if isinstance(event, Batch) else None):
            if file is None:
                yield from map(row_of, some)
            else:
                yield _run(file, (event.header for event in some if isinstance(event, Batch)))


def _run(file: str, headers: Iterator[BatchHeader]) -> LogRow:
    """The sums over good batches, one behind the other in one file. No row a batch: there are millions in a file."""
    first = last = next(headers)
    size = messages = 0
    newest_ms = -1
    codecs: set[int] = set()
    producers: set[int] = set()
    for last in chain([first], headers):
        size += last.batch_length + LENGTH_PREFIX_BYTES
        messages += last.count
        newest_ms = max(newest_ms, last.max_timestamp_ms)
        codecs.add(last.attributes & CODEC_MASK)
        producers.add(last.producer_id)
    return LogRow(
        base_offset=first.base_offset,
        end=last.next_address,
        bytes=size,
        messages=messages,
        codec=_codec(last) if len(codecs) == 1 else None,
        timestamp=_moment(newest_ms),
        epoch=last.leader_epoch,
        producer=last.producer_id if len(producers) == 1 and last.producer_id >= 0 else None,
        state=State.OK,
        file=file,
    )


def row_of(event: Batch | Stretch) -> LogRow:
    if isinstance(event, Stretch):
        return LogRow(
            base_offset=event.address,
            end=event.end,
            bytes=event.bytes,
            state=event.state,
            file=event.file,
            reason=event.reason,
        )
    header = event.header
    return LogRow(
        base_offset=header.base_offset,
        end=header.next_address,
        bytes=header.size_bytes,
        messages=header.count,
        codec=_codec(header),
        timestamp=_moment(header.max_timestamp_ms),
        epoch=header.leader_epoch,
        producer=header.producer_id if header.has_producer else None,
        state=State.OK,
        file=event.file,
    )


def _codec(header: BatchHeader) -> str:
    try:
        return header.codec.label
    except UnsupportedCodec:
        return str(header.attributes & CODEC_MASK)


def _moment(timestamp_ms: int) -> datetime | None:
    """None for -1, which is not a time, and for times outside the calendar."""
    if timestamp_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms // 1000, UTC).replace(microsecond=timestamp_ms % 1000 * 1000)
    except (OverflowError, ValueError, OSError):
        return None
