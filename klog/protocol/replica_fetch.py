"""ReplicaFetch on the wire, by hand: how a follower gets its leader's bytes (rule R3).

Why not Fetch: a request names only what has changed since the last one, an answer only partitions that have something,
since at 1,000 partitions a full request costs 5 ms to write and 7 ms to answer. The state is the connection's, and goes
with it: a follower names a partition once, under a slot number of its choice, and from then on says the number.
Positions are addresses; the ends that are shown to consumers travel beside them as offsets.

Request, behind the head (key 10017, version 0, no tags); a byte tells the sort:

    0 OPEN     the first of a connection, answered
        cluster id     string     of the follower
        broker id      int32      of the follower
        incarnation    int64      of the follower: its registration's czxid
        leader         int32      who is meant to be listening
    1 FETCH    answered when there is something, or after max_wait; one at a time on a connection
        max_wait_ms    int32
        min_bytes      int32
        max_bytes      int32      of records; the first partition's first batch comes whole whatever its size
        entries        to the end of the frame
    2 UPDATE   not answered: a flush has ended, or partitions have come or gone while a FETCH waits
        entries        to the end of the frame
    3 RANGE    answered at once: bytes that the follower's disk has lost. It says nothing of where the follower is
        topic id       16 bytes
        partition      int32
        leader epoch   int32
        address        int64
        max_bytes      int32
        topic          string

Entries, told by a byte:

    0 NAME     slot int32, topic id 16 bytes, partition int32, leader epoch int32, topic string
    1 WANT     slot int32, epoch of the last batch int32 (-1: none), log end int64, flushed end int64 and int64 (address
               and offset), max_bytes int32: send what follows. One answer, then the slot must want again
    2 FLUSHED  slot int32, flushed end int64 and int64
    3 FORGET   slot int32

Answer, behind the correlation id. To OPEN:

    error          int16
    message        string     why, where there is an error
    incarnation    int64      of the leader; -1 with an error

to RANGE, one entry, RECORDS or FAILED, of slot -1; and to FETCH, entries to the end of the frame:

    0 RECORDS    slot int32, high watermark int64 and int64, start shown int64, address of the first batch int64 (behind
                 a hole it is not the one asked for), size int32, the batches
    1 DIVERGED   slot int32, epoch int32, its end int64 and int64: cut, and want again
    2 ELSEWHERE  slot int32, address int64, start shown int64: begin there, and want again
    3 FAILED     slot int32, error int16, message string: the slot is forgotten

A string is an int16 of its length and UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from klog.errors import MalformedRequest
from klog.protocol.apis import ApiKey
from klog.protocol.bounds import check_count
from klog.protocol.codec import RequestHead

OPEN: Final = 0
FETCH: Final = 1
UPDATE: Final = 2
RANGE: Final = 3
NO_SLOT: Final = -1

NAME: Final = 0
WANT: Final = 1
FLUSHED: Final = 2
FORGET: Final = 3

RECORDS: Final = 0
DIVERGED: Final = 1
ELSEWHERE: Final = 2
FAILED: Final = 3

TEXT_CHARS_MAX: Final = 1000
"""Limit of a refusal's text; a topic's name has 249 at most."""

_FRAME = struct.Struct(">ihhihB")  # length, key, version, correlation id, no client id, sort
_ANSWER = struct.Struct(">ii")
_TEXT = struct.Struct(">h")
_OPEN = struct.Struct(">iqi")
_FETCH = struct.Struct(">iii")
_RANGE = struct.Struct(">16siiqi")
_SLOT = struct.Struct(">Bi")
_NAME = struct.Struct(">Bi16sii")
_WANT = struct.Struct(">Biiqqqi")
_FLUSHED = struct.Struct(">Biqq")
_OPENED = struct.Struct(">q")
_ERROR = struct.Struct(">h")
_RECORDS = struct.Struct(">Biqqqqi")
_DIVERGED = struct.Struct(">Biiqq")
_ELSEWHERE = struct.Struct(">Biqq")
_FAILED = struct.Struct(">Bih")


# --- Requests ---------------------------------------------------------------------------------------------------------


class Open(NamedTuple):
    cluster_id: str
    broker_id: int
    incarnation: int
    leader: int


class Fetch(NamedTuple):
    """``entries_at``: start of the entries in the frame."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    entries_at: int


class Update(NamedTuple):
    entries_at: int


class Range(NamedTuple):
    topic_id: UUID
    partition: int
    leader_epoch: int
    address: int
    max_bytes: int
    topic: str


class Name(NamedTuple):
    slot: int
    topic_id: UUID
    partition: int
    leader_epoch: int
    topic: str


class Want(NamedTuple):
    slot: int
    last_epoch: int
    end_address: int
    flushed_address: int
    flushed_offset: int
    max_bytes: int


class Flushed(NamedTuple):
    slot: int
    address: int
    offset: int


class Forget(NamedTuple):
    slot: int


FetchEntry: TypeAlias = Name | Want | Flushed | Forget


class Entries:
    """Builds the entries of a request."""

    def __init__(self) -> None:
        self.data = bytearray()

    def __len__(self) -> int:
        return len(self.data)

    def name(self, slot: int, topic_id: UUID, partition: int, leader_epoch: int, topic: str) -> None:
        self.data += _NAME.pack(NAME, slot, topic_id.bytes, partition, leader_epoch) + _text(topic)

    def want(
        self, slot: int, last_epoch: int, end_address: int, flushed_address: int, flushed_offset: int, max_bytes: int
    ) -> None:
        self.data += _WANT.pack(WANT, slot, last_epoch, end_address, flushed_address, flushed_offset, max_bytes)

    def flushed(self, slot: int, address: int, offset: int) -> None:
        self.data += _FLUSHED.pack(FLUSHED, slot, address, offset)

    def forget(self, slot: int) -> None:
        self.data += _SLOT.pack(FORGET, slot)


def open_request(cluster_id: str, broker_id: int, incarnation: int, leader: int) -> bytes:
    """The whole frame, its length in front."""
    body = _text(cluster_id) + _OPEN.pack(broker_id, incarnation, leader)
    return _frame(OPEN, 0, body)


def fetch_request(correlation_id: int, max_wait_ms: int, min_bytes: int, max_bytes: int, entries: Entries) -> bytes:
    """The whole frame, its length in front."""
    return _frame(FETCH, correlation_id, _FETCH.pack(max_wait_ms, min_bytes, max_bytes) + entries.data)


def update(entries: Entries) -> bytes:
    """The whole frame, its length in front."""
    return _frame(UPDATE, 0, entries.data)


def range_request(correlation_id: int, asked: Range) -> bytes:
    """The whole frame, its length in front."""
    topic_id, partition, leader_epoch, address, max_bytes, topic = asked
    body = _RANGE.pack(topic_id.bytes, partition, leader_epoch, address, max_bytes) + _text(topic)
    return _frame(RANGE, correlation_id, body)


def _frame(sort: int, correlation_id: int, body: bytes | bytearray) -> bytes:
    size = _FRAME.size - 4 + len(body)
    return _FRAME.pack(size, ApiKey.REPLICA_FETCH, 0, correlation_id, -1, sort) + body


def _text(text: str) -> bytes:
    data = text[:TEXT_CHARS_MAX].encode()
    return _TEXT.pack(len(data)) + data


def read_request(frame: memoryview, head: RequestHead) -> Open | Fetch | Update | Range:
    """The request; read its entries by `read_entries`. Raises MalformedRequest."""
    try:
        sort, at = frame[head.body_at], head.body_at + 1
        if sort == FETCH:
            max_wait_ms, min_bytes, max_bytes = _FETCH.unpack_from(frame, at)
            return Fetch(max_wait_ms, min_bytes, max_bytes, at + _FETCH.size)
        if sort == UPDATE:
            return Update(at)
        if sort == RANGE:
            topic_id, partition, leader_epoch, address, max_bytes = _RANGE.unpack_from(frame, at)
            topic, at = _read_text(frame, at + _RANGE.size)
            return Range(UUID(bytes=topic_id), partition, leader_epoch, address, max_bytes, topic)
        if sort == OPEN:
            cluster_id, at = _read_text(frame, at)
            broker_id, incarnation, leader = _OPEN.unpack_from(frame, at)
            return Open(cluster_id, broker_id, incarnation, leader)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"ReplicaFetch does not parse: {error}") from None
    raise MalformedRequest(f"ReplicaFetch of the unknown sort {sort}")


def read_entries(frame: memoryview, at: int) -> Iterator[FetchEntry]:
    """The entries from ``at`` to the frame's end, read lazily. Raises MalformedRequest."""
    end, count = len(frame), 0
    try:
        while at < end:
            sort = frame[at]
            if sort == WANT:
                _, *values = _WANT.unpack_from(frame, at)
                at += _WANT.size
                yield Want(*values)
            elif sort == FLUSHED:
                _, slot, address, offset = _FLUSHED.unpack_from(frame, at)
                at += _FLUSHED.size
                yield Flushed(slot, address, offset)
            elif sort == NAME:
                _, slot, topic_id, partition, leader_epoch = _NAME.unpack_from(frame, at)
                topic, at = _read_text(frame, at + _NAME.size)
                yield Name(slot, UUID(bytes=topic_id), partition, leader_epoch, topic)
            elif sort == FORGET:
                _, slot = _SLOT.unpack_from(frame, at)
                at += _SLOT.size
                yield Forget(slot)
            else:
                raise MalformedRequest(f"ReplicaFetch has an entry of the unknown sort {sort} at byte {at}")
            count += 1
            check_count(count, 0)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"ReplicaFetch does not parse: {error}") from None


def _read_text(frame: memoryview, at: int) -> tuple[str, int]:
    (size,) = _TEXT.unpack_from(frame, at)
    at += _TEXT.size
    if not 0 <= size <= len(frame) - at:
        raise MalformedRequest(f"a string claims {size} bytes at byte {at}; {len(frame) - at} are left")
    return str(frame[at : at + size], "utf-8"), at + size


# --- Answers ----------------------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    error_code: int
    message: str
    incarnation: int


class Records(NamedTuple):
    slot: int
    high_address: int
    high_offset: int
    start_offset: int
    first_address: int
    data: memoryview
    """Whole batches; a view of the frame."""


class Diverged(NamedTuple):
    slot: int
    epoch: int
    end_address: int
    end_offset: int


class Elsewhere(NamedTuple):
    slot: int
    address: int
    start_offset: int


class Failed(NamedTuple):
    slot: int
    error_code: int
    message: str


Answer: TypeAlias = Records | Diverged | Elsewhere | Failed


def opened(head: RequestHead, error_code: int, message: str, incarnation: int) -> bytes:
    """The whole answer to OPEN, its length in front."""
    body = _ERROR.pack(error_code) + _text(message) + _OPENED.pack(incarnation)
    return _ANSWER.pack(4 + len(body), head.correlation_id) + body


def answer_head(size_bytes: int, correlation_id: int) -> bytes:
    """The head of an answer to FETCH, whose entries have ``size_bytes`` in all."""
    return _ANSWER.pack(4 + size_bytes, correlation_id)


def records_head(
    slot: int, high_address: int, high_offset: int, start_offset: int, first_address: int, size_bytes: int
) -> bytes:
    """A RECORDS entry without its batches."""
    return _RECORDS.pack(RECORDS, slot, high_address, high_offset, start_offset, first_address, size_bytes)


def diverged(slot: int, epoch: int, end_address: int, end_offset: int) -> bytes:
    return _DIVERGED.pack(DIVERGED, slot, epoch, end_address, end_offset)


def elsewhere(slot: int, address: int, start_offset: int) -> bytes:
    return _ELSEWHERE.pack(ELSEWHERE, slot, address, start_offset)


def failed(slot: int, error_code: int, message: str) -> bytes:
    return _FAILED.pack(FAILED, slot, error_code) + _text(message)


def read_opened(frame: memoryview) -> Opened:
    """The answer to OPEN; ``frame`` begins behind the length. Raises MalformedRequest."""
    try:
        (error_code,) = _ERROR.unpack_from(frame, 4)
        message, at = _read_text(frame, 6)
        (incarnation,) = _OPENED.unpack_from(frame, at)
        return Opened(error_code, message, incarnation)
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRequest(f"the answer to ReplicaFetch does not parse: {error}") from None


def read_correlation_id(frame: memoryview) -> int:
    """Raises MalformedRequest."""
    if len(frame) < 4:
        raise MalformedRequest(f"an answer of {len(frame)} bytes has no correlation id")
    return int.from_bytes(frame[:4], "big", signed=True)


def read_answer(frame: memoryview) -> Iterator[Answer]:
    """The entries of an answer to FETCH, read lazily. Raises MalformedRequest."""
    at, end = 4, len(frame)
    try:
        while at < end:
            sort = frame[at]
            if sort == RECORDS:
                _, slot, high_address, high_offset, start, first_address, size = _RECORDS.unpack_from(frame, at)
                at += _RECORDS.size
                if not 0 <= size <= end - at:
                    raise MalformedRequest(f"slot {slot} claims {size} bytes of records; {end - at} are left")
                yield Records(slot, high_address, high_offset, start, first_address, frame[at : at + size])
                at += size
            elif sort == DIVERGED:
                _, slot, epoch, address, offset = _DIVERGED.unpack_from(frame, at)
                at += _DIVERGED.size
                yield Diverged(slot, epoch, address, offset)
            elif sort == ELSEWHERE:
                _, slot, address, offset = _ELSEWHERE.unpack_from(frame, at)
                at += _ELSEWHERE.size
                yield Elsewhere(slot, address, offset)
            elif sort == FAILED:
                _, slot, code = _FAILED.unpack_from(frame, at)
                message, at = _read_text(frame, at + _FAILED.size)
                yield Failed(slot, code, message)
            else:
                raise MalformedRequest(f"the answer has an entry of the unknown sort {sort} at byte {at}")
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"the answer to ReplicaFetch does not parse: {error}") from None
