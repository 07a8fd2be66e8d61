"""Encodes and decodes the records of a batch.

A record, all varints zigzag (KIP-98)::

    length of what follows      varint
    attributes                  int8    unused
    timestamp - base timestamp  varlong
    offset - base offset        varint
    key length, key             varint  -1: null
    value length, value         varint  -1: null
    header count                varint
        key length, key         varint  UTF-8, never null
        value length, value     varint  -1: null

Limits: `each_record` builds Python objects, some 300,000 records per second; bulk readers decode columns instead. A
record of more than `HEADERS_MAX` headers counts as invalid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from klog.errors import CorruptBatch
from klog.record.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    RECORD_BYTES_MIN,
    BatchHeader,
    Bytes,
    check_shape,
    read_header,
    walk,
    write_header,
)
from klog.record.codec import DECOMPRESSED_BYTES_MAX, Codec

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
HEADERS_MAX: Final = 1_000_000
"""Per record. A header takes at least two bytes, and a hundred as objects."""

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """A message. ``timestamp_ms``: -1 for none; headers keep their order and their duplicates.

    In a header's key, U+FFFD replaces each invalid sequence of UTF-8.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# --- Encoding ---


def varint(value: int) -> bytes:
    """``value`` (up to 64 bits, signed) in zigzag form, seven bits per byte, lowest first."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SMALL: Final = tuple(varint(value) for value in range(-64, 8192))


def _encode(value: int) -> bytes:
    return _SMALL[value + 64] if -64 <= value < 8192 else varint(value)


def encode_record(record: Record, offset_delta: int, base_timestamp_ms: int) -> bytes:
    """A record with its length in front."""
    _, timestamp_ms, key, value, headers = record
    body = b"\x00" + _encode(timestamp_ms - base_timestamp_ms) + _encode(offset_delta) + _blob(key) + _blob(value)
    if headers:
        parts = [body, _encode(len(headers))]
        for name, content in headers:
            parts += (_blob(name.encode()), _blob(content))
        body = b"".join(parts)
    else:
        body += b"\x00"
    return _encode(len(body)) + body


def _blob(content: bytes | None) -> bytes:
    return b"\x01" if content is None else _encode(len(content)) + content


def encode_batch(records: Iterable[Record], *, codec: Codec = Codec.NONE, **fields: int) -> bytearray:
    """A batch of ``records`` (at least one). Offsets count up from ``base_offset``, whatever the records say.

    ``fields``: see `batch_of`.
    """
    records = list(records)
    if not records:
        raise ValueError("a batch has at least one record")
    base_ms = records[0].timestamp_ms
    body = b"".join([encode_record(record, delta, base_ms) for delta, record in enumerate(records)])
    return batch_of(body, len(records), base_ms, max(record.timestamp_ms for record in records), codec, **fields)


def batch_of(
    body: bytes,
    count: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    codec: Codec = Codec.NONE,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch of ``count`` records that are encoded already."""
    batch = bytearray(HEADER_BYTES)
    if codec == Codec.NONE:
        batch += body
    else:
        from klog.record.compression import compress

        batch += compress(codec, body)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=len(batch) - LENGTH_PREFIX_BYTES,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
    )
    write_header(batch, 0, header)
    return batch


# --- Decoding ---


def records_bytes(
    buffer: Bytes, position: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> memoryview:
    """The records of the batch at ``position``, decompressed. Raises CorruptBatch, UnsupportedCodec."""
    from klog.record.compression import decompress

    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptBatch(f"batch at byte {position} is cut off {end - len(buffer)} bytes before its end")
    data = decompress(header.codec, memoryview(buffer)[position + HEADER_BYTES : end], max_bytes)
    if header.count < 0 or header.count * RECORD_BYTES_MIN > len(data):
        raise CorruptBatch(f"batch at byte {position} says it has {header.count} records in {len(data)} bytes")
    return data


def read_varint(data: Bytes, position: int, bytes_max: int = VARINT_BYTES_MAX) -> tuple[int, int]:
    """The number at ``position``, and the position behind it. Raises CorruptBatch for one cut off or too long."""
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        shift, rest = 7, byte & 0x7F
        for at in range(position + 1, position + bytes_max):
            byte = data[at]
            rest |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (rest >> 1) ^ -(rest & 1), at + 1
            shift += 7
    except IndexError:
        pass
    raise CorruptBatch(f"no number ends within {bytes_max} bytes from byte {position} of the records")


def decode_batch(buffer: Bytes, position: int = 0, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """All records of the batch at ``position``. The caller checks the CRC.

    Raises CorruptBatch where the records are invalid or do not fill the batch exactly, UnsupportedCodec and
    UnsupportedFormat.
    """
    return list(each_record(buffer, position, max_bytes))


def each_record(buffer: Bytes, position: int = 0, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """`decode_batch`, one record at a time: as objects, a batch of tiny records takes thirty times its bytes.

    Raises at the first invalid record, after the records before it.
    """
    header = read_header(buffer, position)
    check_shape(header, position)
    data = bytes(records_bytes(buffer, position, header, max_bytes))
    base_offset, base_ms, last_delta = header.base_offset, header.base_timestamp_ms, header.last_offset_delta
    append_ms = header.max_timestamp_ms if header.is_log_append_time else None
    at = 0
    for number in range(header.count):
        record, at = _decode_record(data, at, number, base_offset, base_ms, append_ms)
        if not 0 <= record.offset - base_offset <= last_delta:
            raise CorruptBatch(f"a record of the batch at byte {position} lies outside the batch's offsets")
        yield record
    if at != len(data):
        raise CorruptBatch(f"{len(data) - at} bytes follow the last of {header.count} records at byte {position}")


def records_in(run: Bytes, from_offset: int = 0) -> Iterator[Record]:
    """The messages of a run of whole batches from an offset on; of batches that end below it nothing is unpacked."""
    for position, header in walk(run):
        if header.last_offset >= from_offset and header.count and not header.is_control:
            yield from (record for record in each_record(run, position) if record.offset >= from_offset)


def record_times(
    buffer: Bytes, position: int = 0, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[tuple[int, int]]:
    """(offset, timestamp_ms) of each record of the batch at ``position``, in order; skips the rest.

    Two to three times as fast as decode_batch, and lazy. Raises what decode_batch raises, when it gets there.
    """
    header = read_header(buffer, position)
    check_shape(header, position)
    data = bytes(records_bytes(buffer, position, header, max_bytes))
    base_offset, base_ms, last_delta = header.base_offset, header.base_timestamp_ms, header.last_offset_delta
    append_ms = header.max_timestamp_ms if header.is_log_append_time else None
    at = 0
    for number in range(header.count):
        length, start = read_varint(data, at)
        at = start + length
        if length < RECORD_BYTES_MIN - 1 or at > len(data):
            raise CorruptBatch(f"record {number} says it is {length} bytes long; {len(data) - start} are there")
        time_delta, after = read_varint(data, start + 1, VARLONG_BYTES_MAX)
        offset_delta, _ = read_varint(data, after)
        if not 0 <= offset_delta <= last_delta:
            raise CorruptBatch(f"record {number} of the batch at byte {position} lies outside the batch's offsets")
        yield base_offset + offset_delta, base_ms + time_delta if append_ms is None else append_ms


def _decode_record(
    data: bytes, at: int, number: int, base_offset: int, base_ms: int, append_ms: int | None
) -> tuple[Record, int]:
    """The record at ``at``, the batch's ``number``-th, and the position behind it."""
    length, at = read_varint(data, at)
    end = at + length
    if length < RECORD_BYTES_MIN - 1 or end > len(data):
        raise CorruptBatch(f"record {number} says it is {length} bytes long; {len(data) - at} are there")
    time_delta, at = read_varint(data, at + 1, VARLONG_BYTES_MAX)
    offset_delta, at = read_varint(data, at)
    key, at = _read_blob(data, at, end)
    value, at = _read_blob(data, at, end)
    header_count, at = read_varint(data, at)
    headers: list[tuple[str, bytes | None]] = []
    if header_count:
        if not 0 <= header_count <= (end - at) // 2:
            raise CorruptBatch(f"record {number} says it has {header_count} headers in {end - at} bytes")
        if header_count > HEADERS_MAX:
            raise CorruptBatch(f"record {number} has {header_count} headers; at most {HEADERS_MAX} are read")
        for _ in range(header_count):
            name, at = _read_blob(data, at, end)
            if name is None:
                raise CorruptBatch(f"record {number} has a header without a name")
            content, at = _read_blob(data, at, end)
            headers.append((name.decode(errors="replace"), content))
    if at != end:
        raise CorruptBatch(f"record {number} says it ends at byte {end}; its fields end at byte {at}")
    timestamp_ms = base_ms + time_delta if append_ms is None else append_ms
    return Record(base_offset + offset_delta, timestamp_ms, key, value, tuple(headers)), end


def _read_blob(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Bytes behind their length, which must not reach past ``end``; None for length -1."""
    length, at = read_varint(data, at)
    if length == -1:
        return None, at
    if length < 0 or at + length > end:
        raise CorruptBatch(f"a key, value or header says it is {length} bytes long; its record has {end - at} more")
    return data[at : at + length], at + length
