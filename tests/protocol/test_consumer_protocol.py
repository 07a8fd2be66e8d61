"""What members tell one another through their coordinator, as clients of every version write it."""

from __future__ import annotations

import io
import struct
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from klog.errors import MalformedRequest
from klog.names import TopicPartition
from klog.protocol.consumer_protocol import assigned_partitions, subscribed_topics
from tests.rows import each

VERSIONS = (0, 1, 2, 3)


def written(kind: str, version: int, **fields: Any) -> bytes:
    """By kio, from Kafka's own schema; the version stands before it."""
    module = import_module(f"kio.schema.consumer_protocol_{kind}.v{version}.data")
    nested = {"assigned_partitions": "TopicPartition", "owned_partitions": "TopicPartition"}
    arguments = {
        name: tuple(getattr(module, nested[name])(**one) for one in value) if name in nested else value
        for name, value in fields.items()
    }
    entity = getattr(module, f"ConsumerProtocol{kind.title()}")(**arguments)
    out = io.BytesIO(struct.pack(">h", version))
    out.seek(2)
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


@each("version", VERSIONS)
def test_an_assignment_of_every_version(version: int) -> None:
    given_out = ({"topic": "b", "partitions": (2, 0)}, {"topic": "a", "partitions": (7,)}, {"topic": "c"})
    data = written("assignment", version, assigned_partitions=given_out, user_data=b"\x00\x01")
    assert assigned_partitions(data) == [TopicPartition("a", 7), TopicPartition("b", 0), TopicPartition("b", 2)]


@each("version", VERSIONS)
def test_a_subscription_of_every_version(version: int) -> None:
    owned = {"owned_partitions": ()} if version else {}
    data = written("subscription", version, topics=("b", "ä"), user_data=None, **owned)
    assert subscribed_topics(data) == ["b", "ä"]


def test_who_was_given_nothing_reads_nothing() -> None:
    assert assigned_partitions(b"") == []
    assert subscribed_topics(b"") == []


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_an_assignment_or_our_error(data: bytes, whole: bool) -> None:
    base = written("assignment", 1, assigned_partitions=({"topic": "t", "partitions": (1, 2)},)) if whole else b""
    for read in (assigned_partitions, subscribed_topics):
        try:
            read(base[: len(data)] + data)
        except MalformedRequest:
            pass


@each("data", [b"\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\1t\x7f\xff\xff\xff", b"\0\0\0\0\0\1\xff\xff"])
def test_counts_that_nothing_can_hold(data: bytes) -> None:
    with pytest.raises(MalformedRequest):
        assigned_partitions(data)
