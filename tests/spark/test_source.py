"""``format("klog")`` in Spark, from Python and from SQL: what is read equals what was produced, whatever the options;
never a short answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructField, StructType

from klog.spark.source import KlogDataSource
from tests.spark.conftest import Message, NewTopic, TopicOnBroker, make_messages

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def load(spark: Any, topic: TopicOnBroker, **options: Any) -> Any:
    reader = spark.read.format("klog").option("kafka.bootstrap.servers", topic.bootstrap)
    if not {"assign", "subscribePattern", "ranges"} & options.keys():
        reader = reader.option("subscribe", topic.name)
    for name, value in options.items():
        reader = reader.option(name, value if isinstance(value, str) else json.dumps(value))
    return reader.load()


def read_offsets(spark: Any, topic: TopicOnBroker, **options: Any) -> list[int]:
    rows = load(spark, topic, **options).select("partition", "offset").collect()
    return [row.offset for row in sorted(rows)]


def test_every_codec_and_every_kind_of_message(spark: Any, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    messages = [
        Message(b"k", b"v", (("a", b"1"), ("a", None), ("b", b""))),
        Message(None, b"no key"),
        Message(b"gone", None),
        Message(None, None),
        Message(b"", b"", (), 1),
        Message(b"late", b"x" * 5000, (), 1_900_000_000_123),
    ]
    offsets = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        offsets += topic.produce(messages, codec=codec)
    rows = load(spark, topic, includeHeaders="true").orderBy("offset").collect()
    assert [row.offset for row in rows] == offsets
    found = [
        Message(
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            tuple((h.key, None if h.value is None else bytes(h.value)) for h in row.headers or ()),
            round(row.timestamp.timestamp() * 1000),
        )
        for row in rows
    ]
    assert found == messages * 5
    assert {(row.topic, row.partition, row.timestampType) for row in rows} == {(topic.name, 0, 0)}


def test_the_schema_is_the_connectors(spark: Any, new_topic: NewTopic) -> None:
    topic = new_topic()
    fields = [(field.name, field.dataType.simpleString()) for field in load(spark, topic).schema]
    assert fields == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    with_headers = load(spark, topic, includeHeaders="true").schema["headers"]
    assert with_headers.dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert load(spark, topic, columns="offset,key").columns == ["key", "offset"]


def test_splits_and_patterns_read_everything_once(new_topic: NewTopic) -> None:
    """Planned and read as Spark has it done, without Spark, which starts a Python for each plan."""
    topic = new_topic(1)
    offsets = topic.produce(make_messages(100), batch=3)
    splits: list[tuple[dict[str, str], range]] = [
        ({"minPartitions": "6"}, range(6, 7)),
        ({"maxRecordsPerPartition": "30"}, range(4, 5)),
        ({"splitBytes": "500"}, range(3, 100)),
        ({"subscribePattern": f"nothing|{topic.name}"}, range(1, 2)),
    ]
    nothing: list[tuple[dict[str, str], range]] = [
        ({"subscribe": new_topic(3).name}, range(4)),
        ({"subscribePattern": topic.name[:-1]}, range(2)),  # whole names match
    ]
    for options, tasks in splits + nothing:
        which = {} if "subscribePattern" in options else {"subscribe": topic.name}
        source = KlogDataSource({"bootstrap.servers": topic.bootstrap, "columns": "offset", **which, **options})
        reader = source.reader(StructType([StructField("offset", LongType())]))
        partitions = reader.partitions()
        assert len(partitions) in tasks, options
        found = [at for one in partitions for batch in reader.read(one) for at in batch["offset"].to_pylist()]
        assert sorted(found) == ([] if (options, tasks) in nothing else offsets), options


def test_what_is_gone_is_an_error_unless_that_is_wanted(spark: Any, new_topic: NewTopic) -> None:
    topic = new_topic()
    offsets = topic.produce(make_messages(30), batch=5)
    topic.delete_before(offsets[12])
    start = {topic.name: {"0": 0}}
    with pytest.raises(PySparkException, match="asked"):
        read_offsets(spark, topic, startingOffsets=start)
    assert read_offsets(spark, topic, startingOffsets=start, failOnDataLoss="false") == offsets[12:]


# --- SQL, in a session in which nobody has registered anything ---


@pytest.fixture(scope="module")
def plain(spark: Any) -> Any:
    """Another session of the same JVM. What `start_session` has registered is known in its own session alone."""
    session = spark.newSession()
    with pytest.raises(Py4JJavaError, match="not-registered"):
        session.read.format("not-registered").load()
    return session


def test_a_table_of_the_catalog_is_refused_at_once(plain: Any) -> None:
    """Spark keeps a table's options and hands them to no Python source: it could never be read."""
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        plain.sql("CREATE TABLE messages USING klog OPTIONS (bootstrap.servers 'h:1', subscribe 't')")


def test_a_view_is_inserted_into(plain: Any, new_topic: NewTopic) -> None:
    """INSERT wants all columns of what it writes to; the option leaves those that are written."""
    topic = new_topic()
    plain.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW both USING klog OPTIONS (`kafka.bootstrap.servers` '{topic.bootstrap}', "
        f"SUBSCRIBE '{topic.name}', topic '{topic.name}', COLUMNS 'key,value')"
    )
    plain.sql("INSERT INTO both SELECT null, CAST('v' || id AS BINARY) FROM range(20)")
    found = plain.sql("SELECT CAST(value AS STRING) AS v, key FROM both").collect()
    assert sorted(tuple(row) for row in found) == sorted((f"v{i}", None) for i in range(20))
