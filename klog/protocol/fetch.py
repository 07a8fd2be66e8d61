"""Fetch on the wire, by hand: versions 4 to 12.

Why not kio: the record bytes of an answer go from the page cache to the socket by sendfile, so the answer is written
as parts, the bytes around the records and, between them, ranges of files. The request is read by hand because every
message that a consumer waits for costs one: kio's objects and the check of its arrays took 20 us, this 4.
`tests/protocol/test_fetch.py` holds both against kio.

Request (12 has compact lengths and tags, KIP-482); what follows the topics is of no use here:

    replica_id      int32   -1 for a consumer, -2 for one that wants this broker's replica, led or not
    max_wait_ms     int32
    min_bytes       int32
    max_bytes       int32
    isolation       int8
    session         int32, int32    from version 7
    topics          array of
        name        string
        partitions  array of
            index              int32
            leader epoch       int32    from version 9; -1 where the client does not say
            offset             int64
            last epoch         int32    from version 12
            log start offset   int64    from version 5
            max_bytes          int32

Answer:

    throttle_ms     int32
    error           int16   from version 7
    session_id      int32   from version 7; 0, for no session is kept (KIP-227 allows it)
    topics          array of
        name        string
        partitions  array of
            index              int32
            error              int16
            high watermark     int64
            last stable offset int64     the high watermark: there are no transactions
            log start offset   int64     from version 5
            aborted            array     null
            preferred replica  int32     from version 11; -1
            records            nullable bytes
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from klog.errors import MalformedRequest
from klog.protocol.bounds import check_count, read_uvarint
from klog.protocol.codec import RequestHead, skip_tags, uvarint
from klog.protocol.produce import array_length, read_text, topic_head

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_REQUEST = struct.Struct(">iiiib")
_ASKED = {
    4: struct.Struct(">iqi"),
    5: struct.Struct(">iqqi"),
    9: struct.Struct(">iiqqi"),
    12: struct.Struct(">iiqiqi"),
}
"""By the first version with that layout of a request's partition."""
_PARTITION_4 = struct.Struct(">ihqq")
_PARTITION_5 = struct.Struct(">ihqqq")

FLEXIBLE_FROM = 12

R = TypeVar("R")


class AskedPartition(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: list[AskedPartition]
    """Each once: of a partition that is named twice the last one counts, as in Kafka."""
    replica_id: int = -1


def read_request(frame: memoryview, head: RequestHead) -> FetchRequest:
    """The request in ``frame``. Raises MalformedRequest. What follows the topics is ignored."""
    try:
        return _read_request(frame, head)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise MalformedRequest(f"Fetch version {head.version} does not parse: {error}") from None


def _read_request(frame: memoryview, head: RequestHead) -> FetchRequest:
    version = head.version
    flexible = version >= FLEXIBLE_FROM
    asked = _ASKED[12 if flexible else 9 if version >= 9 else 5 if version >= 5 else 4]
    replica_id, max_wait_ms, min_bytes, max_bytes, _ = _REQUEST.unpack_from(frame, head.body_at)
    at = head.body_at + (25 if version >= 7 else 17)
    partitions: list[AskedPartition] = []
    topics, at = _read_length(frame, at, flexible)
    check_count(0, topics)
    for _ in range(topics):
        if flexible:
            size, at = read_uvarint(frame, at)
            size -= 1
        else:
            (size,) = _I16.unpack_from(frame, at)
            at += 2
        topic, at = read_text(frame, at, size)
        count, at = _read_length(frame, at, flexible)
        check_count(len(partitions), count)
        for _ in range(count):
            values = asked.unpack_from(frame, at)
            at += asked.size
            if flexible:
                at = skip_tags(frame, at)
            if version >= 9:
                partitions.append(AskedPartition(topic, values[0], values[1], values[2], values[-1]))
            else:
                partitions.append(AskedPartition(topic, values[0], -1, values[1], values[-1]))
        if flexible:
            at = skip_tags(frame, at)
    if len(partitions) > 1:
        partitions = list({(one.topic, one.partition): one for one in partitions}.values())
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, partitions, replica_id)


def _read_length(frame: memoryview, at: int, flexible: bool) -> tuple[int, int]:
    """An array's length; null counts as empty. A false length fails at the end of the frame, since every element is
    read."""
    if flexible:
        length, at = read_uvarint(frame, at)
        return length - 1, at
    return _I32.unpack_from(frame, at)[0], at + 4


class FetchedPartition(NamedTuple, Generic[R]):
    topic: str
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    ranges: Sequence[R]
    """Whole batches, as ranges of files."""
    size_bytes: int
    """Of all ranges together."""


def write_response(head: RequestHead, fetched: Sequence[FetchedPartition[R]]) -> list[bytes | R]:
    """The parts of the whole answer, its length in front. Partitions of a topic must be adjacent."""
    flexible = head.version >= FLEXIBLE_FROM
    parts: list[bytes | R] = []
    body_bytes = 0
    out = bytearray(b"\0\0\0\0" + _I32.pack(head.correlation_id))
    out += b"\0\0\0\0\0" if flexible else b"\0\0\0\0"
    if head.version >= 7:
        out += b"\0\0\0\0\0\0"
    topics: dict[str, list[FetchedPartition[R]]] = {}
    for partition in fetched:
        topics.setdefault(partition.topic, []).append(partition)
    out += array_length(len(topics), flexible)
    for topic, partitions in topics.items():
        out += topic_head(topic, len(partitions), flexible)
        for one in partitions:
            high = one.high_watermark
            if head.version >= 5:
                out += _PARTITION_5.pack(one.partition, one.error_code, high, high, one.log_start_offset)
            else:
                out += _PARTITION_4.pack(one.partition, one.error_code, high, high)
            out += b"\0" if flexible else b"\xff\xff\xff\xff"
            if head.version >= 11:
                out += b"\xff\xff\xff\xff"
            out += uvarint(one.size_bytes + 1) if flexible else _I32.pack(one.size_bytes)
            if one.ranges:
                parts.append(bytes(out))
                body_bytes += len(out) + one.size_bytes
                parts.extend(one.ranges)
                out = bytearray()
            if flexible:
                out += b"\0"
        if flexible:
            out += b"\0"
    if flexible:
        out += b"\0"
    if out:
        parts.append(bytes(out))
        body_bytes += len(out)
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = _I32.pack(body_bytes - 4) + first[4:]
    return parts
