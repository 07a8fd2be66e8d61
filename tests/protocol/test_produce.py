"""The hand-written Produce beside kio, byte for byte, in every version."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import MalformedRequest
from klog.protocol import codec, produce
from klog.protocol.apis import ApiKey
from klog.protocol.produce import PartitionAnswer

VERSIONS = range(3, 10)
names = st.text(alphabet="abc.-_é", min_size=1, max_size=20)
requests = st.fixed_dictionaries(
    {
        "transactional_id": st.none() | names,
        "acks": st.sampled_from([-1, 0, 1]),
        "timeout": st.integers(0, 60_000),
        "topic_data": st.lists(
            st.fixed_dictionaries(
                {
                    "name": names,
                    "partition_data": st.lists(
                        st.fixed_dictionaries({"index": st.integers(0, 9), "records": st.binary(max_size=300)}),
                        max_size=3,
                    ),
                }
            ),
            max_size=3,
        ),
    }
)


@given(values=requests, version=st.sampled_from(VERSIONS))
def test_a_request_is_read_as_kio_reads_it(values: dict[str, object], version: int) -> None:
    frame = memoryview(bytearray(codec.encode_request(codec.request(ApiKey.PRODUCE, version, **values), 1, "c")[4:]))
    head = codec.read_head(frame)
    read = produce.read_request(frame, head)
    reference = codec.decode_body(frame, head)
    assert read.transactional_id == reference.transactional_id
    assert read.acks == reference.acks
    assert timedelta(milliseconds=read.timeout_ms) == reference.timeout
    assert [(p.topic, p.partition, bytes(p.records)) for p in read.partitions] == [
        (topic.name, part.index, part.records) for topic in reference.topic_data for part in topic.partition_data
    ]


def test_records_lie_in_the_frame_and_can_be_stamped() -> None:
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"abcd"}]}],
    }
    frame = memoryview(bytearray(codec.encode_request(codec.request(ApiKey.PRODUCE, 9, **values), 1, "c")[4:]))
    read = produce.read_request(frame, codec.read_head(frame))
    read.partitions[0].records[0:2] = b"XY"
    assert b"XYcd" in bytes(frame)


@given(values=requests, version=st.sampled_from(VERSIONS), data=st.data())
def test_a_request_cut_anywhere_is_refused(values: dict[str, object], version: int, data: st.DataObject) -> None:
    whole = codec.encode_request(codec.request(ApiKey.PRODUCE, version, **values), 1, "c")[4:]
    head = codec.read_head(memoryview(whole))
    cut = data.draw(st.integers(head.body_at, len(whole) - 1))
    with pytest.raises(MalformedRequest):
        produce.read_request(memoryview(whole[:cut]), head)
    assert produce.read_request(memoryview(whole + b"\0\0"), head) == produce.read_request(memoryview(whole), head)


@given(st.binary(max_size=100), st.sampled_from(VERSIONS))
def test_random_bytes_raise_nothing_but_our_error(body: bytes, version: int) -> None:
    head = codec.RequestHead(0, version, 1, None, 0)
    try:
        produce.read_request(memoryview(bytearray(body)), head)
    except MalformedRequest:
        pass


answers = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),
        st.sampled_from([0, 2, 3, 10]),
        st.integers(-1, 2**60),
        st.integers(-1, 2**60),
        st.none() | st.text(max_size=200),
    ),
    max_size=5,
)


@given(answers=answers, version=st.sampled_from(VERSIONS))
def test_an_answer_is_written_as_kio_writes_it(
    answers: list[tuple[str, int, int, int, int, str | None]], version: int
) -> None:
    topics: dict[str, list[dict[str, object]]] = {}
    for topic, index, error, base, start, message in answers:
        topics.setdefault(topic, []).append(
            {
                "index": index,
                "error_code": error,
                "base_offset": base,
                "log_append_time": None,
                "log_start_offset": start,
                "record_errors": [],
                "error_message": message,
            }
        )
    reference = codec.response(
        ApiKey.PRODUCE,
        version,
        responses=[{"name": name, "partition_responses": parts} for name, parts in topics.items()],
    )
    head = codec.RequestHead(ApiKey.PRODUCE, version, 12, None, 0)
    written = produce.write_response(head, [PartitionAnswer(*answer) for answer in answers])
    assert written == codec.encode_response(head, reference)
