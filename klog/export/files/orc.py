"""ORC files, by Arrow's own writer: stripes of bounded size, compressed by zstd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from klog.errors import CorruptLog
from klog.export.files import GROUP_BYTES, FileWriter

COMPRESSION: Final = "zstd"
TIMES: Final = pa.timestamp("us", "UTC")
TIMESTAMP_US_MAX: Final = (2**63 - 1) // 1000
"""Arrow reads ORC's times as nanoseconds since 1970: 1677 to 2262. Those beyond are written as the last of these."""
BATCH_ROWS: Final = 1024
"""Rows that Arrow hands to ORC at once; what it has not room for in one it copies."""
SUFFIX: Final = f".{COMPRESSION}.orc"


def read(source: BinaryIO, columns: Sequence[str] | None, *, thorough: bool = False) -> Iterator[pa.RecordBatch]:
    try:
        file = orc.ORCFile(source)
        names = set(file.schema.names)
        wanted = None if columns is None else [one for one in columns if one in names]
        for stripe in range(file.nstripes):
            found = file.read_stripe(stripe, columns=None if thorough else wanted)
            found.validate(full=True)  # ORC has no checksums; a damaged text may not be UTF-8
            yield _as_messages_have_it(found if wanted is None else found.select(wanted))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptLog(str(error)) from None


def _as_messages_have_it(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Arrow reads ORC's times in nanoseconds; they were written in microseconds."""
    if "timestamp" not in batch.schema.names:
        return batch
    at = batch.schema.names.index("timestamp")
    return batch.set_column(at, "timestamp", batch.column(at).cast(TIMES))


def _within_years(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_clipped(column) for column in batch.columns], schema=batch.schema)


def _clipped(column: pa.Array) -> pa.Array:
    """With the times in it, however deep, that ORC's readers have."""
    type_ = column.type
    if pa.types.is_timestamp(type_):
        times = column.cast(pa.timestamp("us", type_.tz)).cast(pa.int64())
        bounds = pc.min_max(times).as_py()
        if (bounds["min"] or 0) >= -TIMESTAMP_US_MAX and (bounds["max"] or 0) <= TIMESTAMP_US_MAX:
            return column
        clipped = pc.max_element_wise(times, -TIMESTAMP_US_MAX, skip_nulls=False)
        clipped = pc.min_element_wise(clipped, TIMESTAMP_US_MAX, skip_nulls=False)
        return clipped.cast(pa.timestamp("us", type_.tz)).cast(type_)
    if pa.types.is_struct(type_) and type_.num_fields:
        parts = column.flatten()
        clipped = [_clipped(part) for part in parts]
        if all(one is part for one, part in zip(clipped, parts, strict=True)):
            return column
        return pa.StructArray.from_arrays(clipped, fields=list(type_), mask=column.is_null())
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        values = column.values
        items = _clipped(values)
        if items is values:
            return column
        buffers = column.buffers()[:2]
        return pa.Array.from_buffers(type_, len(column), buffers, offset=column.offset, children=[items])
    return column


class Writer(FileWriter):
    """ORC holds a stripe itself, and ends it when it is full, not earlier."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema, group_bytes: int = GROUP_BYTES) -> None:
        self._writer = orc.ORCWriter(sink, compression=COMPRESSION, stripe_size=group_bytes, batch_size=BATCH_ROWS)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(pa.Table.from_batches([_within_years(batch)]))

    def close(self) -> None:
        self._writer.close()
