"""Runs of whole record batches as Arrow columns, by arithmetic across all records of a run at once.

Strategy: a record starts where the one before it ends, so one pass reads the length of each: in Python, 0.25 us per
record, except runs of records of one length, which are recognized together. Every other field is read by numpy
for all records together: a varint is read by as many steps as the longest of them has bytes. Keys and values are never
Python objects: an Arrow array is laid over the run so that its elements are, in turn, a gap and a value, and taking
every second one copies the values together.

Limits: CRCs are checked, a run of batches that lies raises CorruptBatch, and what is decompressed is cut into Arrow
batches of about ``batch_bytes``, and of `ROWS_AT_ONCE` records, so that one run costs at most that and one batch of
the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from klog.client.raw_fetch import Range
from klog.errors import CorruptBatch
from klog.export.message_columns import SCHEMA
from klog.record.batch import (
    CONTROL,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    RECORD_BYTES_MIN,
    BatchHeader,
    Bytes,
    check_crc,
    walk,
)
from klog.record.codec import CODEC_MASK
from klog.record.records import HEADERS_MAX, VARINT_BYTES_MAX, VARLONG_BYTES_MAX, read_varint, records_bytes
from klog.spark.options import BATCH_BYTES

ROWS_AT_ONCE: Final = 250_000
"""Each takes some 300 bytes while its fields are read. A batch of a few KB may hold tens of millions."""
SCALAR_BELOW: Final = 8
"""So few records are read one by one: less than this and a round of numpy calls costs more."""
ALIKE_MIN: Final = 16
"""So many records of one length in a row are worth looking for; where there are not, twice as many are read before the
next look, so that looking costs nothing where lengths differ."""
PATIENCE_MAX: Final = 4096
MUCH_ALIKE_BYTES: Final = 64 * 1024
"""Longer records are few in a run."""
MICROSECONDS_MAX: Final = (2**63 - 1) // 1000

Ints = NDArray[np.int64]


class _Spans(NamedTuple):
    """Where values lie in the data; a negative ``sizes`` is a null."""

    starts: Ints
    sizes: Ints

    def where(self, wanted: NDArray[np.bool_]) -> _Spans:
        return _Spans(self.starts[wanted], self.sizes[wanted])


class _Fields(NamedTuple):
    """What is known of all records of a run after the walk over their fields."""

    offsets: Ints
    timestamps_ms: Ints
    timestamp_types: NDArray[np.int32]
    keys: _Spans
    values: _Spans
    header_counts: Ints
    headers_at: Ints
    ends: Ints


def decode(
    records: Bytes, wanted: Range, columns: Sequence[str] = tuple(SCHEMA.names), *, batch_bytes: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """The records of a run of whole batches with offsets in ``wanted``, as Arrow batches of these columns of SCHEMA.

    Control batches hold none. Yields nothing where nothing is left. Raises CorruptBatch, UnsupportedFormat,
    UnsupportedCodec.
    """
    parts: list[Bytes] = []
    headers: list[BatchHeader] = []
    size = 0
    view = memoryview(records)
    for position, header in walk(view):
        try:
            check_crc(view, position, header)
        except CorruptBatch as error:
            raise CorruptBatch(
                f"{wanted.topic}-{wanted.partition}: {error.message}",
                hint="`klog log verify` on the leader tells all that is damaged; `klog topic verify` compares "
                "with others",
            ) from None
        base_offset, length, _, _, _, attributes, last_offset_delta, *_ = header
        if base_offset >= wanted.to_offset or base_offset + last_offset_delta < wanted.from_offset:
            continue
        if attributes & CONTROL:
            continue
        if attributes & CODEC_MASK:
            part = records_bytes(view, position, header)
        else:
            part = view[position + HEADER_BYTES : position + length + LENGTH_PREFIX_BYTES]
        if not part and not header.count:
            continue  # what Kafka's compaction leaves of a batch without records
        if headers and (size + len(part) > batch_bytes or header.count > ROWS_AT_ONCE):
            yield from _decode(parts, headers, wanted, columns)
            parts, headers, size = [], [], 0
        if header.count > ROWS_AT_ONCE:
            for piece, alone in _pieces(part, header):
                yield from _decode([piece], [alone], wanted, columns)
            continue
        parts.append(part)
        headers.append(header)
        size += len(part)
    if headers:
        yield from _decode(parts, headers, wanted, columns)


def _pieces(part: Bytes, header: BatchHeader) -> Iterator[tuple[Bytes, BatchHeader]]:
    """A batch's records, so many at a time, as if they were all of it. `_decode` finds their errors."""
    data, at, left = bytes(part), 0, header.count
    while left > ROWS_AT_ONCE:
        try:
            end = _one_by_one(data, at, ROWS_AT_ONCE, lambda _: None)
        except IndexError:
            raise CorruptBatch(f"the batch at {header.base_offset} ends before its last records") from None
        yield data[at:end], header._replace(count=ROWS_AT_ONCE)
        at, left = end, left - ROWS_AT_ONCE
    yield data[at:], header._replace(count=left)


def _decode(
    parts: Sequence[Bytes], headers: Sequence[BatchHeader], wanted: Range, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    data = b"".join(parts)
    try:
        fields = _inside(_fields(data, parts, headers), wanted)
        rows = len(fields.offsets)
        if not rows:
            return
        make: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: _binary(data, fields.keys),
            "value": lambda: _binary(data, fields.values),
            "topic": lambda: pa.repeat(pa.scalar(wanted.topic, pa.string()), rows),
            "partition": lambda: pa.repeat(pa.scalar(wanted.partition, pa.int32()), rows),
            "offset": lambda: pa.array(fields.offsets),
            "timestamp": lambda: _timestamps(fields.timestamps_ms),
            "timestampType": lambda: pa.array(fields.timestamp_types),
            "headers": lambda: _headers(data, fields),
        }
        arrays = [make[column]() for column in columns]
    except IndexError:
        raise CorruptBatch(f"{wanted}: a record reaches past the end of its batch") from None
    yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(column) for column in columns]))


# --- The fields of all records ---


def _fields(data: bytes, parts: Sequence[Bytes], headers: Sequence[BatchHeader]) -> _Fields:
    starts, batch_ends = _starts(data, parts, headers)
    array = np.frombuffer(data, np.uint8)
    columns = BatchHeader._make(zip(*headers, strict=True))
    counts = np.array(columns.count, np.int64)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts) - 1] = batch_ends

    sizes, at = _varints(array, starts)
    _require((sizes >= RECORD_BYTES_MIN - 1) & (at + sizes == ends), "a record's length")
    time_deltas, at = _varints(array, at + 1, VARLONG_BYTES_MAX)  # behind the attributes, which say nothing
    offset_deltas, at = _varints(array, at)
    keys, at = _spans(array, at, ends)
    values, at = _spans(array, at, ends)
    _require(at < ends, "a record's length")
    header_counts, at = _varints(array, at)
    _require(
        np.where(header_counts == 0, at == ends, (header_counts > 0) & (2 * header_counts <= ends - at)),
        "the number of a record's headers",
    )
    if (most := int(header_counts.max(initial=0))) > HEADERS_MAX:
        raise CorruptBatch(f"a record has {most} headers; at most {HEADERS_MAX} are read")

    def each(of_batches: Any) -> Ints:
        return np.repeat(np.asarray(of_batches, np.int64), counts)

    _require((offset_deltas >= 0) & (offset_deltas <= each(columns.last_offset_delta)), "an offset")
    timestamps_ms = each(columns.base_timestamp_ms) + time_deltas
    is_append_time = np.array(columns.attributes, np.int64) & LOG_APPEND_TIME != 0
    if is_append_time.any():
        timestamps_ms = np.where(each(is_append_time), each(columns.max_timestamp_ms), timestamps_ms)
    return _Fields(
        each(columns.base_offset) + offset_deltas,
        timestamps_ms,
        each(is_append_time).astype(np.int32),
        keys,
        values,
        header_counts,
        at,
        ends,
    )


def _starts(data: bytes, parts: Sequence[Bytes], headers: Sequence[BatchHeader]) -> tuple[Ints, list[int]]:
    """Where each record of each batch begins, and where each batch ends. The lengths are checked later, all at once."""
    starts: list[Ints] = []
    ends: list[int] = []
    scattered: list[int] = []
    at = end = 0
    patience, wait = ALIKE_MIN, 0
    for part, header in zip(parts, headers, strict=True):
        end += len(part)
        ends.append(end)
        left = header.count
        if left < 1:
            raise CorruptBatch(f"batch at {header.base_offset} says it has {left} records")
        while left:
            if wait <= 0 and left >= ALIKE_MIN:
                size, count = _alike(data, at, left)
                if count >= ALIKE_MIN:
                    starts += [np.array(scattered, np.int64), np.arange(at, at + size * count, size, dtype=np.int64)]
                    scattered = []
                    at += size * count
                    left -= count
                    patience = ALIKE_MIN
                    continue
                patience = wait = min(patience * 2, PATIENCE_MAX)
            number = min(left, wait) if wait > 0 else left
            at = _one_by_one(data, at, number, scattered.append)
            left -= number
            wait -= number
        if at != end:
            raise CorruptBatch(f"the records of the batch at {header.base_offset} end at byte {at}, not {end}")
    return np.concatenate([*starts, np.array(scattered, np.int64)]), ends


def _alike(data: bytes, at: int, count: int) -> tuple[int, int]:
    """(size, how many) of records in a row, from the one at ``at`` on, that are as long as that one; at most ``count``.

    A record that has the first one's length in front of it ends where the next one begins; so if every place at that
    distance from the one before has the same bytes of a length, all of them are starts.
    """
    length, behind = read_varint(data, at)
    size = behind - at + length
    if length < 0 or size > MUCH_ALIKE_BYTES:
        return 0, 0
    for place in range(at, behind):
        found = data[place : place + size * (count - 1) + 1 : size]
        count = len(found) - len(found.lstrip(found[:1]))  # how many are as the first one
    return size, count


def _one_by_one(data: bytes, at: int, count: int, append: Callable[[int], None]) -> int:
    """Append where each of ``count`` records begins; the position behind them."""
    for _ in range(count):
        append(at)
        byte = data[at]
        if byte < 0x80:
            at += 1 + (byte >> 1)
        elif (second := data[at + 1]) < 0x80:
            at += 2 + (((byte & 0x7F) | second << 7) >> 1)
        else:
            length, at = read_varint(data, at)
            at += length
    return at


def _varints(array: NDArray[np.uint8], at: Ints, bytes_max: int = VARINT_BYTES_MAX) -> tuple[Ints, Ints]:
    """The zigzag numbers at these positions, and the positions behind them."""
    read = array[at]
    after = at + 1
    if not (more := np.flatnonzero(read & 0x80)).size:
        small = read.astype(np.int64)
        return (small >> 1) ^ -(small & 1), after
    found = (read & 0x7F).astype(np.uint64)
    for shift in range(7, 7 * bytes_max, 7):
        read = array[after[more]]
        found[more] |= (read & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[read >= 0x80]
        if not more.size:
            # Shifted while unsigned: the ten bytes of a varlong fill all 64 bits.
            return (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64), after
    raise CorruptBatch(f"a number in a record does not end within {bytes_max} bytes")


def _spans(array: NDArray[np.uint8], at: Ints, ends: Ints) -> tuple[_Spans, Ints]:
    """Bytes behind their lengths, and the positions behind them, which lie inside their records."""
    sizes, starts = _varints(array, at)
    after = starts + np.maximum(sizes, 0)
    _require((sizes >= -1) & (after <= ends), "the length of a key, value or header")
    return _Spans(starts, sizes), after


def _require(holds: NDArray[np.bool_], what: str) -> None:
    if not holds.all():
        raise CorruptBatch(f"{what} reaches past its place, in record {int(np.argmin(holds))} of the run")


def _inside(fields: _Fields, wanted: Range) -> _Fields:
    """Only the records with offsets in the range wanted; most often that is all of them."""
    offsets = fields.offsets
    inside = (offsets >= wanted.from_offset) & (offsets < wanted.to_offset)
    if inside.all():
        return fields
    kept: list[Any] = [one.where(inside) if isinstance(one, _Spans) else one[inside] for one in fields]
    return _Fields(*kept)


# --- Arrow arrays ---


def _binary(data: bytes, spans: _Spans) -> pa.Array:
    """The values at these ascending, disjoint places."""
    count = len(spans.starts)
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0] = 0
    bounds[1::2] = spans.starts
    nulls = spans.sizes < 0
    has_nulls = bool(nulls.any())
    bounds[2::2] = spans.starts + (np.maximum(spans.sizes, 0) if has_nulls else spans.sizes)
    laid_over = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    every_second = np.arange(1, 2 * count, 2, dtype=np.int32)
    return laid_over.take(pa.array(every_second, mask=nulls if has_nulls else None))


def _timestamps(timestamps_ms: Ints) -> pa.Array:
    """Microseconds; what lies beyond them (some 290,000 years) is shown as the last that there is."""
    clipped = np.clip(timestamps_ms, -MICROSECONDS_MAX, MICROSECONDS_MAX)
    return pa.array(clipped * 1000).cast(pa.timestamp("us", "UTC"))


def _headers(data: bytes, fields: _Fields) -> pa.Array:
    array = np.frombuffer(data, np.uint8)
    counts = fields.header_counts
    found: list[tuple[Ints, _Spans, _Spans]] = []
    open_rows = np.flatnonzero(counts)
    left = counts[open_rows]
    at = fields.headers_at[open_rows]
    while open_rows.size:
        if open_rows.size < SCALAR_BELOW:
            found += [
                _headers_of_one(data, int(row), int(position), int(number), int(fields.ends[row]))
                for row, position, number in zip(open_rows, at, left, strict=True)
            ]
            break
        ends = fields.ends[open_rows]
        names, at = _spans(array, at, ends)
        _require(names.sizes >= 0, "the name of a header")
        contents, at = _spans(array, at, ends)
        found.append((open_rows, names, contents))
        left = left - 1
        _require((left > 0) | (at == ends), "a record's last header")
        goes_on = left > 0
        open_rows, at, left = open_rows[goes_on], at[goes_on], left[goes_on]
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    type_: Any = SCHEMA.field("headers").type
    if not found:
        return pa.ListArray.from_arrays(pa.array(bounds), pa.array([], type_.value_type), type=type_)
    order = np.argsort(np.concatenate([rows for rows, _, _ in found]), kind="stable")
    names, contents = (
        _Spans(*(np.concatenate([one[which][part] for one in found])[order] for part in (0, 1))) for which in (1, 2)
    )
    pairs = pa.StructArray.from_arrays(
        [_text(_binary(data, names)), _binary(data, contents)], fields=list(type_.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(bounds), pairs, type=type_)


def _headers_of_one(data: bytes, row: int, at: int, count: int, end: int) -> tuple[Ints, _Spans, _Spans]:
    numbers: list[tuple[int, int, int, int]] = []
    for _ in range(count):
        name_size, name_at = read_varint(data, at)
        size, content_at = read_varint(data, name_at + max(name_size, 0))
        at = content_at + max(size, 0)
        if name_size < 0 or size < -1 or at > end:
            raise CorruptBatch(f"a header reaches past its place, in record {row} of the run")
        numbers.append((name_at, name_size, content_at, size))
    if at != end:
        raise CorruptBatch(f"a record's last header reaches past its place, in record {row} of the run")
    columns = np.array(numbers, np.int64).T
    return np.full(count, row, np.int64), _Spans(columns[0], columns[1]), _Spans(columns[2], columns[3])


def _text(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:  # no UTF-8: shown with U+FFFD, as by the record decoder
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
