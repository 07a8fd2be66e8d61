"""JSON lines: a message a line, in the form of `klog tail --output jsonl` (`klog.render.jsonl`), compressed by gzip.

``timestampType`` stands beside what tail writes. Keys and values are text where they are UTF-8 and base64 where they
are not; ``key_encoding`` and ``value_encoding`` say which, so nothing is lost, and `klog produce -i jsonl` takes the
lines in again. Columns that are not a message's own (typed ones) are written as JSON has them (`json_values`).

gzip, since every reader has it, and for the CRC at its end.
"""

from __future__ import annotations

import gzip
import json
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any, BinaryIO, Final

import cramjam
import pyarrow as pa
import pyarrow.compute as pc

from klog.errors import CorruptLog
from klog.export.files import GROUP_BYTES, FileWriter
from klog.export.files.json_values import json_values
from klog.render.jsonl import json_of, json_of_headers, rfc3339
from klog.render.values import text_of

SUFFIX: Final = ".jsonl.gz"
CHUNK_BYTES: Final = 8 * 1024 * 1024
"""Of lines that are parsed at once."""
LINE_BYTES_MAX: Final = 1 << 30
"""A message of the largest size that a broker can be set to take, with each of its bytes escaped."""
GZIP_LEVEL: Final = 1
"""Several times as fast as gzip's own choice, for hardly more bytes."""

_OWN: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
_READ: Final = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.string(),
    "timestampType": pa.int32(),
    "key": pa.string(),
    "key_encoding": pa.string(),
    "value": pa.string(),
    "value_encoding": pa.string(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.string()), ("encoding", pa.string())])),
}
LINES: Final = pa.schema([("line", pa.string())], metadata={"klog": "lines of JSON"})
"""As which all columns of typed rows are read: what Arrow makes of objects in JSON is not what they were made of."""
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TIMESTAMP: Final = pa.timestamp("us", "UTC")


def read(source: BinaryIO, columns: Sequence[str] | None, *, thorough: bool = False) -> Iterator[pa.RecordBatch]:
    try:
        with gzip.GzipFile(fileobj=source, mode="rb") as lines:
            for chunk in _chunks(lines):
                yield _parsed(chunk, columns)
    except (ValueError, EOFError, zlib.error, pa.ArrowException, OSError) as error:
        raise CorruptLog(f"no lines of JSON, or changed ones: {error}") from None


class Writer(FileWriter):
    """Each batch is written as it comes; the file ends with its last one: a gzip file may consist of several."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema, group_bytes: int = GROUP_BYTES) -> None:
        self._sink = sink
        columns = set(schema.names)
        self._is_message = columns <= set(_OWN) and {"topic", "partition", "offset", "timestamp"} <= columns

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.schema == LINES:
            lines = batch.column(0).to_pylist()
        else:
            lines = _message_lines(batch) if self._is_message else _typed_lines(batch)
        lines.append("")
        self._sink.write(cramjam.gzip.compress("\n".join(lines).encode(), GZIP_LEVEL))


# --- Lines ---


def _message_lines(batch: pa.RecordBatch) -> list[str]:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name != "timestamp"}
    nothing = [None] * batch.num_rows
    times_ms = _milliseconds(batch.column("timestamp"))
    texts = {one: f'"{rfc3339(one)}"' for one in set(times_ms)}
    heads = {one: f'{{"topic":{encode_basestring(one)},"partition":' for one in set(columns["topic"])}
    lines = []
    for topic, partition, offset, time_ms, kind, key, value, headers in zip(
        columns["topic"],
        columns["partition"],
        columns["offset"],
        times_ms,
        columns.get("timestampType", nothing),
        columns.get("key", nothing),
        columns.get("value", nothing),
        columns.get("headers", nothing),
        strict=True,
    ):
        key_text, key_encoding = ("null", "null") if key is None else json_of(key)
        text, encoding = ("null", "null") if value is None else json_of(value)
        pairs = json_of_headers((one["key"], one["value"]) for one in headers) if headers else "[]"
        lines.append(
            f'{heads[topic]}{partition},"offset":{offset},"timestamp":{texts[time_ms]},"key":{key_text},'
            f'"value":{text},"headers":{pairs},"key_encoding":{key_encoding},"value_encoding":{encoding},'
            f'"timestampType":{"null" if kind is None else kind}}}'
        )
    return lines


def _typed_lines(batch: pa.RecordBatch) -> list[str]:
    columns: dict[str, Sequence[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == "timestamp":
            columns[name] = [rfc3339(one) for one in _milliseconds(column)]
        elif name in ("key", "value") and column.type == pa.binary():
            texts = [text_of(one) for one in column.to_pylist()]
            columns[name] = [text for text, _ in texts]
            columns[f"{name}_encoding"] = [encoding for _, encoding in texts]
        else:
            columns[name] = json_values(column)
    write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
    return [write(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _milliseconds(column: pa.Array) -> list[int]:
    micros: list[int] = column.cast(pa.int64()).to_pylist()
    return [one // 1000 for one in micros]


# --- And back ---


def _chunks(lines: Any) -> Iterator[bytes]:
    """The whole in pieces of whole lines."""
    rest: list[bytes] = []
    while data := lines.read(CHUNK_BYTES):
        end = data.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, data[:end]])
            rest = []
        rest.append(data[end:])
        if len(rest) * CHUNK_BYTES > LINE_BYTES_MAX:
            raise ValueError(f"a line of more than {LINE_BYTES_MAX} bytes")
    if any(rest):
        raise EOFError("the last line does not end")


def _parsed(chunk: bytes, columns: Sequence[str] | None) -> pa.RecordBatch:
    import pyarrow.json as pj

    if columns is None:
        names = _names_of(chunk[: chunk.index(b"\n")])
        if not set(names) <= {*_OWN, "key_encoding", "value_encoding"}:
            return pa.RecordBatch.from_arrays(
                [pa.array(chunk.decode().removesuffix("\n").split("\n"), pa.string())], schema=LINES
            )
        columns = [name for name in names if not name.endswith("_encoding")]
    read: dict[str, pa.DataType] = {}
    for name in columns:
        read.update({one: _READ[one] for one in (name, f"{name}_encoding") if one in _READ})
    others = [name for name in columns if name not in _READ]
    table = pj.read_json(
        pa.BufferReader(chunk),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(chunk) + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema(list(read.items())),
            newlines_in_values=False,
            unexpected_field_behavior="infer" if others else "ignore",
        ),
    )
    there = [name for name in columns if name in table.schema.names]
    made = pa.table(
        {name: _CONVERTED[name](table) if name in _CONVERTED else table[name] for name in there}
    ).combine_chunks()
    return made.to_batches()[0] if made.num_rows else pa.RecordBatch.from_pylist([], schema=made.schema)


def _names_of(line: bytes) -> list[str]:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("a line is not an object")
    return list(row)


def _bytes_of(table: pa.Table, name: str) -> pa.Array:
    texts = table[name].combine_chunks().cast(pa.binary())
    encodings = table[f"{name}_encoding"].combine_chunks()
    is_base64 = pc.fill_null(pc.equal(encodings, "base64"), False)
    if not pc.any(is_base64).as_py():
        return texts
    decoded = [b64decode(one, validate=True) for one in texts.filter(is_base64).to_pylist()]
    return pc.replace_with_mask(texts, is_base64, pa.array(decoded, pa.binary()))


def _times_of(table: pa.Table) -> pa.Array:
    texts = table["timestamp"].combine_chunks()
    try:
        return texts.cast(_TIMESTAMP)
    except pa.ArrowInvalid:  # milliseconds, of times beyond the years that dates have
        plain = pc.match_substring_regex(texts, r"^-?\d+$")
        return pa.array(
            [
                int(one) * 1000 if is_plain else pa.scalar(one).cast(_TIMESTAMP).value
                for one, is_plain in zip(texts.to_pylist(), plain.to_pylist(), strict=True)
            ],
            pa.int64(),
        ).cast(_TIMESTAMP)


def _headers_of(table: pa.Table) -> pa.Array:
    rows = [
        [{"key": one["key"], "value": _content(one["value"], one["encoding"])} for one in row or ()]
        for row in table["headers"].to_pylist()
    ]
    return pa.array(rows, _HEADERS)


def _content(text: str | None, encoding: str | None) -> bytes | None:
    if text is None:
        return None
    return b64decode(text, validate=True) if encoding == "base64" else text.encode()


_CONVERTED: Final[dict[str, Callable[[pa.Table], pa.Array]]] = {
    "key": lambda table: _bytes_of(table, "key"),
    "value": lambda table: _bytes_of(table, "value"),
    "timestamp": _times_of,
    "headers": _headers_of,
}
