"""What Spark's tasks send, without Spark: every row once, where it says, or an error that says which cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from klog.errors import CannotConnect, InvalidConfig, KlogError, SendFailed, UsageError
from klog.names import TopicPartition
from klog.spark.options import COLUMNS
from klog.spark.sink import KlogStreamWriter, KlogWriter, SentMessages, totals
from klog.spark.sink_options import SinkOptions
from klog.spark.source import KlogDataSource
from tests.broker_fixture import RunningBroker
from tests.spark.conftest import NewTopic, TopicOnBroker
from tests.spark.refusals import not_refused

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def spark_schema(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def batch(**columns: tuple[Sequence[Any], pa.DataType]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(rows, kind) for name, (rows, kind) in columns.items()})


def written(topic: TopicOnBroker) -> list[dict[str, Any]]:
    """What is in the topic, by partition and offset."""
    options = {"bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "includeHeaders": "true"}
    reader = KlogDataSource(options).reader(spark_schema(**dict.fromkeys(COLUMNS, BinaryType())))
    rows = [row for task in reader.partitions() for one in reader.read(task) for row in one.to_pylist()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def test_rows_with_everything(new_topic: NewTopic) -> None:
    topic = new_topic(3)
    schema = spark_schema(
        key=BinaryType(),
        value=BinaryType(),
        partition=IntegerType(),
        headers=HEADERS,
        offset=LongType(),
        timestamp=TimestampType(),
    )
    rows = batch(
        value=([b"a", None, b"", b"d"], pa.binary()),
        offset=([1, 2, 3, 4], pa.int64()),  # of where it was read: no column of ours, let be
        key=([b"k", b"k", None, b""], pa.binary()),
        partition=([2, 1, 1, 0], pa.int32()),
        headers=(
            [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], None, [{"key": "", "value": b""}]],
            ARROW_HEADERS,
        ),
    )
    source = KlogDataSource({"kafka.bootstrap.servers": topic.bootstrap, "topic": topic.name})
    writer = source.writer(schema, False)
    sent = writer.write(iter([rows, rows.slice(0, 0), rows.slice(0, 1)]))
    assert sent.rows == 5
    assert sent.messages == {TopicPartition(topic.name, n): count for n, count in ((0, 1), (1, 2), (2, 2))}
    writer.commit([sent])
    found = [(row["partition"], row["key"], row["value"], row["headers"]) for row in written(topic)]
    headed = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert found == [
        (0, b"", b"d", [{"key": "", "value": b""}]),
        (1, b"k", None, None),
        (1, None, b"", None),
        (2, b"k", b"a", headed),
        (2, b"k", b"a", headed),
    ]


def test_text_and_a_topic_for_each_row(new_topic: NewTopic) -> None:
    one, two = new_topic(1), new_topic(1)
    schema = spark_schema(key=StringType(), value=StringType(), topic=StringType())
    rows = batch(
        key=(["é", None], pa.string()),
        value=(["ü", ""], pa.string()),
        topic=([one.name, two.name], pa.string()),
    )
    source = KlogDataSource({"bootstrap.servers": one.bootstrap, "kafka.compression.type": "zstd"})
    source.streamWriter(schema, False).commit([source.streamWriter(schema, False).write(iter([rows]))], 7)
    assert [(row["key"], row["value"]) for row in written(one)] == [("é".encode(), "ü".encode())]
    assert [(row["key"], row["value"]) for row in written(two)] == [(None, b"")]
    # The option goes before the column, as in the connector.
    writer = KlogDataSource({"bootstrap.servers": one.bootstrap, "topic": one.name}).writer(schema, False)
    writer.write(iter([rows]))
    assert len(written(one)) == 3
    null = batch(key=([None], pa.string()), value=(["x"], pa.string()), topic=([None], pa.string()))
    with pytest.raises(UsageError, match="topic"):
        source.writer(schema, False).write(iter([null]))


def test_more_than_the_producer_holds(new_topic: NewTopic) -> None:
    topic = new_topic(2)
    options = {
        "bootstrap.servers": topic.bootstrap,
        "topic": topic.name,
        "kafka.queue.buffering.max.messages": "500",
    }
    rows = batch(value=([b"%d" % i for i in range(3_000)], pa.binary()))
    sent = KlogDataSource(options).writer(spark_schema(value=BinaryType()), False).write(iter([rows]))
    assert sum(sent.messages.values()) == 3_000
    assert sorted(int(row["value"]) for row in written(topic)) == list(range(3_000))


def test_large_messages_go_both_ways(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker(message__max__bytes="12000000").start()
    topic = TopicOnBroker(broker.bootstrap, "large", 1)
    values = [bytes([n]) * 10_000_000 for n in range(2)]
    options = {"bootstrap.servers": broker.bootstrap, "topic": "large"}
    writer = KlogDataSource(options).writer(spark_schema(value=BinaryType()), False)
    writer.write(batch(value=([value], pa.binary())) for value in values)
    assert [row["value"] for row in written(topic)] == values


def test_what_is_refused_on_the_way_is_said(new_topic: NewTopic) -> None:
    topic = new_topic()
    options = {"bootstrap.servers": topic.bootstrap, "topic": topic.name}
    schema = spark_schema(value=BinaryType(), partition=IntegerType())
    none_there = batch(value=([b"x"], pa.binary()), partition=([7], pa.int32()))
    with pytest.raises(KlogError, match=topic.name):
        KlogDataSource(options).writer(schema, False).write(iter([none_there]))
    too_large = batch(value=([bytes(3_000_000)], pa.binary()), partition=([0], pa.int32()))
    with pytest.raises(KlogError, match=f"{topic.name}-0"):
        KlogDataSource(options).writer(schema, False).write(iter([too_large]))
    assert written(topic) == []


BASE = {"bootstrap.servers": "h:1", "topic": "t"}


REFUSED: tuple[tuple[dict[str, str], dict[str, Any], str], ...] = (
    (BASE, {"key": BinaryType()}, 'no column "value"'),
    (BASE, {"value": LongType()}, '"value" is bigint'),
    (BASE, {"value": BinaryType(), "key": IntegerType()}, '"key" is int'),
    (BASE, {"value": BinaryType(), "partition": LongType()}, '"partition" is bigint'),
    (BASE, {"value": BinaryType(), "headers": MapType(StringType(), BinaryType())}, '"headers" is map'),
    (BASE, {"value": BinaryType(), "topic": BinaryType()}, '"topic" is binary'),
    ({"bootstrap.servers": "h:1"}, {"value": BinaryType()}, '"topic"'),
    ({"topic": "t"}, {"value": BinaryType()}, "bootstrap.servers"),
    ({**BASE, "topic": "a/b"}, {"value": BinaryType()}, "a/b"),
    ({**BASE, "kafka.acks": "2", "kafka.transactional.id": "x"}, {"value": BinaryType()}, "transactional"),
    ({**BASE, "kafka.value.serializer": "x"}, {"value": BinaryType()}, "serialize"),
    ({**BASE, "kafka.acks": "7000"}, {"value": BinaryType()}, "acks"),
    ({**BASE, "kafka.colour": "red"}, {"value": BinaryType()}, "colour"),
)


def test_what_cannot_be_is_refused_before_any_row() -> None:
    cases = [((options, spark_schema(**columns)), said) for options, columns, said in REFUSED]
    wrong = (UsageError, InvalidConfig)
    assert not_refused(cases, lambda case: KlogDataSource(case[0]).writer(case[1], False), wrong) == []
    assert not_refused(cases, lambda case: KlogDataSource(case[0]).streamWriter(case[1], False), wrong) == []


def test_brokers_that_are_not_there_are_told_before_any_row() -> None:
    options = {"bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    with pytest.raises(CannotConnect, match=r"127\.0\.0\.1"):
        KlogDataSource(options).writer(spark_schema(value=BinaryType()), False)


def test_nothing_is_overwritten() -> None:
    with pytest.raises(UsageError, match="appended"):
        KlogDataSource(BASE).writer(spark_schema(value=BinaryType()), True)


def test_counts_are_added_up_and_held_against_the_rows(caplog: pytest.LogCaptureFixture) -> None:
    options = SinkOptions.parse(BASE, spark_schema(value=BinaryType()))
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    messages = [SentMessages(3, {one: 1, two: 2}), None, SentMessages(4, {two: 4})]
    assert totals(messages) == {one: 1, two: 6}
    KlogWriter(options).commit(messages)
    with pytest.raises(SendFailed, match=r"8 rows.*\b7\b"):
        KlogStreamWriter(options).commit([*messages, SentMessages(1, {})], 3)
    KlogStreamWriter(options).abort(messages, 3)
    assert "t-0 1, t-1 6" in caplog.text
