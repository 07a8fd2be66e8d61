"""Produce on the wire, by hand: versions 3 to 9.

Why not kio: it returns record bytes as new, immutable `bytes`. A leader writes its address into each batch before
it writes the batch to the log (the two fields lie outside the CRC), so it needs the bytes where they were
received, and the copy would be the only one on the way of a message. `tests/protocol/test_produce.py` holds this
module against kio.

Request, version 3 to 8 (9 has compact lengths and tags, KIP-482):

    transactional_id  nullable string
    acks              int16     -1, 0 or 1
    timeout_ms        int32
    topics            array of
        name          string
        partitions    array of
            index     int32
            records   nullable bytes

Response: array of topics (name, array of: index int32, error int16, base offset int64, log append time int64, log start
offset int64 from version 5, record errors and error message from version 8), then the throttle time int32.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from klog.errors import MalformedRequest
from klog.protocol.bounds import RECORD_SETS_MAX, check_count, read_uvarint
from klog.protocol.codec import RequestHead, skip_tags, uvarint

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_INDEX_SIZE = struct.Struct(">ii")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_ANSWER_2 = struct.Struct(">ihqq")
_ANSWER_5 = struct.Struct(">ihqqq")

FLEXIBLE_FROM = 9

_AROUND_ONE = {False: (b"\0\0\0\1", b"\0\0\0\0"), True: (b"\0\2", b"\0\0\0\0\0\0")}
"""The bytes around the answer for one topic: tags of the head, an array's length; tags, the throttle time, tags."""
_NOTHING_REFUSED = {False: b"\0\0\0\0\xff\xff", True: b"\1\0\0"}
"""No refused records, no message."""

Records: TypeAlias = memoryview
"""A record set in the receive buffer."""


class ProducedPartition(NamedTuple):
    topic: str
    partition: int
    records: Records
    """The record set as received, writable, valid until the handler returns."""


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[ProducedPartition]


class PartitionAnswer(NamedTuple):
    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_start_offset: int
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    """Records that caused a refusal: number in the batch, and a sentence (from version 8)."""


def read_request(frame: memoryview, head: RequestHead) -> ProduceRequest:
    """The request in ``frame``. Raises MalformedRequest. Bytes behind it are ignored, as by Kafka."""
    try:
        if head.version >= FLEXIBLE_FROM:
            return _read_flexible(frame, head.body_at)
        return _read_plain(frame, head.body_at)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise MalformedRequest(f"Produce version {head.version} does not parse: {error}") from None


def _read_plain(frame: memoryview, at: int) -> ProduceRequest:
    (size,) = _I16.unpack_from(frame, at)
    at += 2
    transactional_id = None
    if size >= 0:
        transactional_id, at = read_text(frame, at, size)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, at)
    (topics,) = _I32.unpack_from(frame, at + 6)
    check_count(0, topics, RECORD_SETS_MAX)
    at += 10
    partitions: list[ProducedPartition] = []
    for _ in range(topics):
        (size,) = _I16.unpack_from(frame, at)
        topic, at = read_text(frame, at + 2, size)
        (count,) = _I32.unpack_from(frame, at)
        check_count(len(partitions), count, RECORD_SETS_MAX)
        at += 4
        for _ in range(count):
            index, size = _INDEX_SIZE.unpack_from(frame, at)
            records, at = _records(frame, at + 8, size)
            partitions.append(ProducedPartition(topic, index, records))
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _read_flexible(frame: memoryview, at: int) -> ProduceRequest:
    size, at = read_uvarint(frame, at)
    transactional_id = None
    if size > 0:
        transactional_id, at = read_text(frame, at, size - 1)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, at)
    topics, at = read_uvarint(frame, at + 6)
    check_count(0, topics, RECORD_SETS_MAX)
    partitions: list[ProducedPartition] = []
    for _ in range(topics - 1):
        size, at = read_uvarint(frame, at)
        topic, at = read_text(frame, at, size - 1)
        count, at = read_uvarint(frame, at)
        check_count(len(partitions), count, RECORD_SETS_MAX)
        for _ in range(count - 1):
            (index,) = _I32.unpack_from(frame, at)
            size, at = read_uvarint(frame, at + 4)
            records, at = _records(frame, at, size - 1)
            at = skip_tags(frame, at)
            partitions.append(ProducedPartition(topic, index, records))
        at = skip_tags(frame, at)
    skip_tags(frame, at)
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def read_text(frame: memoryview, at: int, size: int) -> tuple[str, int]:
    """A string of ``size`` bytes, and its end."""
    end = at + size
    if size < 0 or end > len(frame):
        raise MalformedRequest(f"a string of {size} bytes at byte {at} of a request of {len(frame)}")
    return str(frame[at:end], "utf-8"), end


def _records(frame: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    if size < 0:  # null: an empty record set, which the log refuses
        return frame[at:at], at
    end = at + size
    if end > len(frame):
        raise MalformedRequest(f"records of {size} bytes at byte {at} of a request of {len(frame)}")
    return frame[at:end], end


def write_response(head: RequestHead, answers: list[PartitionAnswer]) -> bytes:
    """The whole answer with its length in front. Partitions of a topic must be adjacent."""
    flexible = head.version >= FLEXIBLE_FROM
    if len(answers) == 1:  # nearly all
        (answer,) = answers
        before, after = _AROUND_ONE[flexible]
        one = _partition_answer(answer, head.version, flexible)
        joined = before + topic_head(answer.topic, 1, flexible) + one + after
        return _SIZE_AND_CORRELATION.pack(len(joined) + 4, head.correlation_id) + joined
    topics: dict[str, list[PartitionAnswer]] = {}
    for answer in answers:
        topics.setdefault(answer.topic, []).append(answer)
    body = [b"\0" if flexible else b"", array_length(len(topics), flexible)]
    for topic, parts in topics.items():
        body.append(topic_head(topic, len(parts), flexible))
        body += [_partition_answer(part, head.version, flexible) for part in parts]
        if flexible:
            body.append(b"\0")
    body.append(b"\0\0\0\0\0" if flexible else b"\0\0\0\0")
    joined = b"".join(body)
    return _SIZE_AND_CORRELATION.pack(len(joined) + 4, head.correlation_id) + joined


@lru_cache(4096)
def topic_head(topic: str, partitions: int, flexible: bool) -> bytes:
    """A topic's name and its number of partitions; cached, since nearly every answer has the same."""
    name = topic.encode()
    return (uvarint(len(name) + 1) if flexible else _I16.pack(len(name))) + name + array_length(partitions, flexible)


def _partition_answer(part: PartitionAnswer, version: int, flexible: bool) -> bytes:
    if version < 5:
        return _ANSWER_2.pack(part.partition, part.error_code, part.base_offset, -1)
    answer = _ANSWER_5.pack(part.partition, part.error_code, part.base_offset, -1, part.log_start_offset)
    if version < 8:
        return answer
    if part.message is None:
        return answer + _NOTHING_REFUSED[flexible]
    end = b"\0" if flexible else b""
    named = [_I32.pack(number) + _nullable(why, flexible) + end for number, why in part.record_errors]
    return answer + array_length(len(named), flexible) + b"".join(named) + _nullable(part.message, flexible) + end


def array_length(count: int, flexible: bool) -> bytes:
    """An array's length, as compact or plain versions write it."""
    return uvarint(count + 1) if flexible else _I32.pack(count)


def _nullable(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    data = text.encode()[:32767]
    return (uvarint(len(data) + 1) if flexible else _I16.pack(len(data))) + data
