"""Lengths of arrays: believed only as far as the bytes that are there."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from klog.errors import MalformedRequest
from klog.protocol import codec, produce
from klog.protocol.apis import OWN_KEYS_FROM, ApiKey
from klog.protocol.bounds import ELEMENTS_MAX, RECORD_SETS_MAX, check_lengths
from klog.protocol.codec import RequestHead
from klog.protocol.entity_fields import Field, fields_of
from klog.protocol.versions import WRITTEN_BY_HAND, request_schema, response_schema
from tests.rows import each

BODIES = [(key, find) for key in ApiKey for find in (request_schema, response_schema)]


@cache
def at_borders(key: ApiKey, find: Callable[[int, int], Any]) -> list[Any]:
    """The lowest and the highest version, and those at the border of the flexible ones: kio makes a reader and a writer
    of each, which takes seconds for all. `test_encoding` has every version."""
    versions = []
    for version in range(16):
        try:
            versions.append(find(key, version))
        except Exception:
            assert version > 0 or key < OWN_KEYS_FROM or key in WRITTEN_BY_HAND
    borders = {0, len(versions) - 1}
    for at, (one, other) in enumerate(pairwise(versions)):
        borders |= {at, at + 1} if one.__flexible__ != other.__flexible__ else set()
    return [one for at, one in enumerate(versions) if at in borders]


VALUES = {
    "string": "some text",
    "bytes": b"bytes",
    "records": b"r" * 200,
    "bool": True,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(seconds=1),
    "timedelta_i64": timedelta(seconds=1),
    "datetime_i64": datetime(2020, 1, 1, tzinfo=UTC),
    "uuid": UUID(int=7),
    "float64": 1.0,
}


def sample(schema: Any, elements: int, full: bool) -> Any:
    """An entity with so many elements in each array; where not ``full``, with null wherever that is allowed."""
    given = [field for field in fields_of(schema) if full or field.tag is None]
    return schema(**{field.name: value_of(field, elements, full) for field in given})


def value_of(field: Field, elements: int, full: bool) -> Any:
    if field.is_nullable and not full:
        return None
    if field.is_array:
        return tuple(value_of(field._replace(is_array=False), elements, full) for _ in range(elements))
    return sample(field.element, elements, full) if field.is_structure else VALUES.get(field.kind or "", 3)


def encoded(entity: Any) -> bytes:
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


@each("key, find", BODIES)
def test_the_walk_ends_where_the_entity_ends(key: ApiKey, find: Callable[[int, int], Any]) -> None:
    for schema in at_borders(key, find):
        for elements, full in [(0, False), (1, True), (3, True)]:
            data = encoded(sample(schema, elements, full))
            frame = memoryview(b"before" + data)
            assert check_lengths(frame, 6, schema) == (frame, len(frame)), schema


@each("key, find", BODIES)
def test_no_cut_and_no_claim_gets_past(key: ApiKey, find: Callable[[int, int], Any]) -> None:
    """Every byte in turn made large: whatever the walk lets pass, no array in it is longer than its bytes."""
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    for schema in at_borders(key, find):
        data = encoded(sample(schema, 1, True))
        for at in range(min(len(data), 60)):
            for large in (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff"):
                changed = memoryview(data[:at] + large + data[at + len(large) :])
                try:
                    check_lengths(changed, 0, schema)
                    entity_reader(schema)(changed, 0)
                except (MalformedRequest, SerialError, ValueError, OverflowError, KeyError):
                    pass


@each("count", [2**31 - 1, 100, 3])
def test_an_array_that_is_not_there(count: int) -> None:
    with pytest.raises(MalformedRequest, match=f"claims {count} elements"):
        check_lengths(memoryview(struct.pack(">i", count) + b"\0\0"), 0, request_schema(ApiKey.METADATA, 1))


def test_a_message_of_too_many_elements() -> None:
    count = ELEMENTS_MAX + 1
    with pytest.raises(MalformedRequest, match=str(ELEMENTS_MAX)):
        check_lengths(memoryview(struct.pack(">i", count) + bytes(2 * count)), 0, request_schema(ApiKey.METADATA, 1))


def test_the_metadata_of_thirty_thousand_partitions_can_be_read() -> None:
    count, one = 30_000, struct.pack(">hiii3ii3i", 0, 1, 2, 3, 1, 2, 3, 3, 1, 2, 3)
    head = struct.pack(">ii", 7, 0) + struct.pack(">ii", 1, 1) + struct.pack(">hh1sbi", 0, 1, b"t", 0, count)
    _, metadata = codec.decode_response(head + one * count, ApiKey.METADATA, 1)
    assert len(metadata.topics[0].partitions) == count


def test_a_produce_request_of_too_many_record_sets() -> None:
    count = RECORD_SETS_MAX + 1
    sets = struct.pack(">ii", 0, 0) * count
    head = struct.pack(">hhii", -1, 1, 1000, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">i", count)
    frame = memoryview(head + sets)
    with pytest.raises(MalformedRequest, match=str(RECORD_SETS_MAX)):
        produce.read_request(frame, RequestHead(ApiKey.PRODUCE, 7, 0, None, 0))


def test_an_array_that_must_not_be_null() -> None:
    with pytest.raises(MalformedRequest, match="null"):
        check_lengths(memoryview(b"\0\0\0\x27\x10\0"), 0, request_schema(ApiKey.DELETE_RECORDS, 2))
    assert check_lengths(memoryview(bytes(5)), 0, request_schema(ApiKey.METADATA, 9))[1] == 5


METADATA_FLAGS = {
    "allow_auto_topic_creation": True,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def test_tags_that_nobody_knows_are_left_out() -> None:
    """A reader has to ignore them (KIP-482). librdkafka's three bytes too many, when it asks for the metadata of all
    topics, look like one to everybody."""
    body = bytes.fromhex("00 00 00 00 01 00 00 00")
    frame = codec.encode_request(codec.request(ApiKey.METADATA, 9, topics=None, **METADATA_FLAGS), 7, "rdkafka")
    head = codec.read_head(memoryview(frame)[4:])
    sent = memoryview(frame[4 : 4 + head.body_at] + body)
    entity = codec.decode_body(sent, head)
    assert (entity.topics, entity.allow_auto_topic_creation) == (None, False)


@given(st.dictionaries(st.integers(50, 1000), st.binary(max_size=200), min_size=1, max_size=5))
def test_what_stands_beside_unknown_tags_is_read(tags: dict[int, bytes]) -> None:
    entity = codec.request(ApiKey.METADATA, 9, topics=[{"name": "a"}, {"name": "b"}], **METADATA_FLAGS)
    frame = codec.encode_request(entity, 7, "test")
    head = codec.read_head(memoryview(frame)[4:])
    plain = bytes(frame[4:])
    given_fields = [codec.uvarint(tag) + codec.uvarint(len(data)) + data for tag, data in tags.items()]
    section = codec.uvarint(len(tags)) + b"".join(given_fields)
    in_topic = plain.replace(b"\x02a\x00", b"\x02a" + section)
    for sent in (plain[:-1] + section, in_topic, in_topic[:-1] + section):
        assert codec.decode_body(memoryview(sent), head) == entity
