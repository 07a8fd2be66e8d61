"""The header that tells where a copied message comes from.

The header ``klog`` is the source's key (6 bytes: BLAKE2b of ``CLUSTER-ID/TOPIC/PARTITION``) and the offset there,
big-endian, in as few bytes as hold the offsets of its batch. It is appended to the headers of a message, those of
earlier copies included, so the last one tells the log that this message was copied from.

Strategy: keys, values, times and headers are moved as bytes and not read. A record is walked only up to its number of
headers, that number is raised, and the new header is appended: 1 us per record, where decoding and encoding take 6. The
rest (parts of batches, offsets with gaps as compaction leaves them, log append times) goes through the decoder and the
encoder of `records`.

Compression stays the same unless a codec is asked for. So do the batches, unless one would exceed the target's limit:
then it is split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from klog.errors import CorruptBatch, MessageTooLarge
from klog.record.admission import unpacked_bytes_max
from klog.record.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    check_crc,
    read_header,
    walk,
)
from klog.record.codec import Codec
from klog.record.records import (
    VARLONG_BYTES_MAX,
    Record,
    batch_of,
    each_record,
    encode_batch,
    read_varint,
    records_bytes,
    varint,
)

HEADER_NAME: Final = "klog"
KEY_BYTES: Final = 6
"""A partition is copied into from a few sources: two of them do not share 48 bits by chance."""
_OFFSET_BYTES_MAX: Final = 8
_NAME: Final = varint(len(HEADER_NAME)) + HEADER_NAME.encode()
_LARGEST: Final = 2**63 - 1
_VARINT_GROWTH: Final = 2
"""Bytes by which an encoded length may grow with a header's bytes."""

_LENGTHS: Final = tuple(varint(length) for length in range(8192))
"""Encoded lengths of nearly all records."""


class Source(NamedTuple):
    """A partition that is copied from."""

    cluster_id: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.topic}/{self.partition}"

    @property
    def key(self) -> bytes:
        """The source in provenance headers; `KEY_BYTES` long."""
        return _key(str(self))


@lru_cache(maxsize=4096)
def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).digest()


class Marked(NamedTuple):
    """Batches whose messages carry the header: ``messages`` of them, the last from ``last_offset`` of the source.

    ``next_offset``: where to continue in the source. Without messages (control batches, holes) ``records`` is empty and
    ``last_offset`` -1.
    """

    records: bytes
    messages: int
    first_offset: int
    last_offset: int
    next_offset: int


class Marker:
    """Adds the header to messages copied from one source."""

    def __init__(self, source: Source, *, batch_bytes_max: int = _LARGEST, codec: Codec | None = None) -> None:
        """``batch_bytes_max``: the largest batch that the target takes (its ``max.message.bytes``).

        ``codec``: of the batches made, None for that of each source batch.
        """
        self.source = source
        self._codec = codec
        self._batch_bytes_max = batch_bytes_max

    def header(self, offset: int) -> tuple[str, bytes]:
        """The header of the message at ``offset`` of the source."""
        return HEADER_NAME, self.source.key + offset.to_bytes(_bytes_of(offset), "big")

    def mark(
        self, run: memoryview, from_offset: int, to_offset: int = _LARGEST, *, messages_max: int = _LARGEST
    ) -> Marked:
        """The messages in [from, to) of a run of whole batches, ``messages_max`` at most.

        Raises CorruptBatch (a wrong CRC above all: a copy must not make damage good; messages in front of it are
        returned first), MessageTooLarge where a single message exceeds the target's largest batch.
        """
        parts: list[bytes] = []
        messages, first, last, after = 0, -1, -1, from_offset
        for position, header in walk(run):
            if messages == messages_max:
                break
            if header.base_offset >= to_offset:
                after = max(after, to_offset)  # batches ascend: nothing lies between the one before it and the end
                break
            try:
                check_crc(run, position, header)  # first: its end, and so whether it is wanted, may be damaged
            except CorruptBatch:
                if messages:
                    break
                raise
            end = header.last_offset + 1
            if end <= from_offset:
                continue
            after = min(end, to_offset)
            if header.is_control or not header.count:
                continue
            codec = header.codec if self._codec is None else self._codec
            left = messages_max - messages
            offsets: Sequence[int] = range(header.base_offset, end)
            is_whole = from_offset <= offsets[0] and end <= to_offset and len(offsets) == header.count <= left
            if is_whole and not header.attributes & LOG_APPEND_TIME:
                data = bytes(records_bytes(run, position, header))
            else:
                inside = (one for one in each_record(run, position) if from_offset <= one.offset < to_offset)
                wanted = list(islice(inside, min(left + 1, header.count)))
                if len(wanted) > left:
                    del wanted[left:]
                    after = wanted[-1].offset + 1
                if not wanted:
                    continue
                offsets = [one.offset for one in wanted]
                encoded = encode_batch(wanted)
                header, data = read_header(encoded), bytes(encoded[HEADER_BYTES:])
            parts += self._batches(data, header, offsets, codec)
            first = offsets[0] if first < 0 else first
            last = offsets[-1]
            messages += len(offsets)
        return Marked(b"".join(parts), messages, first, last, after)

    def _batches(self, data: bytes, header: BatchHeader, offsets: Sequence[int], codec: Codec) -> list[bytes]:
        """The records of a batch with their headers, in as few batches as the target's limits allow."""
        count = len(offsets)
        size = len(data) + count * (len(_NAME) + KEY_BYTES + _bytes_of(offsets[-1]) + 2 * _VARINT_GROWTH)
        # The limits of the target: packed, and unpacked if it is compressed.
        most, unpacked_most = self._batch_bytes_max, unpacked_bytes_max(self._batch_bytes_max)
        room = unpacked_most if codec else max(1, most - HEADER_BYTES)
        wanted = 1 if size <= room else 1 + (size * 17 // 16) // room  # a reserve: records differ in size
        while True:
            each = -(-count // min(wanted, count))
            made: list[bytes] = []
            for body, newest_ms in self._bodies(data, header, offsets, each):
                behind = len(made) * each
                batch = bytes(batch_of(body, min(each, count - behind), header.base_timestamp_ms, newest_ms, codec))
                if len(batch) > most or (codec and len(body) > unpacked_most):
                    if each == 1:
                        raise MessageTooLarge(
                            f"the message at offset {offsets[behind]} of {self.source} is a batch of {len(batch)} bytes"
                            f" with its header; the target takes {most}, and {unpacked_most} when it is unpacked",
                            hint="raise max.message.bytes of the target's topic",
                        )
                    wanted = max(2 * wanted, 1 + (len(batch) * 17 // 16) // most)
                    break
                made.append(batch)
            else:
                return made

    def _bodies(
        self, data: bytes, header: BatchHeader, offsets: Sequence[int], each: int
    ) -> Iterator[tuple[bytes, int]]:
        """The records with their headers, for batches of ``each``: the bytes, and the largest timestamp.

        Raises CorruptBatch.
        """
        cuts = each < len(offsets)
        # All offsets take as many bytes as the last one, so the header differs in the offset alone.
        offset_bytes = _bytes_of(offsets[-1])
        fixed = _NAME + varint(KEY_BYTES + offset_bytes) + self.source.key
        first = b"\x02" + fixed
        first_bytes = len(fixed) + offset_bytes
        small = len(_LENGTHS)
        pieces: list[bytes] = []
        append = pieces.append
        newest_ms, at = header.max_timestamp_ms, 0
        try:
            for number, offset in enumerate(offsets):
                if cuts and number % each == 0:
                    if number:
                        yield b"".join(pieces), newest_ms
                    pieces.clear()
                    newest_ms = -1
                byte = data[at]
                if byte < 0x80:
                    length, start = byte >> 1, at + 1  # zigzag; a negative one shows at the record's end
                elif (second := data[at + 1]) < 0x80:
                    length, start = ((byte & 0x7F) | second << 7) >> 1, at + 2
                else:
                    length, start = read_varint(data, at)
                at = start + length
                place = start + 1  # behind the attributes, which are unused
                if cuts:
                    newest_ms = max(
                        newest_ms, header.base_timestamp_ms + read_varint(data, place, VARLONG_BYTES_MAX)[0]
                    )
                while data[place] >= 0x80:
                    place += 1
                place += 1
                numbered_at = place
                while data[place] >= 0x80:
                    place += 1
                place += 1
                numbered_to = place
                byte = data[place]  # the key
                if byte < 0x80:
                    place += 1 if byte & 1 else 1 + (byte >> 1)
                else:
                    size, place = read_varint(data, place)
                    place += size
                byte = data[place]  # the value
                if byte < 0x80:
                    place += 1 if byte & 1 else 1 + (byte >> 1)
                elif (second := data[place + 1]) < 0x80:
                    place += 2 + (((byte & 0x7F) | second << 7) >> 1)
                else:
                    size, place = read_varint(data, place)
                    place += size
                if place == at - 1 and data[place] == 0:  # no headers: one byte is replaced by one
                    body = data[start:place]
                    tail = first + offset.to_bytes(offset_bytes, "big")
                    size = length + first_bytes
                else:
                    headers, behind = read_varint(data, place)
                    if headers < 0 or behind > at:
                        raise IndexError
                    body = data[start:place] + varint(headers + 1) + data[behind:at]
                    tail = fixed + offset.to_bytes(offset_bytes, "big")
                    size = len(body) + len(tail)
                if cuts and number >= each:
                    renumbered = varint(number % each)
                    size += len(renumbered) - (numbered_to - numbered_at)
                    body = body[: numbered_at - start] + renumbered + body[numbered_to - start :]
                append(_LENGTHS[size] if size < small else varint(size))
                append(body)
                append(tail)
        except IndexError:
            at = -1
        if at != len(data):
            raise CorruptBatch(f"the records of the batch at {offsets[0]} are not those that its header says")
        yield b"".join(pieces), newest_ms


def _bytes_of(offset: int) -> int:
    """The number of bytes that hold an offset."""
    return max(1, (offset.bit_length() + 7) // 8)


# --- reading the header ---


def mark_of(record: Record) -> tuple[bytes, int] | None:
    """The source's key and the offset there of a copied message; None for one that was not copied, or has a header of
    another form."""
    for name, content in reversed(record.headers):
        if name == HEADER_NAME and content is not None:
            return parse(content)
    return None


def parse(content: bytes) -> tuple[bytes, int] | None:
    """Parse the header's value; None for another form."""
    if not KEY_BYTES < len(content) <= KEY_BYTES + _OFFSET_BYTES_MAX:
        return None
    return content[:KEY_BYTES], int.from_bytes(content[KEY_BYTES:], "big")


class Copy(NamedTuple):
    """A message copied from the offset ``there`` of the source."""

    there: int
    record: Record


def copies_of(source: Source, run: memoryview, from_offset: int) -> Iterator[Copy]:
    """The messages of a run of whole batches, from an offset on, that were copied from the source, in order.

    Raises CorruptBatch for a wrong CRC.
    """
    key = source.key
    for position, header in walk(run):
        check_crc(run, position, header)
        if header.last_offset < from_offset or header.count < 1 or header.is_control:
            continue
        if key not in bytes(records_bytes(run, position, header)):
            continue
        for record in each_record(run, position):
            found = mark_of(record)
            if found is not None and found[0] == key and record.offset >= from_offset:
                yield Copy(found[1], record)
