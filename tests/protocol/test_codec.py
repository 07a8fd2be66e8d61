"""Frames, heads and bodies: what is written is read back, and bytes that mean nothing raise one error only."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import MalformedRequest, UnsupportedVersion
from klog.protocol import codec, encoding
from klog.protocol.apis import ApiKey
from klog.protocol.versions import is_flexible
from tests.rows import each


def frame_of(entity: object, client_id: str = "somebody") -> bytes:
    return codec.encode_request(entity, 77, client_id)[4:]


def metadata_request(version: int, topics: list[dict[str, str]] | None) -> Any:
    flags = (
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
    )
    return codec.request(ApiKey.METADATA, version, topics=topics, **dict.fromkeys(flags, True))


@each("version", range(10))
def test_a_request_is_read_back_in_every_version(version: int) -> None:
    asked = metadata_request(version, [{"name": "orders"}])
    frame = frame_of(asked)
    head = codec.read_head(memoryview(frame))
    assert (head.key, head.version, head.correlation_id, head.client_id) == (3, version, 77, "somebody")
    assert codec.decode_body(memoryview(frame), head) == asked


@each("version", range(10))
def test_a_response_is_read_back_and_what_a_version_lacks_is_dropped(version: int) -> None:
    values = {
        "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": None}],
        "cluster_id": "c",
        "controller_id": 1,
    }
    of_partition = {"error_code": 5, "partition_index": 0, "leader_id": -1, "leader_epoch": 3, "offline_replicas": []}
    partitions = [{**of_partition, "replica_nodes": [1], "isr_nodes": (1,)}]
    topics = [{"error_code": 0, "name": "t", "is_internal": False, "partitions": partitions}]
    answer = codec.response(ApiKey.METADATA, version, topics=topics, **values)
    head = codec.RequestHead(ApiKey.METADATA, version, 9, None, 0)
    frame = codec.encode_response(head, answer)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, read = codec.decode_response(frame[4:], ApiKey.METADATA, version)
    assert (correlation_id, read) == (9, answer)
    assert hasattr(read, "cluster_id") == (version >= 2)


def test_a_value_that_a_version_wants_and_nobody_gave_is_our_error() -> None:
    with pytest.raises(KeyError, match="brokers"):
        codec.response(ApiKey.METADATA, 9, topics=[])


def test_api_versions_answers_have_no_tags_in_their_head() -> None:
    answer = codec.response(ApiKey.API_VERSIONS, 3, error_code=0, api_keys=[])
    frame = codec.encode_response(codec.RequestHead(ApiKey.API_VERSIONS, 3, 5, None, 0), answer)
    assert frame[4:8] == b"\0\0\0\5"
    assert frame[8:10] == b"\0\0"  # the error code follows at once
    assert codec.decode_response(frame[4:], ApiKey.API_VERSIONS, 3) == (5, answer)


def test_own_requests_go_through_the_same_codec() -> None:
    asked = codec.request(
        ApiKey.COUNT_MESSAGES,
        0,
        topics=[{"name": "t", "ranges": [{"partition_index": 1, "from_offset": -2, "to_offset": -1}]}],
    )
    frame = memoryview(frame_of(asked))
    assert codec.decode_body(frame, codec.read_head(frame)) == asked
    assert is_flexible(ApiKey.COUNT_MESSAGES, 0)


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_our_errors(data: bytes) -> None:
    frame = memoryview(bytearray(data))
    try:
        head = codec.read_head(frame)
        codec.decode_body(frame, head)
    except (MalformedRequest, UnsupportedVersion):
        pass


@given(cut=st.integers(0, 60), version=st.integers(0, 9), extra=st.binary(max_size=3))
def test_a_frame_cut_anywhere_is_refused_and_one_that_goes_on_is_read(cut: int, version: int, extra: bytes) -> None:
    whole = frame_of(metadata_request(version, [{"name": "orders"}]))
    frame = memoryview(whole[: max(0, len(whole) - cut)] + extra)
    try:
        decoded = codec.decode_body(frame, codec.read_head(frame))
    except (MalformedRequest, UnsupportedVersion):
        assert cut
        return
    assert extra or not cut, decoded  # what is behind a whole request is ignored


def test_librdkafkas_request_for_all_topics_is_understood() -> None:
    """Version 9 with three bytes too many, as librdkafka 2.16 sends it."""
    frame = memoryview(frame_of(metadata_request(9, None)) + b"\0\0\0")
    assert codec.decode_body(frame, codec.read_head(frame)).topics is None


def test_an_errors_message_is_shortened() -> None:
    """It quotes what a peer has sent, and in versions that are not flexible it would not fit."""
    for message, expected in ((None, None), ("no", "no"), ("\u00fc" * 40_000, "\u00fc" * codec.ERROR_CHARS_MAX)):
        values = {"error_code": 40, "error_message": message, "resource_type": 2, "resource_name": "t"}
        sent = codec.response(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, responses=[values])
        frame = codec.encode_response(codec.RequestHead(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, None, 0), sent)
        read = codec.decode_response(frame[4:], ApiKey.INCREMENTAL_ALTER_CONFIGS, 0)[1].responses[0].error_message
        assert read == expected or (expected and read.startswith(f"{expected}... (40000 "))


@each(("version", "room"), [(8, 0), (9, 3 + 2 * codec.PADDING_BYTES), (12, 0)])
def test_metadata_of_small_topics_has_room_for_librdkafka(version: int, room: int) -> None:
    """Where the version has few bytes for them; what is read back is the same."""

    def topic(name: str, partitions: int) -> dict[str, object]:
        numbers = {"error_code": 0, "leader_id": 1, "leader_epoch": 0, "replica_nodes": (1,), "isr_nodes": (1,)}
        rows = [{**numbers, "partition_index": number, "offline_replicas": ()} for number in range(partitions)]
        return {"error_code": 0, "name": name, "topic_id": None, "is_internal": False, "partitions": rows}

    topics = [topic("a", 1), topic("b", 3), topic("c", 4), topic("a-name-of-enough-bytes", 1)]
    answer = codec.response(ApiKey.METADATA, version, brokers=[], cluster_id="c", controller_id=1, topics=topics)
    frame = codec.encode_response(codec.RequestHead(ApiKey.METADATA, version, 9, None, 0), answer)
    bare = BytesIO()
    encoding.write(bare, answer)
    head_bytes = 9 if version >= 9 else 8
    assert len(frame) == head_bytes + len(bare.getvalue()) + room
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert codec.decode_response(frame[4:], ApiKey.METADATA, version) == (9, answer)
