"""Copied messages say where they come from, in a header that is small beside small messages.

The header ``klog`` is the source's key (6 bytes: what BLAKE2b makes of ``CLUSTER-ID/TOPIC/PARTITION``) and the offset
there, in as few bytes as hold the offsets of its batch, the most significant first. Older copies have the header
``klog.source``, the text ``CLUSTER-ID/TOPIC/PARTITION/OFFSET``; it counts as the same.

It stands behind all headers that a message has already, those of earlier copies among them, so the last one of these
names says which log this message was copied from.

Strategy: keys, values, times and headers are bytes that are moved and not read. A record is walked over only as far as
its number of headers, that number is raised, and the new header is put at its end: 1 us a record, where decoding and
encoding would take 6. What is out of the ordinary (a batch of which a part is wanted, offsets with gaps as compaction
leaves them, times that the broker has set) goes through the decoder and the encoder of `records`.

Compression stays as it is unless a codec is asked for. Which records stand together in a batch stays as it is, too, but
where a batch would become larger than its new log allows: then it is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from klog.errors import CorruptBatch, MessageTooLarge
from klog.record.batch import (
    CONTROL,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    check_crc,
    walk,
    write_header,
)
from klog.record.codec import CODEC_MASK, Codec
from klog.record.compression import compress
from klog.record.contents import unpacked_bytes_max
from klog.record.records import (
    VARLONG_BYTES_MAX,
    Record,
    each_record,
    encode_batch,
    read_varint,
    records_bytes,
    varint,
)

HEADER_NAME: Final = "klog"
OLD_HEADER_NAME: Final = "klog.source"
KEY_BYTES: Final = 6
"""A partition is copied into from a few sources: that two of them have the same 48 bits does not happen by chance."""
_OFFSET_BYTES_MAX: Final = 8
_NAME: Final = varint(len(HEADER_NAME)) + HEADER_NAME.encode()
_LARGEST: Final = 2**63 - 1
_VARINT_GROWTH: Final = 2
"""What a length may grow by when it becomes larger by a header's bytes."""

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
        """What names it in marks; `KEY_BYTES` long."""
        return _key(str(self))


@lru_cache(maxsize=4096)
def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).digest()


class Marked(NamedTuple):
    """Batches whose messages carry the header: ``messages`` of them, the last from ``last_offset`` of the source.

    ``next_offset``: where to go on in the source. Without messages (control batches, holes) ``records`` is empty and
    ``last_offset`` -1.
    """

    records: bytes
    messages: int
    first_offset: int
    last_offset: int
    next_offset: int


class Marker:
    """Marks what is copied from one source."""

    def __init__(self, source: Source, *, batch_bytes_max: int = _LARGEST, codec: Codec | None = None) -> None:
        """``batch_bytes_max``: the largest batch that the target takes (its ``max.message.bytes``).

        ``codec``: of the batches made, None for that of each source batch.
        """
        self.source = source
        self._codec = codec
        self._key = source.key
        self._batch_bytes_max = batch_bytes_max

    def header(self, offset: int) -> tuple[str, bytes]:
        """The header of the message at ``offset`` of the source."""
        return HEADER_NAME, self._key + offset.to_bytes(_bytes_of(offset), "big")

    def mark(
        self, run: memoryview, from_offset: int, to_offset: int = _LARGEST, *, messages_max: int = _LARGEST
    ) -> Marked:
        """What lies in [from, to) of a run of whole batches, at most so many messages of it.

        Raises CorruptBatch (a wrong CRC above all: a copy must not make damage good; messages in front of it are given
        first), MessageTooLarge where one message alone is larger than the target's largest batch.
        """
        parts: list[bytes] = []
        messages, first, last, after = 0, -1, -1, from_offset
        for position, header in walk(run):
            if messages == messages_max:
                break
            if header.base_offset >= to_offset:
                after = max(after, to_offset)  # batches rise: between the one before it and the end lies nothing
                break
            try:
                check_crc(run, position, header)  # first: where it ends, and so whether it is wanted, may be damaged
            except CorruptBatch:
                if messages:
                    break
                raise
            end = header.last_offset + 1
            if end <= from_offset:
                continue
            after = min(end, to_offset)
            if header.attributes & CONTROL or not header.count:
                continue
            left = messages_max - messages
            is_whole = header.base_offset >= from_offset and end <= to_offset and header.count <= left
            if is_whole and header.last_offset_delta == header.count - 1 and not header.attributes & LOG_APPEND_TIME:
                try:
                    self._mark_whole(run, position, header, parts)
                except _OffsetsHaveGaps:
                    is_whole = False
                else:
                    first = header.base_offset if first < 0 else first
                    last = end - 1
                    messages += header.count
                    continue
            inside = (one for one in each_record(run, position) if from_offset <= one.offset < to_offset)
            wanted = list(islice(inside, min(left + 1, header.count)))
            if len(wanted) > left:
                wanted = wanted[:left]
                after = wanted[-1].offset + 1
            if wanted:
                parts += self.encode(wanted, header.codec if self._codec is None else self._codec)
                first = wanted[0].offset if first < 0 else first
                last = wanted[-1].offset
                messages += len(wanted)
        return Marked(b"".join(parts), messages, first, last, after)

    def encode(self, records: Sequence[Record], codec: Codec) -> list[bytes]:
        """Batches of these records with their headers, by the ordinary encoder."""
        marked = [one._replace(headers=(*one.headers, self.header(one.offset))) for one in records]
        batch = bytes(encode_batch(marked, codec=codec))
        if self._fits(batch, sum(map(_bytes_at_most, marked)) if codec else 0):
            return [batch]
        self._check_divisible(len(records), len(batch), records[0].offset)
        half = len(records) // 2
        return self.encode(records[:half], codec) + self.encode(records[half:], codec)

    def _fits(self, batch: bytes, unpacked_bytes: int) -> bool:
        """Whether the target takes it: as it is, and unpacked where it is compressed."""
        if len(batch) > self._batch_bytes_max:
            return False
        return len(batch) > unpacked_bytes or unpacked_bytes <= unpacked_bytes_max(self._batch_bytes_max)

    def _check_divisible(self, count: int, size: int, offset: int) -> None:
        if count < 2:
            most = unpacked_bytes_max(self._batch_bytes_max)
            raise MessageTooLarge(
                f"the message at offset {offset} of {self.source} is a batch of {size} bytes with its header;"
                f" the target takes {self._batch_bytes_max}, and {most} when it is unpacked",
                hint="raise max.message.bytes of the target's topic",
            )

    # --- whole batches ---

    def _mark_whole(self, run: memoryview, position: int, header: BatchHeader, parts: list[bytes]) -> None:
        data = bytes(records_bytes(run, position, header))
        if self._codec is not None:
            header = header._replace(attributes=header.attributes & ~CODEC_MASK | self._codec)
        added = len(_NAME) + KEY_BYTES + _bytes_of(header.last_offset) + 2 * _VARINT_GROWTH
        largest = HEADER_BYTES + len(data) + added * header.count
        try:
            if header.attributes & CODEC_MASK or largest <= self._batch_bytes_max:
                body = b"".join(self._pieces(data, header, header.count)[0])
                batch = _batch(body, header, header.count)
                if self._fits(batch, len(body)):
                    parts.append(batch)
                    return
                largest = len(batch)
            self._mark_in_parts(data, header, largest, parts)
        except IndexError:
            raise CorruptBatch(f"a record of the batch at {header.base_offset} reaches past the batch's end") from None

    def _mark_in_parts(self, data: bytes, header: BatchHeader, size: int, parts: list[bytes]) -> None:
        """The same records as several batches; ``size`` is that of the one that would be too large."""
        count = header.count
        wanted = 1 + (size * 17 // 16) // self._batch_bytes_max  # some room: records differ in size
        if header.attributes & CODEC_MASK:
            wanted = max(wanted, 1 + (len(data) * 17 // 16) // unpacked_bytes_max(self._batch_bytes_max))
        wanted = min(wanted, count)
        while True:
            each = -(-count // wanted)
            pieces, times = self._pieces(data, header, each)
            made = []
            fits = True
            for begin in range(0, count, each):
                end = min(begin + each, count)
                newest_ms = header.base_timestamp_ms + max(times[begin:end]) if times else header.max_timestamp_ms
                like = header._replace(max_timestamp_ms=newest_ms)
                body = b"".join(pieces[3 * begin : 3 * end])
                made.append(_batch(body, like, end - begin))
                fits = fits and self._fits(made[-1], len(body))
            if fits:
                parts += made
                return
            self._check_divisible(each, max(map(len, made)), header.base_offset)
            wanted = min(count, 2 * wanted)

    def _pieces(self, data: bytes, header: BatchHeader, each: int) -> tuple[list[bytes], list[int]]:
        """The records with their headers, three pieces of bytes a record, for batches of ``each``.

        Behind them the times, as they are in the records, where there is more than one batch: they lie in between.
        Raises _OffsetsHaveGaps, CorruptBatch and, past the end, IndexError.
        """
        pieces: list[bytes] = []
        times: list[int] = []
        append = pieces.append
        offset = header.base_offset
        cuts = each < header.count
        # Up to the offset the header is the same for all records: all offsets take as many bytes as the last one.
        offset_bytes = _bytes_of(header.last_offset)
        fixed = _NAME + varint(KEY_BYTES + offset_bytes) + self._key
        first = b"\x02" + fixed
        first_bytes = len(fixed) + offset_bytes
        small = len(_LENGTHS)
        at = 0
        for number in range(header.count):
            byte = data[at]
            if byte < 0x80:
                length, start = byte >> 1, at + 1  # zigzag; a negative one is found out by where the record ends
            elif (second := data[at + 1]) < 0x80:
                length, start = ((byte & 0x7F) | second << 7) >> 1, at + 2
            else:
                length, start = read_varint(data, at)
            at = start + length
            place = start + 1  # behind the attributes, which say nothing
            if cuts:
                time, place = read_varint(data, place, VARLONG_BYTES_MAX)
                times.append(time)
            else:
                while data[place] >= 0x80:
                    place += 1
                place += 1
            numbered_at = place
            byte = data[place]
            if byte < 0x80:
                delta, place = byte >> 1, place + 1
            elif (second := data[place + 1]) < 0x80:
                delta, place = ((byte & 0x7F) | second << 7) >> 1, place + 2
            else:
                delta, place = read_varint(data, place)
            if delta != number:
                raise _OffsetsHaveGaps
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
            if place == at - 1 and data[place] == 0:  # no headers: one byte makes way for one
                tail = first + offset.to_bytes(offset_bytes, "big")
                size = length + first_bytes
                body = data[start:place]
            else:
                if place >= at:
                    raise CorruptBatch(f"record {number} of the batch at {header.base_offset} has no place for headers")
                headers, behind = read_varint(data, place)
                if headers < 0 or behind > at:
                    raise CorruptBatch(f"record {number} of the batch at {header.base_offset} has no place for headers")
                tail = fixed + offset.to_bytes(offset_bytes, "big")
                body = data[start:place] + varint(headers + 1) + data[behind:at]
                size = len(body) + len(tail)
            if cuts and number >= each:
                anew = varint(number % each)
                size += len(anew) - (numbered_to - numbered_at)
                body = body[: numbered_at - start] + anew + body[numbered_to - start :]
            append(_LENGTHS[size] if size < small else varint(size))
            append(body)
            append(tail)
            offset += 1
        if at != len(data):
            raise CorruptBatch(f"the records of the batch at {header.base_offset} end at byte {at}, not {len(data)}")
        return pieces, times


class _OffsetsHaveGaps(Exception):
    """A batch that compaction has been through: it has renumbered its records."""


def _bytes_at_most(record: Record) -> int:
    """What a record may take when it is encoded."""
    headers = sum(4 * len(name) + len(content or b"") + 10 for name, content in record.headers)
    return 40 + len(record.key or b"") + len(record.value or b"") + headers


def _batch(body: bytes, like: BatchHeader, count: int) -> bytes:
    """A batch of these encoded records, with the codec and the times of ``like`` and without a producer."""
    codec = Codec(like.attributes & CODEC_MASK)
    batch = bytearray(HEADER_BYTES)
    batch += compress(codec, body) if codec else body
    header = BatchHeader(
        base_offset=0,
        batch_length=len(batch) - LENGTH_PREFIX_BYTES,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp_ms=like.base_timestamp_ms,
        max_timestamp_ms=like.max_timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )
    write_header(batch, 0, header)
    return bytes(batch)


def _bytes_of(offset: int) -> int:
    """How many bytes hold an offset."""
    return max(1, (offset.bit_length() + 7) // 8)


# --- reading marks ---


def mark_of(record: Record) -> tuple[bytes, int] | None:
    """The key of the source that a message was copied from and the offset there, None where it was not copied; a header
    of another form does not count.
    """
    for name, content in reversed(record.headers):
        if name in _PARSERS and content is not None:
            return _PARSERS[name](content)
    return None


def parse(content: bytes) -> tuple[bytes, int] | None:
    """The value of the header; None where it is another's."""
    if not KEY_BYTES < len(content) <= KEY_BYTES + _OFFSET_BYTES_MAX:
        return None
    return content[:KEY_BYTES], int.from_bytes(content[KEY_BYTES:], "big")


def parse_old(content: bytes) -> tuple[bytes, int] | None:
    """The value of the header that older copies have; None where it is another's."""
    try:
        cluster_id, topic, partition, offset = content.decode("ascii").split("/")
        return Source(cluster_id, topic, int(partition)).key, int(offset)
    except (UnicodeDecodeError, ValueError):
        return None


_PARSERS: Final = {HEADER_NAME: parse, OLD_HEADER_NAME: parse_old}


class Copy(NamedTuple):
    """A message that says that it is the copy of one at the offset ``there`` of the source."""

    there: int
    record: Record


def copies_of(source: Source, run: memoryview, from_offset: int) -> Iterator[Copy]:
    """The messages of a run of whole batches, from an offset on, that are marked as copies from a source, as they come.

    Raises CorruptBatch for a wrong CRC.
    """
    key, old = source.key, f"{source}/".encode()
    for position, header in walk(run):
        check_crc(run, position, header)
        if header.last_offset < from_offset or header.count < 1 or header.attributes & CONTROL:
            continue
        data = bytes(records_bytes(run, position, header))
        if key not in data and old not in data:
            continue
        for record in each_record(run, position):
            found = mark_of(record)
            if found is not None and found[0] == key and record.offset >= from_offset:
                yield Copy(found[1], record)
