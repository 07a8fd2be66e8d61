"""Avro container files (Avro 1.12, "Object Container Files"): blocks of records, each on its own.

    "Obj" 1, metadata (avro.schema, avro.codec), 16 bytes of sync; then blocks: records, bytes, data, sync

A message is a record ``klog.Message`` of key, value (bytes or null), topic, partition, offset, timestamp (µs),
timestampType and headers; keys and values are the bytes that were produced, also where they are Avro themselves. Blocks
are compressed by snappy, which Avro follows with a CRC of what was compressed, so a changed byte shows.

Strategy: numpy encodes all rows of a batch at once (`avro_encoding`) and reads those of a window of blocks
(`klog.schemas.decoding`), since Python does only a few hundred thousand records a second one by one.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa

from klog.errors import CorruptLog
from klog.export.files import GROUP_BYTES, FileWriter
from klog.export.files.avro_encoding import avro_schema, encode_rows
from klog.protocol.schema_errors import InvalidSchema
from klog.record.records import varint
from klog.schemas import parsing
from klog.schemas.avro import Record
from klog.schemas.decoding.arrow import arrow_type
from klog.schemas.decoding.front import Datums, Front
from klog.schemas.decoding.items import Items
from klog.schemas.decoding.plan import plan
from klog.schemas.parsing import parse

SUFFIX: Final = ".avro"
MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
CODEC: Final = "snappy"
"""As klog writes files, and has Spark write them."""
BLOCK_BYTES: Final = 64_000
"""Of records in a block, as Avro's own writers have it."""
WINDOW_BYTES: Final = 32 * 1024 * 1024
"""Of records that are read at once: the more blocks, the less each of numpy's calls weighs."""
BLOCK_BYTES_MAX: Final = 2**31 - 1
UNPACKED_BYTES_MAX: Final = 2**30
"""Of a block; a writer makes them of some MB, and one message has 100 MB at most."""
ROWS_A_BATCH: Final = 20_000
DEPTH_MAX: Final = 2 * parsing.DEPTH_MAX + 10
"""Of the types in a file's schema: each level of a decoded record is also in a union with null."""


def read(source: BinaryIO, columns: Sequence[str] | None, *, thorough: bool = False) -> Iterator[pa.RecordBatch]:
    try:
        schema, sync = _read_header(source)
        names = [field.name for field in schema.fields]
        wanted = names if columns is None else [name for name in columns if name in names]
        if wanted:
            yield from _decode(_blocks(source, sync), schema, wanted)
    except (ValueError, KeyError, IndexError, EOFError, InvalidSchema, pa.ArrowException, OSError) as error:
        raise CorruptLog(f"not an Avro container file, or a changed one: {error}") from None


class Writer(FileWriter):
    """Each batch is written as it comes, in blocks; the file ends with its last block."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema, group_bytes: int = GROUP_BYTES) -> None:
        self._sink = sink
        self._schema = schema
        self._sync = os.urandom(SYNC_BYTES)
        declared = json.dumps(avro_schema(schema), separators=(",", ":")).encode()
        metadata = {b"avro.schema": declared, b"avro.codec": CODEC.encode()}
        pairs = b"".join(varint(len(k)) + k + varint(len(v)) + v for k, v in metadata.items())
        sink.write(MAGIC + varint(len(metadata)) + pairs + varint(0) + self._sync)

    def write(self, batch: pa.RecordBatch) -> None:
        for at in range(0, batch.num_rows, ROWS_A_BATCH):
            self._write(encode_rows(batch.slice(at, ROWS_A_BATCH)))

    def _write(self, rows: pa.BinaryArray) -> None:
        offsets = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + len(rows) + 1]
        data = memoryview(rows.buffers()[2])
        first = 0
        while first < len(rows):
            last = int(np.searchsorted(offsets, offsets[first] + BLOCK_BYTES, "left"))
            last = min(max(last, first + 1), len(rows))
            block = data[offsets[first] : offsets[last]]
            packed = pa.compress(block, "snappy", asbytes=True) + zlib.crc32(block).to_bytes(4, "big")
            self._sink.write(varint(last - first) + varint(len(packed)) + packed + self._sync)
            first = last


def _read_header(source: BinaryIO) -> tuple[Record, bytes]:
    if source.read(4) != MAGIC:
        raise ValueError("it does not begin as one")
    metadata: dict[bytes, bytes] = {}
    while count := _read_varint(source):
        if count < 0:
            _read_varint(source)  # the size in bytes, which only skipping needs
        for _ in range(abs(count)):
            name = _read_exactly(source, _read_varint(source))
            metadata[name] = _read_exactly(source, _read_varint(source))
    schema = parse(metadata[b"avro.schema"].decode(), depth_max=DEPTH_MAX).node
    if not isinstance(schema, Record):
        raise ValueError("its schema is not a record")
    if (codec := metadata.get(b"avro.codec", b"null").decode()) != CODEC:
        raise ValueError(f"its codec is {codec!r}, not {CODEC}")
    return schema, _read_exactly(source, SYNC_BYTES)


def _blocks(source: BinaryIO, sync: bytes) -> Iterator[tuple[int, bytes]]:
    """(records, their bytes) of each block."""
    while first := source.read(1):
        count = _read_varint(source, first)
        size = _read_varint(source)
        if count < 0 or not 0 <= size <= BLOCK_BYTES_MAX:
            raise ValueError(f"a block of {count} records and {size} bytes")
        packed = _read_exactly(source, size)
        if _read_exactly(source, SYNC_BYTES) != sync:
            raise ValueError("a block does not end with the file's sync bytes")
        yield count, _unpack(packed)


def _unpack(packed: bytes) -> bytes:
    import cramjam

    try:
        if cramjam.snappy.decompress_raw_len(packed[:-4]) > UNPACKED_BYTES_MAX:
            raise ValueError(f"a block of more than {UNPACKED_BYTES_MAX} bytes when it is unpacked")
        data = bytes(cramjam.snappy.decompress_raw(packed[:-4]))
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from None
    if zlib.crc32(data).to_bytes(4, "big") != packed[-4:]:
        raise ValueError("a block's CRC is not that of its data")
    return data


def _windows(blocks: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    window: list[tuple[int, bytes]] = []
    size = 0
    for count, data in blocks:
        if not count:
            continue
        window.append((count, data))
        size += len(data)
        if size >= WINDOW_BYTES:
            yield window
            window, size = [], 0
    if window:
        yield window


def _decode(blocks: Iterable[tuple[int, bytes]], schema: Record, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """A block is read as an array of records, by a reader that has only the wanted fields."""
    reader = replace(schema, fields=tuple(field for field in schema.fields if field.name in wanted))
    items = Items(pa.list_(arrow_type(reader)), "", plan(schema, reader))
    for window in _windows(blocks):
        counts = np.array([count for count, _ in window], np.int64)
        ends = np.cumsum([len(data) for _, data in window])
        data = np.frombuffer(b"".join(data for _, data in window), np.uint8)
        if counts.sum() > len(data):
            raise ValueError(f"{counts.sum()} records in {len(data)} bytes")
        datums = Datums(data, len(window))
        front = Front(datums, np.arange(len(window)), np.concatenate([[0], ends[:-1]]), ends)
        rows = items.read_block(front, counts)
        front.finish()
        if datums.failed.any():
            raise ValueError(datums.reasons(np.flatnonzero(datums.failed))[0].as_py())
        yield pa.RecordBatch.from_struct_array(rows).select(wanted)


def _read_exactly(source: BinaryIO, size: int) -> bytes:
    if not 0 <= size <= BLOCK_BYTES_MAX:
        raise ValueError(f"{size} bytes of something")
    data = source.read(size)
    if len(data) != size:
        raise EOFError(f"it ends {size - len(data)} bytes before its end")
    return data


def _read_varint(source: BinaryIO, first: bytes = b"") -> int:
    found = shift = 0
    while shift < 70:
        byte = (first or _read_exactly(source, 1))[0]
        first = b""
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1)
        shift += 7
    raise ValueError("a number that does not end")
