"""Requests of every kind, many of each: what a broker keeps of them shows in its memory.

A `Kind` makes the requests of one round; they go out together on one connection, and what the first and the last of
them are told is checked, so that a load that means nothing is noticed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from klog.errors import (
    CorruptBatch,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequiredAcks,
    InvalidSessionTimeout,
    OffsetMetadataTooLarge,
    OffsetOutOfRange,
    TransactionsNotServed,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnsupportedFormat,
)
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.records import encode_batch
from tests.server.asking import group_request, new_topic, offsets_request, produce_request, values
from tests.server.wire import RawConnection, fetch_request

ROUND = 100
"""Requests that are under way at once."""
MEMBER_ID_REQUIRED = 79
SESSION_MS = 10_000


class Kind(NamedTuple):
    """``make`` gets the topic and the request's number; ``code`` finds what a request was told in its answer."""

    make: Callable[[str, int], Any]
    code: Callable[[Any], Any]
    expected: int = 0


def join(
    group: str, member_id: str = "", session_ms: int = SESSION_MS, version: int = 3, metadata: bytes = b"m"
) -> Any:
    protocols = [{"name": "range", "metadata": metadata}] if metadata else []
    times = {"session_timeout": session_ms, "rebalance_timeout": SESSION_MS}
    fields = {**times, "protocol_type": "consumer", "protocols": protocols}
    return group_request(ApiKey.JOIN_GROUP, version, group, member_id, **fields)


def _commit(group: str, topic: str, *, member_id: str = "", generation: int = -1, metadata: str = "") -> Any:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1}
    topics = [{"name": topic, "partitions": [{**partition, "committed_metadata": metadata}]}]
    return group_request(ApiKey.OFFSET_COMMIT, 7, group, member_id, generation, topics=topics)


def _offsets_of(group: str, topic: str) -> Any:
    return codec.request(ApiKey.OFFSET_FETCH, 5, group_id=group, topics=[{"name": topic, "partition_indexes": [0]}])


def _sync(group: str, member_id: str, generation: int = 1, share: bytes = b"all") -> Any:
    assignments = [{"member_id": member_id, "assignment": share}]
    return group_request(ApiKey.SYNC_GROUP, 3, group, member_id, generation, assignments=assignments)


def heartbeat(group: str, member_id: str, generation: int = 1) -> Any:
    return group_request(ApiKey.HEARTBEAT, 3, group, member_id, generation)


def _leave(group: str, member_id: str) -> Any:
    return group_request(ApiKey.LEAVE_GROUP, 2, group, member_id)


def _batch(at: int = 0, form: str = "", value: int = 0) -> bytes:
    batch = bytearray(encode_batch(values(3, size=200)))
    if form:
        struct.pack_into(form, batch, at, value)
    return bytes(batch)


def _find_coordinator(key_type: int) -> Any:
    return codec.request(ApiKey.FIND_COORDINATOR, 3, key="who", key_type=key_type)


def _create(topic: str) -> Any:
    return codec.request(ApiKey.CREATE_TOPICS, 5, topics=[new_topic(topic)], timeout_ms=1000, validate_only=False)


def _whole(answer: Any) -> Any:
    return answer.error_code


def _produced(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0].error_code


def _fetched(answer: Any) -> Any:
    return answer.responses[0].partitions[0].error_code


def _in_topic(answer: Any) -> Any:
    return answer.topics[0].partitions[0].error_code


MAGIC_AT, CRC_AT = 16, 17
UNKNOWN = UnknownTopicOrPartition.wire
KINDS: dict[str, Kind] = {
    "join: session": Kind(lambda t, n: join(f"j-{t}", session_ms=1), _whole, InvalidSessionTimeout.wire),
    "join: unknown member": Kind(lambda t, n: join(f"j-{t}", f"nobody-{n}"), _whole, UnknownMemberId.wire),
    "join: no group": Kind(lambda t, n: join(""), _whole, InvalidGroupId.wire),
    "join: no protocol": Kind(lambda t, n: join(f"j-{t}", metadata=b""), _whole, InconsistentGroupProtocol.wire),
    "join: asked twice": Kind(lambda t, n: join(f"j-{t}", version=4), _whole, MEMBER_ID_REQUIRED),
    "sync: unknown member": Kind(lambda t, n: _sync(f"j-{t}", f"nobody-{n}"), _whole, UnknownMemberId.wire),
    "heartbeat: unknown member": Kind(lambda t, n: heartbeat(f"j-{t}", f"nobody-{n}"), _whole, UnknownMemberId.wire),
    "leave: unknown member": Kind(lambda t, n: _leave(f"j-{t}", f"nobody-{n}"), _whole, UnknownMemberId.wire),
    "commit": Kind(lambda t, n: _commit(f"c-{t}", t), _in_topic),
    "commit: unknown member": Kind(
        lambda t, n: _commit(f"c-{t}", t, member_id=f"nobody-{n}", generation=3), _in_topic, UnknownMemberId.wire
    ),
    "commit: unknown topic": Kind(lambda t, n: _commit(f"c-{t}", f"no-{n}"), _in_topic, UNKNOWN),
    "commit: metadata": Kind(
        lambda t, n: _commit(f"c-{t}", t, metadata="m" * 5000), _in_topic, OffsetMetadataTooLarge.wire
    ),
    "offsets of a group": Kind(lambda t, n: _offsets_of(f"c-{t}", t), _in_topic),
    "offsets of no group": Kind(lambda t, n: _offsets_of("", t), _whole, InvalidGroupId.wire),
    "fetch": Kind(lambda t, n: fetch_request(t, 0), _fetched),
    "fetch: waits": Kind(lambda t, n: fetch_request(t, 0, min_bytes=1 << 20, max_wait_ms=1), _fetched),
    "fetch: beyond the end": Kind(lambda t, n: fetch_request(t, 1 << 50), _fetched, OffsetOutOfRange.wire),
    "fetch: unknown topic": Kind(lambda t, n: fetch_request(f"no-{n}", 0), _fetched, UNKNOWN),
    "list offsets": Kind(lambda t, n: offsets_request(t, -1, 0), _in_topic),
    "list offsets: unknown topic": Kind(lambda t, n: offsets_request(f"no-{n}", -1, 0), _in_topic, UNKNOWN),
    "produce": Kind(lambda t, n: produce_request(t, _batch()), _produced),
    "produce: unknown topic": Kind(lambda t, n: produce_request(f"no-{n}", _batch()), _produced, UNKNOWN),
    "produce: unknown partition": Kind(lambda t, n: produce_request(t, _batch(), partition=n + 7), _produced, UNKNOWN),
    "produce: acks": Kind(lambda t, n: produce_request(t, _batch(), acks=2), _produced, InvalidRequiredAcks.wire),
    "produce: corrupt": Kind(lambda t, n: produce_request(t, _batch(CRC_AT, ">I", 7)), _produced, CorruptBatch.wire),
    "produce: not a batch": Kind(lambda t, n: produce_request(t, b"x" * 40), _produced, CorruptBatch.wire),
    "produce: old format": Kind(
        lambda t, n: produce_request(t, _batch(MAGIC_AT, ">b", 1)), _produced, UnsupportedFormat.wire
    ),
    "produce: a transaction": Kind(
        lambda t, n: produce_request(t, _batch(), transactional_id="mine"), _produced, TransactionsNotServed.wire
    ),
    "find coordinator": Kind(lambda t, n: _find_coordinator(0), _whole),
    "find coordinator: of a transaction": Kind(lambda t, n: _find_coordinator(1), _whole, TransactionsNotServed.wire),
    "create topics: there is one": Kind(lambda t, n: _create(t), lambda answer: answer.topics[0].error_code, 36),
}


def ask_many(connection: RawConnection, kind: Kind, topic: str, count: int, round_size: int = ROUND) -> None:
    """``count`` requests of a kind. AssertionError where they are not told what is expected."""
    for begin in range(0, count, round_size):
        requests = [kind.make(topic, number) for number in range(begin, min(begin + round_size, count))]
        answers = ask_together(connection, requests)
        for answer in (answers[0], answers[-1]):
            assert kind.code(decoded(answer, requests[0])).value == kind.expected, decoded(answer, requests[0])


def ask_together(connection: RawConnection, requests: Sequence[Any]) -> list[bytes]:
    """The frames of the answers, in order; all requests go out at once."""
    connection.send(b"".join(codec.encode_request(one, number, "load") for number, one in enumerate(requests)))
    return [connection.answer() for _ in requests]


def decoded(frame: bytes, request: Any) -> Any:
    """The answer's entity."""
    return codec.decode_response(frame, int(request.__api_key__), int(request.__version__))[1]


def live_and_leave(connection: RawConnection, topic: str, count: int, groups: int = ROUND) -> None:
    """So many times each of ``groups`` groups gets its one member, which syncs, beats, commits and leaves."""
    for _ in range(count):
        names = [f"l-{topic}-{number}" for number in range(groups)]
        joins = [join(name, metadata=b"m" * 1000) for name in names]
        joined = [decoded(answer, joins[0]) for answer in ask_together(connection, joins)]
        members = [(name, one.member_id, one.generation_id) for name, one in zip(names, joined, strict=True)]
        for requests, code in (
            ([_sync(*member, share=b"a" * 1000) for member in members], _whole),
            ([heartbeat(*member) for member in members], _whole),
            ([_commit(one[0], topic, member_id=one[1], generation=one[2]) for one in members], _in_topic),
            ([_leave(group, member_id) for group, member_id, _ in members], _whole),
        ):
            answers = [decoded(answer, requests[0]) for answer in ask_together(connection, requests)]
            assert {code(one).value for one in answers} == {0}, answers[0]
