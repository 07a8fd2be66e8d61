"""A run of whole record batches as one Arrow batch of Spark's columns, only the records inside the range wanted."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from klog.client.raw_fetch import Range
from klog.record.batch import walk
from klog.record.records import Record, decode_batch

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""As Spark wants it, to the letter: it compares names, order and types with the source's schema."""


def decode(records: memoryview, wanted: Range, columns: Sequence[str]) -> pa.RecordBatch:
    """The records of ``records`` (whole batches) with offsets in ``wanted``; control batches hold none."""
    rows: list[Record] = []
    types: list[int] = []
    for position, header in walk(records):
        if header.is_control:
            continue
        inside = [r for r in decode_batch(records, position) if wanted.from_offset <= r.offset < wanted.to_offset]
        rows += inside
        types += [header.attributes >> 3 & 1] * len(inside)
    made = {
        "key": lambda: [row.key for row in rows],
        "value": lambda: [row.value for row in rows],
        "topic": lambda: [wanted.topic] * len(rows),
        "partition": lambda: [wanted.partition] * len(rows),
        "offset": lambda: [row.offset for row in rows],
        "timestamp": lambda: [row.timestamp_ms * 1000 for row in rows],
        "timestampType": lambda: types,
        "headers": lambda: [[{"key": k, "value": v} for k, v in row.headers] for row in rows],
    }
    schema = pa.schema([SCHEMA.field(column) for column in columns])
    return pa.RecordBatch.from_arrays([pa.array(made[f.name](), f.type) for f in schema], schema=schema)
