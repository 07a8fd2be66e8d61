"""Spark's own Kafka connector reads klog: the oldest program that has to cope with offsets that are not consecutive.

The connector's jars come from Maven once (10 MB) and are added to the session that all tests of this folder share.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.spark.conftest import Message, NewTopic, TopicOnBroker, make_messages

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first run fetches the jars


def reading(reader: Any, topic: TopicOnBroker, **options: Any) -> Any:
    """``spark.read`` or ``spark.readStream``, of the topic, with options; what is no string is given as JSON."""
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", topic.bootstrap)
        .option("subscribe", topic.name)
        .options(**given)
        .load()
    )


def test_it_reads_what_klogs_own_source_reads(connected: Any, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    first = topic.produce(make_messages(400), 0, codec="zstd", batch=37)
    second = topic.produce(
        [Message(b"h", b"v", (("a", b"1"), ("a", None))), Message(None, None), Message(b"", b"x" * 100_000)], 1
    )
    assert first[-1] > len(first) + 100  # addresses, not numbers
    theirs = reading(connected.read, topic, includeHeaders="true")
    options = {"bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "includeHeaders": "true"}
    ours = connected.read.format("klog").options(**options).load()
    assert theirs.columns == ours.columns
    found = contents(theirs)
    assert [one[:2] for one in found] == [(0, at) for at in first] + [(1, at) for at in second]
    assert found == contents(ours)


def contents(frame: Any) -> list[tuple[Any, ...]]:
    """Its rows as values that can be compared, in order."""
    return sorted(
        (
            *(row.partition, row.offset, row.topic, row.key and bytes(row.key), row.value and bytes(row.value)),
            *(row.timestamp, row.timestampType, row.headers and [(one.key, one.value) for one in row.headers]),
        )
        for row in frame.collect()
    )
