"""ReplicaFetch on the wire: both directions, cut off at every byte, and bytes that mean nothing."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import MalformedRequest
from klog.protocol import codec, replica_fetch
from klog.protocol.apis import ApiKey
from klog.protocol.codec import RequestHead
from klog.protocol.replica_fetch import (
    Diverged,
    Elsewhere,
    Entries,
    Failed,
    Fetch,
    FetchEntry,
    Flushed,
    Forget,
    Name,
    Open,
    Range,
    Records,
    Update,
    Want,
)
from klog.protocol.versions import is_flexible
from tests.rows import each

HEAD = RequestHead(ApiKey.REPLICA_FETCH, 0, 9, None, 0)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topic = st.text("abc.-_", min_size=1, max_size=249)
entries = st.lists(
    st.one_of(
        st.builds(Name, int32, st.uuids(), int32, int32, topic),
        st.builds(Want, int32, int32, int64, int64, int64, int32),
        st.builds(Flushed, int32, int64, int64),
        st.builds(Forget, int32),
    ),
    max_size=20,
)


def written(listed: list[FetchEntry]) -> Entries:
    made = Entries()
    for one in listed:
        if isinstance(one, Name):
            made.name(*one)
        elif isinstance(one, Want):
            made.want(*one)
        elif isinstance(one, Flushed):
            made.flushed(*one)
        else:
            made.forget(*one)
    return made


def unframed(frame: bytes) -> memoryview:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return memoryview(frame)[4:]


def test_its_head_has_no_tags() -> None:
    assert not is_flexible(ApiKey.REPLICA_FETCH, 0)


@given(listed=entries, wait=int32, least=int32, most=int32, number=int32)
def test_a_fetch_is_read_as_it_was_written(
    listed: list[FetchEntry], wait: int, least: int, most: int, number: int
) -> None:
    frame = unframed(replica_fetch.fetch_request(number, wait, least, most, written(listed)))
    head = codec.read_head(frame)
    assert (head.key, head.version, head.correlation_id, head.client_id) == (ApiKey.REPLICA_FETCH, 0, number, None)
    request = replica_fetch.read_request(frame, head)
    assert isinstance(request, Fetch)
    assert request[:3] == (wait, least, most)
    assert list(replica_fetch.read_entries(frame, request.entries_at)) == listed


@given(listed=entries)
def test_an_update_is_read_as_it_was_written(listed: list[FetchEntry]) -> None:
    frame = unframed(replica_fetch.update(written(listed)))
    request = replica_fetch.read_request(frame, codec.read_head(frame))
    assert isinstance(request, Update)
    assert list(replica_fetch.read_entries(frame, request.entries_at)) == listed


@given(cluster=st.text(max_size=60), broker=int32, incarnation=int64, leader=int32)
def test_open_is_read_as_it_was_written(cluster: str, broker: int, incarnation: int, leader: int) -> None:
    frame = unframed(replica_fetch.open_request(cluster, broker, incarnation, leader))
    assert replica_fetch.read_request(frame, codec.read_head(frame)) == Open(cluster, broker, incarnation, leader)


@given(code=st.integers(-(2**15), 2**15 - 1), message=st.text(max_size=3000), incarnation=int64)
def test_the_answer_to_open_is_read_as_it_was_written(code: int, message: str, incarnation: int) -> None:
    frame = unframed(replica_fetch.opened(HEAD, code, message, incarnation))
    assert replica_fetch.read_correlation_id(frame) == 9
    assert replica_fetch.read_opened(frame) == (code, message[: replica_fetch.TEXT_CHARS_MAX], incarnation)


@given(asked=st.builds(Range, st.uuids(), int32, int32, int64, int32, topic), number=int32)
def test_a_range_is_read_as_it_was_written(asked: Range, number: int) -> None:
    frame = unframed(replica_fetch.range_request(number, asked))
    head = codec.read_head(frame)
    assert head.correlation_id == number
    assert replica_fetch.read_request(frame, head) == asked


answers = st.lists(
    st.one_of(
        st.builds(Records, int32, int64, int64, int64, int64, st.binary(max_size=300).map(memoryview)),
        st.builds(Diverged, int32, int32, int64, int64),
        st.builds(Elsewhere, int32, int64, int64),
        st.builds(Failed, int32, st.integers(-1, 120), st.text(max_size=40)),
    ),
    max_size=10,
)


def answer_of(listed: list[replica_fetch.Answer]) -> bytes:
    body = b""
    for one in listed:
        if isinstance(one, Records):
            body += replica_fetch.records_head(*one[:5], len(one.data)) + bytes(one.data)
        elif isinstance(one, Diverged):
            body += replica_fetch.diverged(*one)
        elif isinstance(one, Elsewhere):
            body += replica_fetch.elsewhere(*one)
        else:
            body += replica_fetch.failed(*one)
    return replica_fetch.answer_head(len(body), 77) + body


@given(listed=answers)
def test_an_answer_is_read_as_it_was_written(listed: list[replica_fetch.Answer]) -> None:
    frame = unframed(answer_of(listed))
    assert replica_fetch.read_correlation_id(frame) == 77
    assert list(replica_fetch.read_answer(frame)) == listed


def test_cut_off_anywhere_it_is_refused_or_shorter_by_whole_entries() -> None:
    listed: list[FetchEntry] = [
        Name(1, UUID(int=5), 2, 3, "topic"),
        Want(1, 3, 100, 90, 80, 1 << 20),
        Flushed(1, 100, 95),
        Forget(1),
    ]
    frame = bytes(unframed(replica_fetch.fetch_request(1, 500, 1, 10, written(listed))))
    whole = 0
    for size in range(10, len(frame)):
        part = memoryview(frame[:size])
        try:
            request = replica_fetch.read_request(part, codec.read_head(part))
            assert isinstance(request, Fetch)
            found = list(replica_fetch.read_entries(part, request.entries_at))
        except MalformedRequest:
            continue
        assert found == listed[: len(found)]
        whole += 1
    assert whole == len(listed)


def test_an_answer_that_is_cut_off_never_gives_half_of_the_records() -> None:
    listed: list[replica_fetch.Answer] = [
        Records(1, 10, 9, 0, 0, memoryview(b"x" * 50)),
        Failed(2, 6, "no"),
        Diverged(3, 1, 10, 9),
        Elsewhere(4, 10, 9),
    ]
    frame = bytes(unframed(answer_of(listed)))
    for size in range(4, len(frame)):
        found = []
        try:
            for one in replica_fetch.read_answer(memoryview(frame[:size])):
                found.append(one)
        except MalformedRequest:
            pass
        assert found == listed[: len(found)]


@given(noise=st.binary(max_size=200))
def test_noise_is_refused_and_nothing_else_is_raised(noise: bytes) -> None:
    frame = memoryview(noise)
    for read in (
        lambda: replica_fetch.read_request(frame, RequestHead(ApiKey.REPLICA_FETCH, 0, 1, None, 0)),
        lambda: list(replica_fetch.read_entries(frame, 0)),
        lambda: list(replica_fetch.read_answer(frame)),
        lambda: replica_fetch.read_opened(frame),
        lambda: replica_fetch.read_correlation_id(frame),
    ):
        try:
            read()
        except MalformedRequest:
            pass


@each("size", [-1, 2**31 - 1])
def test_a_length_that_lies_is_refused(size: int) -> None:
    frame = b"\0\0\0\1" + replica_fetch.records_head(1, 0, 0, 0, 0, size) + b"x" * 10
    with pytest.raises(MalformedRequest, match="claims"):
        list(replica_fetch.read_answer(memoryview(frame)))
