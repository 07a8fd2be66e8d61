"""The client's side of a connection, without a socket: each strange thing that a peer may send has its error."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from klog.errors import CannotConnect, MalformedRequest, TimedOut, UnsupportedVersion
from klog.net.conversation import (
    FIRST_FRAMES_BYTES_MAX,
    FRAME_BYTES_MAX,
    VERSIONS_ASKED,
    Conversation,
    NoAnswer,
    versions_request,
)
from klog.protocol import codec, replica_fetch
from klog.protocol.apis import ApiKey
from klog.security.client_security import OPEN
from tests.rows import each

LISTED = [{"api_key": ApiKey.METADATA, "min_version": 2, "max_version": 9}]


def answer(number: int, key: ApiKey, version: int, **values: Any) -> bytes:
    head = codec.RequestHead(key, version, number, None, 0)
    return codec.encode_response(head, codec.response(key, version, **values))[4:]


def test_answers_find_their_requests_in_any_order_and_each_once() -> None:
    one = Conversation("h:1", "test")
    sent = [one.encode(codec.request(ApiKey.LIST_GROUPS, 2))[0] for _ in range(3)]
    for asked in (sent[2], sent[0]):
        frame = answer(asked.number, ApiKey.LIST_GROUPS, 2, error_code=0, groups=[])
        found = one.decode(frame)
        assert found is not None and found[0] == asked and found[1].groups == ()
        with pytest.raises(MalformedRequest):
            one.decode(frame)
    one.forget(sent[1])  # it came too late
    assert one.decode(answer(sent[1].number, ApiKey.LIST_GROUPS, 2, error_code=0, groups=[])) is None


def test_an_answer_that_does_not_parse_is_the_error_of_its_request_alone() -> None:
    one = Conversation("h:1", "test")
    sent, _ = one.encode(codec.request(ApiKey.LIST_GROUPS, 2))
    found = one.decode(struct.pack(">i", sent.number) + b"\0")
    assert found is not None and found[0] == sent and isinstance(found[1], MalformedRequest)
    written_by_hand = replica_fetch.open_request("c", 1, 2, 3)
    sent, frame = one.encode(written_by_hand)
    assert (sent.key, frame) == (ApiKey.REPLICA_FETCH, written_by_hand)
    assert one.decode(struct.pack(">i", sent.number) + b"any") == (sent, memoryview(bytes(4) + b"any"))


@each("size", [-1, 0, 3, FRAME_BYTES_MAX + 1, 0x48545450])
def test_a_size_that_no_frame_has(size: int) -> None:
    with pytest.raises(MalformedRequest):
        Conversation("h:1", "test").frame_bytes(struct.pack(">i", size))


def test_answers_are_short_until_the_connection_is_open() -> None:
    one = Conversation("h:1", "test")
    assert one.frame_bytes(struct.pack(">i", FIRST_FRAMES_BYTES_MAX)) == FIRST_FRAMES_BYTES_MAX
    with pytest.raises(MalformedRequest):
        one.frame_bytes(struct.pack(">i", FIRST_FRAMES_BYTES_MAX + 1))
    one.frame_bytes_max = FRAME_BYTES_MAX
    assert one.frame_bytes(struct.pack(">i", FRAME_BYTES_MAX)) == FRAME_BYTES_MAX
    with pytest.raises(MalformedRequest):
        one.frame_bytes(struct.pack(">i", FRAME_BYTES_MAX + 1))


def test_versions_are_asked_again_in_an_older_form_and_chosen() -> None:
    one = Conversation("h:1", "test")
    for version, code in zip(VERSIONS_ASKED, (35, 0), strict=True):
        sent, _ = one.encode(versions_request(version))
        # A refusal has version 0's form, whatever was asked.
        found = one.decode(answer(sent.number, ApiKey.API_VERSIONS, 0, error_code=code, api_keys=LISTED))
        assert found is not None
        assert one.learn_versions(version, found[1]) == (code == 0)
    assert one.version_for(ApiKey.METADATA, 12) == 9 and one.version_for(ApiKey.METADATA, 4) == 4
    for key, highest, lowest in ((ApiKey.METADATA, 1, 0), (ApiKey.METADATA, 12, 10), (ApiKey.FETCH, 12, 4)):
        with pytest.raises(UnsupportedVersion):
            one.version_for(key, highest, lowest)
    with pytest.raises(UnsupportedVersion):
        one.learn_versions(VERSIONS_ASKED[-1], codec.response(ApiKey.API_VERSIONS, 0, error_code=35, api_keys=[]))


def test_what_is_no_broker() -> None:
    one = Conversation("h:1", "test")
    assert isinstance(one.not_a_broker(TimedOut("late"), OPEN), NoAnswer)
    assert type(one.not_a_broker(MalformedRequest("HTTP"), OPEN)) is CannotConnect
