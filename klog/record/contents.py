"""Inspects the records of a produced batch, where its header is not enough to accept it (rules P1, P2).

Inspected are compressed batches (size when unpacked, number of records), and timestamps (the largest is missing, or
beyond a topic's limits).

Limits
    A batch may unpack to `UNPACKED_FACTOR` times the size allowed when packed, and to no more than every reader of klog
    accepts. The buffer for unpacking has that size and no more.

Cost: unpacking, and some 100 ns per record, of which only the length is read; a few ns where records are alike.
Comparing timestamps costs 300 ns per record. Too much for the event loop beyond some KB; `is_plain` tells what need not
be inspected.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from klog.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, MessageTooLarge, UnpackedTooLarge
from klog.record.batch import (
    CRC_AT,
    CRC_FROM,
    HEADER_BYTES,
    RECORD_BYTES_MIN,
    BatchHeader,
)
from klog.record.codec import CODEC_MASK
from klog.record.compression import DECOMPRESSED_BYTES_MAX, decompress
from klog.record.records import VARLONG_BYTES_MAX, read_varint

UNPACKED_FACTOR: Final = 16
"""Of ``max.message.bytes``. Java's producer splits batches that are refused for their size and sends the parts; other
clients limit a batch before they compress it."""
FACTOR_OF_AT_LEAST: Final = 1 << 20
"""The least value used for ``max.message.bytes``: a topic of small batches may unpack to as much as one with the
default, since its producers count the same way."""
RECORD_ERRORS_MAX: Final = 100
"""Records of a refused batch that an answer names; the others are refused as well."""

_CODEC_AT: Final = 22
"""Position of the second byte of the attributes."""
_LENGTH: Final = struct.Struct(">i")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_CRC: Final = struct.Struct(">I")


class BatchLimits(NamedTuple):
    """The limits of a log. Times in ms since 1970; records without a timestamp are not checked."""

    unpacked_bytes_max: int = UNPACKED_FACTOR * FACTOR_OF_AT_LEAST
    earliest_ms: int | None = None
    """``message.timestamp.before.max.ms`` before now; None: no limit."""
    latest_ms: int = (1 << 63) - 1
    """``message.timestamp.after.max.ms`` after now."""


def unpacked_bytes_max(max_message_bytes: int) -> int:
    """The largest unpacked size of a batch, where ``max_message_bytes`` limits its packed size."""
    return min(UNPACKED_FACTOR * max(max_message_bytes, FACTOR_OF_AT_LEAST), DECOMPRESSED_BYTES_MAX)


def is_compressed(records: memoryview) -> bool:
    """Whether the first batch of an unchecked record set claims to be compressed."""
    return len(records) >= HEADER_BYTES and bool(records[_CODEC_AT] & CODEC_MASK)


def is_plain(headers: Sequence[BatchHeader], latest_ms: int) -> bool:
    """Whether the headers of a record set are enough to append it without inspecting its records.

    Only for topics without a lower limit of timestamps; `look_inside` alone checks that.
    """
    for header in headers:
        if header.attributes & CODEC_MASK or not header.base_timestamp_ms <= header.max_timestamp_ms <= latest_ms:
            return False
    return True


def look_inside(buffer: memoryview, headers: list[BatchHeader], limits: BatchLimits) -> list[BatchHeader]:
    """Inspect the records behind checked headers; returns the headers, with a missing largest timestamp filled in, in
    place.

    Raises MessageTooLarge for a batch that unpacks to too much, InvalidRecord where its records are not those of its
    header, and InvalidTimestamp with ``record_errors``.
    """
    position = 0
    for number, header in enumerate(headers):
        headers[number] = _check_one(buffer, position, header, limits)
        position += header.size_bytes
    return headers


def _check_one(buffer: memoryview, position: int, header: BatchHeader, limits: BatchLimits) -> BatchHeader:
    is_compressed = header.attributes & CODEC_MASK
    is_unsettled = header.max_timestamp_ms < header.base_timestamp_ms
    # The header has the largest time; single records matter only if that is too late.
    asks_times = is_unsettled or header.max_timestamp_ms > limits.latest_ms or limits.earliest_ms is not None
    if not is_compressed and not asks_times:
        return header
    data = _unpacked(buffer, position, header, limits)
    if not asks_times:
        _count(data, position, header)
        return header
    newest_ms = _check_times(data, position, header, limits)
    return _with_newest(buffer, position, header, newest_ms) if is_unsettled else header


def _unpacked(buffer: memoryview, position: int, header: BatchHeader, limits: BatchLimits) -> bytes:
    """The records as bytes; single bytes are read twice as fast from them as from a view."""
    body = buffer[position + HEADER_BYTES : position + header.size_bytes]
    if not header.attributes & CODEC_MASK:
        return bytes(body)
    try:
        return bytes(decompress(header.codec, body, limits.unpacked_bytes_max))
    except UnpackedTooLarge:
        raise MessageTooLarge(
            f"a batch of {header.size_bytes} bytes unpacks to more than {limits.unpacked_bytes_max}, which is"
            f" {UNPACKED_FACTOR} times what a batch may have packed (max.message.bytes)",
            hint="send fewer messages in a batch",
        ) from None
    except CorruptBatch as error:
        raise InvalidRecord(error.message) from None


# --- Counting ---

_STEPS: Final = [
    1 + (byte >> 1) if byte < 0x80 and not byte & 1 and byte >> 1 >= RECORD_BYTES_MIN - 1 else 0 for byte in range(256)
]
"""From the first byte of a record to the next record, for lengths of one byte; 0 for longer ones."""


_ALIKE_BYTES_MAX: Final = 1024
"""The largest records counted in rows: longer ones are few."""
_ROW: Final = range(32, 4096)
"""Records compared in one go (stop), and how many of them must be alike to try another row (start)."""


def _count(data: bytes, position: int, header: BatchHeader) -> None:
    """Raise InvalidRecord unless exactly as many records as the header says fill the data."""
    end, count, steps = len(data), header.count, _STEPS
    at = number = 0
    try:
        # Many producers send records that are all alike; these are skipped in rows.
        passed, at = _pass_rows(data, count)
        for number in range(passed, count):  # noqa: B007  # named where it fails
            byte = data[at]
            if step := steps[byte]:
                at += step
            elif byte >= 0x80 and 0 < (second := data[at + 1]) < 0x80 and not byte & 1:
                at += 2 + ((byte & 0x7F | second << 7) >> 1)
            else:
                length, at = read_varint(data, at)
                if length < RECORD_BYTES_MIN - 1:
                    raise CorruptBatch("")
                at += length
    except (IndexError, CorruptBatch):
        at = -1
    if at != end:
        raise InvalidRecord(
            f"batch at byte {position} says it has {header.count} records; what it unpacks to, {end} bytes, "
            + (f"ends or is none at record {number}" if at < 0 or at > end else f"goes on for {end - at} behind them")
        )


def _pass_rows(data: bytes, count: int) -> tuple[int, int]:
    """Skip first records that are all of the same length: (their number, where the next begins).

    A record that begins with the first one's length ends where the next one begins; so if the bytes of a length are
    found at every multiple of that distance, all of them are records. Raises CorruptBatch.
    """
    number = at = 0
    while number < count:
        length, behind = read_varint(data, at)
        size = behind - at + length
        if length < RECORD_BYTES_MIN - 1 or size > _ALIKE_BYTES_MAX:
            break
        row = min(count - number, _ROW.stop)
        for place in range(at, behind):
            found = data[place : place + size * row : size]
            row = len(found) - len(found.lstrip(found[:1]))
        number += row
        at += row * size
        if row < _ROW.start:
            break
    return number, at


# --- Times ---


def _check_times(data: bytes, position: int, header: BatchHeader, limits: BatchLimits) -> int:
    """The largest timestamp of the records. Raises InvalidTimestamp for one beyond the limits, InvalidRecord as
    `_count`."""
    _count(data, position, header)
    base_ms, earliest_ms, latest_ms = header.base_timestamp_ms, limits.earliest_ms, limits.latest_ms
    if earliest_ms is None:
        earliest_ms = -1
    newest_ms, at, wrong, steps = -1, 0, 0, _STEPS
    named: list[tuple[int, str]] = []
    try:
        for number in range(header.count):
            # Small numbers are read in place: a batch of tiny records spends its time here.
            if step := steps[data[at]]:
                start, at = at + 1, at + step
            else:
                length, start = read_varint(data, at)
                at = start + length
            byte = data[start + 1]
            if byte < 0x80:
                time_ms = base_ms + ((byte >> 1) ^ -(byte & 1))
            else:
                time_ms = base_ms + read_varint(data, start + 1, VARLONG_BYTES_MAX)[0]
            if time_ms > newest_ms:
                newest_ms = time_ms
            if time_ms != -1 and not earliest_ms <= time_ms <= latest_ms:
                wrong += 1
                if len(named) < RECORD_ERRORS_MAX:
                    named.append((number, _outside(time_ms, limits)))
    except CorruptBatch as error:
        raise InvalidRecord(error.message) from None
    if named:
        raise InvalidTimestamp(
            f"{wrong} of {header.count} records have a timestamp that this topic does not take: {named[0][1]}",
            record_errors=tuple(named),
        )
    if header.max_timestamp_ms > latest_ms:
        raise InvalidTimestamp(f"a batch says its {_outside(header.max_timestamp_ms, limits)}")
    if not -1 <= newest_ms < 1 << 63:
        raise InvalidTimestamp(f"a batch's latest record has the timestamp {newest_ms} ms; expected 0 or more, or -1")
    return newest_ms


def _outside(time_ms: int, limits: BatchLimits) -> str:
    if time_ms > limits.latest_ms:
        return (
            f"timestamp {time_ms} ms is later than {limits.latest_ms}, as far ahead of the broker's clock as"
            " message.timestamp.after.max.ms allows"
        )
    if limits.earliest_ms is None or time_ms < -1:
        return f"timestamp {time_ms} ms is none; expected 0 or more, or -1"
    return (
        f"timestamp {time_ms} ms is earlier than {limits.earliest_ms}, as far behind the broker's clock as"
        " message.timestamp.before.max.ms allows"
    )


def _with_newest(buffer: memoryview, position: int, header: BatchHeader, newest_ms: int) -> BatchHeader:
    """Fill in the largest timestamp, as Kafka's brokers do (sarama before 1.45.1 sends -1)."""
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, newest_ms)
    crc = crc32c(buffer[position + CRC_FROM : position + header.size_bytes])
    _CRC.pack_into(buffer, position + CRC_AT, crc)
    return header._replace(max_timestamp_ms=newest_ms, crc=crc)
