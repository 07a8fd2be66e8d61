"""The header of a record batch (magic 2); walks, checks and stamps batches without reading their records.

Layout, big endian (KIP-98; the protocol guide's "Record Batch")::

     0  base offset             int64   in klog's log: the batch's own address
     8  batch length            int32   bytes after this field
    12  partition leader epoch  int32
    16  magic                   int8    2
    17  CRC-32C                 uint32  of everything from byte 21 on
    21  attributes              int16   0-2 codec, 3 log append time, 4 transactional, 5 control
    23  last offset delta       int32   count - 1
    27  base timestamp          int64   ms, of the first record
    35  max timestamp           int64   ms
    43  producer id             int64   -1 for none
    51  producer epoch          int16
    53  base sequence           int32
    57  count                   int32   records
    61  records, compressed as one piece

Base offset and leader epoch are outside the CRC: a leader stamps both, and the producer's CRC goes unchanged from the
producer to every disk and consumer. Magic 0 and 1 have their magic byte at the same place, which distinguishes them.

A batch at address A takes max(size, count) addresses: offsets of records and addresses of batches share one number
line, and a well compressed batch can have more records than bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from klog.errors import CorruptBatch, UnsupportedCodec, UnsupportedFormat
from klog.record.codec import CODEC_MASK, Codec

Bytes: TypeAlias = bytes | bytearray | memoryview
"""Byte buffers of item size 1."""

HEADER_BYTES: Final = 61
LENGTH_PREFIX_BYTES: Final = 12
"""Bytes not counted by the field ``batch length``: itself and the base offset."""
MAGIC: Final = 2
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

RECORD_BYTES_MIN: Final = 7
"""The smallest record: length, attributes, timestamp delta, offset delta, key length, value length, header count."""

_HEADER: Final = struct.Struct(
    ">"
    "q"  # base offset
    "i"  # batch length
    "i"  # partition leader epoch
    "b"  # magic
    "I"  # CRC-32C
    "h"  # attributes
    "i"  # last offset delta
    "q"  # base timestamp
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # count
)
assert _HEADER.size == HEADER_BYTES
CRC_AT: Final = 17
CRC_FROM: Final = 21
_CRC: Final = struct.Struct(">I")
_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_LEADER_EPOCH_AT: Final = 12

_unpack = _HEADER.unpack_from
_new = tuple.__new__


class BatchHeader(NamedTuple):
    """The fields of a batch's header in their order, and values derived from them."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which klog never calls

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def span(self) -> int:
        """The number of addresses that the batch takes."""
        return max(self.batch_length + LENGTH_PREFIX_BYTES, self.count)

    @property
    def next_address(self) -> int:
        """The address of the batch after it, if ``base_offset`` is this batch's address."""
        return self.base_offset + max(self.batch_length + LENGTH_PREFIX_BYTES, self.count)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        """Raises UnsupportedCodec for an unknown number."""
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise UnsupportedCodec(f"compression codec {number} is unknown; 0 (none) to 4 (zstd) are known")
        return Codec(number)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent producer wrote it."""
        return self.producer_id >= 0


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header at ``position``, unchecked. Raises CorruptBatch if bytes are missing."""
    try:
        return _new(BatchHeader, _unpack(buffer, position))
    except struct.error:
        raise CorruptBatch(
            f"no whole batch header at byte {position}: found {max(0, len(buffer) - position)} bytes,"
            f" expected {HEADER_BYTES}"
        ) from None


def write_header(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """The inverse of read_header; computes the CRC of the bytes in ``buffer`` instead of using ``header.crc``."""
    _HEADER.pack_into(buffer, position, *header)
    with memoryview(buffer) as view:
        crc = crc32c(view[position + CRC_FROM : position + header.size_bytes])
    _CRC.pack_into(buffer, position + CRC_AT, crc)


def check_shape(header: BatchHeader, position: int) -> None:
    """Check magic and length. Raises UnsupportedFormat, CorruptBatch."""
    if header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        if header.magic in (0, 1) and header.batch_length > 0:
            raise _old_format(header, position)
        raise CorruptBatch(
            f"batch at byte {position} says it is {header.size_bytes} bytes long; a header alone has {HEADER_BYTES}"
        )
    if header.magic != MAGIC:
        raise _old_format(header, position)


def _old_format(header: BatchHeader, position: int) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"batch at byte {position} has message format (magic) {header.magic}; expected {MAGIC}",
        hint="use a client of Kafka 0.11 or newer, and no message.format.version below it",
    )


def walk(buffer: Bytes, *, allow_partial: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """The batches in ``buffer``, each with its position.

    Checks lengths and magic, not the CRC. Raises CorruptBatch at bytes that are not a whole batch, and
    UnsupportedFormat. With ``allow_partial`` a batch cut off by the end, as in answers to old fetches, ends the walk.
    """
    position, end = 0, len(buffer)
    while position < end:
        if end - position < HEADER_BYTES:
            if allow_partial:
                return
            raise CorruptBatch(f"no whole batch header at byte {position}: {end - position} bytes before the end")
        header = read_header(buffer, position)
        if header.magic != MAGIC or header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            check_shape(header, position)
        next_position = position + header.batch_length + LENGTH_PREFIX_BYTES
        if next_position > end:
            if allow_partial:
                return
            raise _cut_off(header, position, end)
        yield position, header
        position = next_position


def _cut_off(header: BatchHeader, position: int, end: int) -> CorruptBatch:
    return CorruptBatch(
        f"batch at byte {position} says it is {header.size_bytes} bytes long; only {end - position} are there"
    )


def check_crc(buffer: Bytes, position: int, header: BatchHeader) -> None:
    """Raise CorruptBatch unless the batch is whole and its CRC matches."""
    end = position + header.batch_length + LENGTH_PREFIX_BYTES
    if end > len(buffer):
        raise _cut_off(header, position, len(buffer))
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    found = crc32c(view[position + CRC_FROM : end])
    if found != header.crc:
        raise CorruptBatch(
            f"batch at byte {position} (base offset {header.base_offset}) has CRC-32C {header.crc:#010x}, "
            f"its bytes have {found:#010x}"
        )


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at ``position``. The CRC does not cover them."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)
