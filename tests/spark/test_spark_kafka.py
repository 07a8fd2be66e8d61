"""Spark's own Kafka connector reads klog: the oldest program that has to cope with offsets that are not consecutive.

The connector's jars come from Maven once (10 MB) and are added to the session that all tests of this folder share.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tests.spark.conftest import Message, TopicOnBroker, make_messages

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first run fetches the jars

NewTopic = Callable[..., TopicOnBroker]


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


def offsets(frame: Any) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


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


@pytest.mark.long("test_source.py cuts ranges into tasks")
def test_ranges_cut_into_tasks_anywhere_lose_and_double_nothing(connected: Any, new_topic: NewTopic) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(500), batch=23)
    wanted = {topic.name: {"0": produced[61]}}
    until = {topic.name: {"0": produced[-30]}}
    for pieces in ("1", "9"):  # nine tasks begin in the middle of batches, and in the holes between them
        rows = reading(connected.read, topic, startingOffsets=wanted, endingOffsets=until, minPartitions=pieces)
        assert rows.rdd.getNumPartitions() == int(pieces)
        assert offsets(rows) == [(0, one) for one in produced[61:-30]]
    hole = produced[22] + 1
    assert hole not in produced
    assert offsets(reading(connected.read, topic, startingOffsets={topic.name: {"0": hole}}))[0] == (0, produced[23])


@pytest.mark.long("streams that go on are in test_streams.py")
def test_a_stream_of_small_steps_goes_on_where_it_stopped(connected: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    first = topic.produce(make_messages(300), batch=29)
    seen: list[int] = []

    def run() -> int:
        """One run over all there is; how many steps it took."""
        query = (
            reading(connected.readStream, topic, startingOffsets="earliest", maxOffsetsPerTrigger="4000")
            .writeStream.foreachBatch(lambda rows, _: seen.extend(offset for _, offset in offsets(rows)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return len(query.recentProgress)

    assert run() > 1
    assert seen == first
    second = topic.produce(make_messages(50, 300), batch=29)
    run()
    assert seen == first + second


@pytest.mark.long("test_source.py has it of klog's own source")
def test_what_retention_took_is_an_error_unless_that_is_wanted(connected: Any, new_topic: NewTopic) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(60), batch=10)
    topic.delete_before(produced[25])
    start = {topic.name: {"0": produced[3]}}
    with pytest.raises((PySparkException, Py4JError)):  # a task's: its words are lost where jars came later than Spark
        reading(connected.read, topic, startingOffsets=start).count()
    rows = reading(connected.read, topic, startingOffsets=start, failOnDataLoss="false")
    assert offsets(rows) == [(0, one) for one in produced[25:]]


@pytest.mark.long("stock producers of Java are in tests/interop")
def test_it_writes_to_klog_too(connected: Any, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    rows = connected.range(300).selectExpr("string(id) AS key", "concat('value ', id) AS value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", topic.bootstrap).option("topic", topic.name).save()
    found = reading(connected.read, topic).selectExpr("string(key)", "string(value)").collect()
    assert sorted(map(tuple, found)) == sorted((str(one), f"value {one}") for one in range(300))
