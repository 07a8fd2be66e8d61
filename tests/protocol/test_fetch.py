"""The hand-written Fetch beside kio, byte for byte, in every version."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import MalformedRequest
from klog.protocol import codec, fetch
from klog.protocol.apis import ApiKey
from klog.protocol.fetch import FetchedPartition

partitions = st.lists(
    st.tuples(
        st.sampled_from(["a", "topic-b", "c"]),
        st.integers(0, 5),
        st.sampled_from([0, 1, 3, 6]),
        st.integers(-1, 2**60),
        st.integers(-1, 2**60),
        st.lists(st.binary(min_size=1, max_size=200), max_size=3),
    ),
    max_size=6,
)


@given(partitions=partitions, version=st.integers(4, 12))
def test_the_parts_joined_are_what_kio_writes(
    partitions: list[tuple[str, int, int, int, int, list[bytes]]], version: int
) -> None:
    fetched = [
        FetchedPartition(topic, index, error, high, start, ranges, sum(map(len, ranges)))
        for topic, index, error, high, start, ranges in partitions
    ]
    topics: dict[str, list[dict[str, object]]] = {}
    for topic, index, error, high, start, ranges in partitions:
        topics.setdefault(topic, []).append(
            {
                "partition_index": index,
                "error_code": error,
                "high_watermark": high,
                "last_stable_offset": high,
                "log_start_offset": start,
                "aborted_transactions": None,
                "preferred_read_replica": -1,
                "records": b"".join(ranges),
            }
        )
    reference = codec.response(
        ApiKey.FETCH,
        version,
        error_code=0,
        session_id=0,
        responses=[{"topic": name, "partitions": parts} for name, parts in topics.items()],
    )
    head = codec.RequestHead(ApiKey.FETCH, version, 12, None, 0)
    # A range of a file stands for its bytes here: what matters is what lies around it.
    assert b"".join(fetch.write_response(head, fetched)) == codec.encode_response(head, reference)


numbers = st.integers(-(2**31), 2**31 - 1)
requests = st.fixed_dictionaries(
    {
        "replica_id": st.just(-1),
        "max_wait": st.integers(0, 60_000),
        "min_bytes": numbers,
        "max_bytes": numbers,
        "isolation_level": st.just(0),
        "session_id": numbers,
        "session_epoch": numbers,
        "topics": st.lists(
            st.fixed_dictionaries(
                {
                    "topic": st.text(alphabet="ab.é", min_size=1, max_size=20),
                    "partitions": st.lists(
                        st.fixed_dictionaries(
                            {
                                "partition": numbers,
                                "current_leader_epoch": numbers,
                                "fetch_offset": st.integers(-(2**63), 2**63 - 1),
                                "last_fetched_epoch": numbers,
                                "log_start_offset": st.integers(-(2**63), 2**63 - 1),
                                "partition_max_bytes": numbers,
                            }
                        ),
                        max_size=3,
                    ),
                }
            ),
            max_size=3,
        ),
        "forgotten_topics_data": st.just([]),
        "rack_id": st.just("r"),
    }
)


@given(values=requests, version=st.integers(4, 12))
def test_a_request_is_read_as_kio_reads_it(values: dict[str, object], version: int) -> None:
    frame = memoryview(bytearray(codec.encode_request(codec.request(ApiKey.FETCH, version, **values), 1, "c")[4:]))
    head = codec.read_head(frame)
    read, reference = fetch.read_request(frame, head), codec.decode_body(frame, head)
    assert (read.min_bytes, read.max_bytes) == (reference.min_bytes, reference.max_bytes)
    assert timedelta(milliseconds=read.max_wait_ms) == reference.max_wait
    last_named = {
        (topic.topic, one.partition): (
            topic.topic,
            one.partition,
            getattr(one, "current_leader_epoch", -1),
            one.fetch_offset,
            one.partition_max_bytes,
        )
        for topic in reference.topics
        for one in topic.partitions
    }
    assert list(read.partitions) == list(last_named.values())


@given(values=requests, version=st.integers(4, 12), data=st.data())
def test_a_request_cut_in_its_topics_is_refused(values: dict[str, object], version: int, data: st.DataObject) -> None:
    whole = codec.encode_request(codec.request(ApiKey.FETCH, version, **values), 1, "c")[4:]
    head = codec.read_head(memoryview(whole))
    behind = (4 + 2 + 1 if version >= 11 else 4 if version >= 7 else 0) if version < 12 else 1 + 2 + 1
    cut = data.draw(st.integers(head.body_at, len(whole) - behind - 1))
    with pytest.raises(MalformedRequest):
        fetch.read_request(memoryview(whole[:cut]), head)


@given(st.binary(max_size=100), st.integers(4, 12))
def test_random_bytes_raise_nothing_but_our_error(body: bytes, version: int) -> None:
    try:
        fetch.read_request(memoryview(body), codec.RequestHead(1, version, 1, None, 0))
    except MalformedRequest:
        pass
