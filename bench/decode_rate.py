"""How fast Avro datums under schema ids become typed columns, on one core: what a task does beside reading."""

from __future__ import annotations

import io
import json
import random
import time
from typing import Any

import fastavro
import pyarrow as pa

from klog.schemas.decoding.decoder import Decoder, Decoding

ROWS = 20_000
SCHEMA_ID = 7
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "user", "type": "long"},
        {"name": "page", "type": "string"},
        {"name": "referrer", "type": ["null", "string"]},
        {"name": "took_ms", "type": "int"},
        {"name": "score", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "is_new", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["PAGE", "CLICK", "BUY"]}},
    ],
}
"""A page view: eight fields of the usual types, some 70 bytes."""


def framed_values(count: int, schema_id: int) -> list[bytes]:
    """Values in the framing of today's serializers."""
    draw = random.Random(7)
    parsed = fastavro.parse_schema(SCHEMA)
    values = []
    for number in range(count):
        datum = io.BytesIO()
        fastavro.schemaless_writer(datum, parsed, _view(number, draw))
        values.append(b"\0" + schema_id.to_bytes(4, "big") + datum.getvalue())
    return values


def framed_batches(rows: int) -> list[pa.RecordBatch]:
    """Messages as the source hands them on."""
    values = framed_values(min(ROWS, rows), SCHEMA_ID)
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array(values, pa.binary()), "offset": pa.array(range(len(values)), pa.int64())}
    )
    return [batch] * max(1, rows // ROWS)


def _view(number: int, draw: random.Random) -> dict[str, Any]:
    return {
        "user": draw.randrange(10**9),
        "page": f"/item/{draw.randrange(10**6)}/reviews",
        "referrer": None if number % 3 else f"https://example.org/{draw.randrange(10**4)}",
        "took_ms": draw.randrange(5000),
        "score": draw.random(),
        "at": 1_700_000_000_000 + number,
        "is_new": bool(number % 2),
        "kind": draw.choice(("PAGE", "CLICK", "BUY")),
    }


def measure(batches: list[pa.RecordBatch]) -> dict[str, float]:
    decoder = Decoder(Decoding("value", json.dumps(SCHEMA)), {SCHEMA_ID: json.dumps(SCHEMA)}.__getitem__)
    rows = undecodable = 0
    began = time.perf_counter()
    for batch in batches:
        typed, rest = decoder.split(batch)
        rows += typed.num_rows
        undecodable += rest.num_rows if rest is not None else 0
    seconds = time.perf_counter() - began
    assert (rows, undecodable) == (sum(batch.num_rows for batch in batches), 0)
    return {"messages_per_s": rows / seconds}
