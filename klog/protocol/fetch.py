"""The answer to Fetch on the wire, by hand: versions 4 to 12.

Why beside kio: the record bytes of the answer go from the page cache to the socket by sendfile, so the answer is
written as parts: the bytes around the records and, between them, ranges of files. `tests/protocol/test_fetch.py` holds
it against kio.

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

from klog.protocol.codec import RequestHead
from klog.protocol.produce import uvarint

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_PARTITION_4 = struct.Struct(">ihqq")
_PARTITION_5 = struct.Struct(">ihqqq")

FLEXIBLE_FROM = 12

R = TypeVar("R")


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
    """The parts of the whole answer, its length in front. Partitions of a topic must stand together."""
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
    out += _length(len(topics), flexible)
    for topic, partitions in topics.items():
        name = topic.encode()
        out += (uvarint(len(name) + 1) if flexible else _I16.pack(len(name))) + name
        out += _length(len(partitions), flexible)
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


def _length(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _I32.pack(count)
