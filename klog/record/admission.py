"""Whether a leader takes a produced record set (rules P1, P2): `admit` answers for it, before it is appended.

The headers are enough for most. The records are read too where a batch is compressed (size when unpacked, number of
records), and for timestamps (the largest is missing, or beyond a topic's limits). That takes some 100 ns per record, of
which only the length is read, a few ns where records are alike, 300 ns where timestamps are compared: small record sets
are read at once, for others `admit` returns an `Unread`, to be inspected in a thread.

Limits
    A batch may unpack to `UNPACKED_FACTOR` times the size allowed when packed, and to no more than every reader of klog
    accepts. The buffer for unpacking has that size and no more.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from klog.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    KlogError,
    MessageTooLarge,
    TransactionsNotServed,
    UnpackedTooLarge,
)
from klog.record.batch import (
    CONTROL,
    CRC_AT,
    CRC_FROM,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    RECORD_BYTES_MIN,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    check_shape,
    read_header,
)
from klog.record.codec import CODEC_MASK, DECOMPRESSED_BYTES_MAX
from klog.record.records import VARLONG_BYTES_MAX, read_varint

AT_ONCE_BYTES: Final = 4096
"""The largest record set whose records are read at once: a change of threads would take longer."""
AT_ONCE_UNPACKED_BYTES: Final = 16 * 1024
AT_ONCE_RECORDS_MAX: Final = 37_000
"""Of a request, 300 ns each; the records of its further sets are read in a thread, if at all."""
AT_ONCE_SET_RECORDS: Final = 100
"""What a set counts for besides its records: decompressing a small one takes as long as reading so many."""

UNPACKED_FACTOR: Final = 16
"""Of ``max.message.bytes``. Java's producer splits batches that are refused for their size and sends the parts; other
clients limit a batch before they compress it."""
FACTOR_OF_AT_LEAST: Final = 1 << 20
"""The least value used for ``max.message.bytes``: a topic of small batches may unpack to as much as one with the
default, since its producers count the same way."""
RECORDS_PER_BYTE_MAX: Final = 64
"""Per compressed byte. Records differ in their offsets, so even zstd gets no more than 1.7 empty ones into a byte
(measured); a far larger count would open a hole of that size in the address space."""
BATCHES_MAX: Final = 20_000
"""Batches of one request, each of which costs the event loop some microseconds; clients send one per partition."""
RECORD_ERRORS_MAX: Final = 100
"""Records of a refused batch that an answer names; the others are refused as well."""

_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_CRC: Final = struct.Struct(">I")


class Limits(NamedTuple):
    """What a topic takes. Records without a timestamp have none that is checked."""

    batch_bytes_max: int
    """``max.message.bytes``."""
    unpacked_bytes_max: int
    """See `unpacked_bytes_max`."""
    before_max_ms: int | None
    """``message.timestamp.before.max.ms``; None: no limit."""
    after_max_ms: int
    """``message.timestamp.after.max.ms``."""


class RequestBudget:
    """What is left of what a request may cost the event loop, over all of its record sets."""

    __slots__ = ("batches", "records")

    def __init__(self) -> None:
        self.batches = BATCHES_MAX
        self.records = AT_ONCE_RECORDS_MAX
        """To be read at once."""


class Unread(NamedTuple):
    """A record set with good headers, whose records are not read yet."""

    headers: list[BatchHeader]
    limits: Limits
    now_ms: int

    def inspect(self, records: memoryview, unpacked_bytes_max: int | None = None) -> list[BatchHeader]:
        """The headers, after reading the records; a missing largest timestamp is filled in, in place.

        Any thread. Takes the time of decompression, which ``unpacked_bytes_max`` may bound further. Raises
        MessageTooLarge for a batch that unpacks to too much, InvalidRecord where its records are not those of its
        header, and InvalidTimestamp with ``record_errors``.
        """
        headers, limits, now_ms = self
        most = limits.unpacked_bytes_max if unpacked_bytes_max is None else unpacked_bytes_max
        latest_ms = now_ms + limits.after_max_ms
        earliest_ms = -1 if limits.before_max_ms is None else max(now_ms - limits.before_max_ms, -1)
        position = 0
        for number, header in enumerate(headers):
            headers[number] = _inspect(records, position, header, most, earliest_ms, latest_ms)
            position += header.size_bytes
        return headers


def unpacked_bytes_max(max_message_bytes: int) -> int:
    """The largest unpacked size of a batch, where ``max_message_bytes`` limits its packed size."""
    return min(UNPACKED_FACTOR * max(max_message_bytes, FACTOR_OF_AT_LEAST), DECOMPRESSED_BYTES_MAX)


def admit(records: memoryview, limits: Limits, now_ms: int, budget: RequestBudget) -> list[BatchHeader] | Unread:
    """The headers to append a record set by, or an `Unread` where reading its records may take too long.

    ``budget``: of the request. Raises what `check_headers` and `Unread.inspect` raise.
    """
    try:
        headers = check_headers(records, limits.batch_bytes_max, budget.batches)
    except KlogError:
        budget.batches -= len(records) // HEADER_BYTES  # so many may have been read
        raise
    budget.batches -= len(headers)
    if limits.before_max_ms is None or limits.before_max_ms > now_ms:
        latest_ms = now_ms + limits.after_max_ms
        for header in headers:
            if header.attributes & CODEC_MASK or not header.base_timestamp_ms <= header.max_timestamp_ms <= latest_ms:
                break
        else:
            return headers
    unread = Unread(headers, limits, now_ms)
    if budget.records <= 0 or len(records) > AT_ONCE_BYTES:
        return unread
    budget.records -= AT_ONCE_SET_RECORDS + sum(header.count for header in headers)
    try:
        return unread.inspect(records, AT_ONCE_UNPACKED_BYTES)
    except MessageTooLarge:  # it may still be below the limit
        return unread


# --- Headers ---


def check_headers(records: memoryview, batch_bytes_max: int, batches_max: int = BATCHES_MAX) -> list[BatchHeader]:
    """The headers of a record set, all checked; at least one, and no more than ``batches_max``.

    Raises CorruptBatch (length, CRC, bytes behind the last batch), UnsupportedFormat (magic 0 or 1), MessageTooLarge (a
    batch above ``batch_bytes_max``), UnsupportedCodec, TransactionsNotServed, InvalidTimestamp, and InvalidRecord
    (counts, control batches, an idempotent batch without a sequence, an empty set, too many batches).
    """
    end = len(records)
    if not end:
        raise InvalidRecord("a produce request names a partition and has no record batch for it")
    headers: list[BatchHeader] = []
    position = 0
    while position < end:
        # One unpack and one CRC per batch, no calls in between: every produce request waits for this.
        if position and len(headers) >= batches_max:
            raise InvalidRecord(f"a produce request has more than {BATCHES_MAX} batches; expected one per partition")
        header = read_header(records, position)
        _, length, _, magic, crc, attributes, last_delta, base_ms, max_ms, producer_id, _, sequence, count = header
        size = length + LENGTH_PREFIX_BYTES
        next_position = position + size
        if size < HEADER_BYTES or magic != MAGIC:
            check_shape(header, position)
        if next_position > end:
            check_crc(records, position, header)
        if size > batch_bytes_max:
            raise MessageTooLarge(
                f"batch of {size} bytes; at most {batch_bytes_max} are allowed by max.message.bytes of the topic, or "
                "message.max.bytes of the broker if the topic has none"
            )
        if crc32c(records[position + CRC_FROM : next_position]) != crc:
            check_crc(records, position, header)
        if count < 1 or last_delta != count - 1 or count * RECORD_BYTES_MIN > size - HEADER_BYTES:
            _check_counts(header, position)
        if attributes:
            _check_attributes(header)
        if base_ms < -1 or max_ms < -1:
            raise InvalidTimestamp(
                f"batch with timestamps from {base_ms} to {max_ms} ms; expected 0 or more, or -1 for none"
            )
        if producer_id >= 0 and sequence < 0:
            raise InvalidRecord(f"batch of producer {producer_id} has base sequence {sequence}; expected 0 or more")
        headers.append(header)
        position = next_position
    return headers


def _check_attributes(header: BatchHeader) -> None:
    attributes = header.attributes
    if attributes & CONTROL:
        raise InvalidRecord("a control batch was produced; only brokers write those")
    if attributes & TRANSACTIONAL:
        raise TransactionsNotServed
    if attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("a batch was produced with timestamp type LogAppendTime; producers send CreateTime")
    _ = header.codec


def _check_counts(header: BatchHeader, position: int) -> None:
    """Raise InvalidRecord unless the count is at least 1, agrees with the last offset and is possible for the size."""
    count = header.count
    if count < 1 or header.last_offset_delta != count - 1:
        raise InvalidRecord(
            f"batch at byte {position} says it has {count} records and last offset delta {header.last_offset_delta};"
            f" expected at least 1, and one less"
        )
    room = header.size_bytes - HEADER_BYTES
    count_max = room * RECORDS_PER_BYTE_MAX if header.attributes & CODEC_MASK else room // RECORD_BYTES_MIN
    if count > count_max:
        raise InvalidRecord(f"batch at byte {position} says it has {count} records; its {room} bytes cannot hold them")


# --- Records ---


def _inspect(
    records: memoryview, position: int, header: BatchHeader, unpacked_bytes_max: int, earliest_ms: int, latest_ms: int
) -> BatchHeader:
    is_unsettled = header.max_timestamp_ms < header.base_timestamp_ms
    # The header has the largest time; single records matter only if that is too late.
    asks_times = is_unsettled or header.max_timestamp_ms > latest_ms or earliest_ms > -1
    if not header.attributes & CODEC_MASK and not asks_times:
        return header
    data = _unpacked(records, position, header, unpacked_bytes_max)
    if not asks_times:
        _count(data, position, header)
        return header
    newest_ms = _check_times(data, position, header, earliest_ms, latest_ms)
    return _with_newest(records, position, header, newest_ms) if is_unsettled else header


def _unpacked(records: memoryview, position: int, header: BatchHeader, unpacked_bytes_max: int) -> bytes:
    """The records as bytes; single bytes are read twice as fast from them as from a view."""
    body = records[position + HEADER_BYTES : position + header.size_bytes]
    if not header.attributes & CODEC_MASK:
        return bytes(body)
    from klog.record.compression import decompress

    try:
        return bytes(decompress(header.codec, body, unpacked_bytes_max))
    except UnpackedTooLarge:
        raise MessageTooLarge(
            f"a batch of {header.size_bytes} bytes unpacks to more than {unpacked_bytes_max}, which is"
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


def _check_times(data: bytes, position: int, header: BatchHeader, earliest_ms: int, latest_ms: int) -> int:
    """The largest timestamp of the records. Raises InvalidTimestamp for one outside the limits, InvalidRecord as
    `_count`."""
    _count(data, position, header)
    base_ms = header.base_timestamp_ms
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
                    named.append((number, _outside(time_ms, latest_ms, earliest_ms)))
    except CorruptBatch as error:
        raise InvalidRecord(error.message) from None
    if named:
        raise InvalidTimestamp(
            f"{wrong} of {header.count} records have a timestamp that this topic does not take: {named[0][1]}",
            record_errors=tuple(named),
        )
    if header.max_timestamp_ms > latest_ms:
        raise InvalidTimestamp(f"a batch says its {_outside(header.max_timestamp_ms, latest_ms, earliest_ms)}")
    if not -1 <= newest_ms < 1 << 63:
        raise InvalidTimestamp(f"a batch's latest record has the timestamp {newest_ms} ms; expected 0 or more, or -1")
    return newest_ms


def _outside(time_ms: int, latest_ms: int, earliest_ms: int) -> str:
    if time_ms > latest_ms:
        return (
            f"timestamp {time_ms} ms is later than {latest_ms}, as far ahead of the broker's clock as"
            " message.timestamp.after.max.ms allows"
        )
    if time_ms < -1:
        return f"timestamp {time_ms} ms is none; expected 0 or more, or -1"
    return (
        f"timestamp {time_ms} ms is earlier than {earliest_ms}, as far behind the broker's clock as"
        " message.timestamp.before.max.ms allows"
    )


def _with_newest(buffer: memoryview, position: int, header: BatchHeader, newest_ms: int) -> BatchHeader:
    """Fill in the largest timestamp, as Kafka's brokers do (sarama before 1.45.1 sends -1)."""
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, newest_ms)
    crc = crc32c(buffer[position + CRC_FROM : position + header.size_bytes])
    _CRC.pack_into(buffer, position + CRC_AT, crc)
    return header._replace(max_timestamp_ms=newest_ms, crc=crc)
