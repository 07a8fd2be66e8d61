"""Filters and columns that Spark hands to sources in Python: why klog's takes none, and what is done instead.

Spark 4.3 keeps what a source has planned for a filter with the DataFrame. The next query of the same frame reads that
plan, whatever it asks for. When `test_spark_reads_the_plan_of_another_filter` fails, Spark plans each query by itself,
and klog can take filters; until then `klog.spark.where` makes a source of its own for each. When
`test_spark_asks_for_all_columns` fails, klog can make those alone that a query needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition
from pyspark.sql.functions import col

from klog.client.raw_fetch import Range
from klog.errors import UsageError
from klog.spark import where
from klog.spark.narrowing import Bounds
from tests.spark.conftest import TopicOnBroker, make_messages

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NewTopic = Callable[..., TopicOnBroker]
NOT_ASKED: Any = None
"""In place of a cluster: nothing is asked where no time is a bound."""
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def handing_over(spark: Any) -> Iterator[Any]:
    """The session, which hands filters over."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.set(PUSHDOWN, before)


class Numbers(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """0 and 1; or, of a filter on equality, only that."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number int, name string"

    def reader(self, schema: Any) -> DataSourceReader:
        return NumbersReader()


class NumbersReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self.numbers = [0, 1]

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        equal = [one.value for one in filters if isinstance(one, EqualTo)]
        self.numbers = equal or self.numbers
        return [one for one in filters if not isinstance(one, EqualTo)]

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        return iter([(number, str(number)) for number in self.numbers])


@pytest.mark.long("the rows are right all the same: below")
def test_spark_reads_the_plan_of_another_filter(handing_over: Any) -> None:
    handing_over.dataSource.register(Numbers)
    frame = handing_over.read.format("numbers").load()
    assert frame.count() == 2
    assert frame.where("number = 0").count() == 1
    assert frame.count() == 1  # of 2


@pytest.mark.long("of a setting that Spark has off by default")
def test_spark_asks_for_all_columns(handing_over: Any) -> None:
    handing_over.dataSource.register(Numbers)
    frame = handing_over.read.format("numbers").load().select("number")
    assert frame._jdf.queryExecution().optimizedPlan().collectLeaves().head().output().size() == 2


@pytest.mark.long("of a setting that Spark has off by default")
def test_klogs_rows_are_right_all_the_same(handing_over: Any, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    for partition in range(2):
        topic.produce(make_messages(10), partition)
    reader = handing_over.read.format("klog").option("kafka.bootstrap.servers", topic.bootstrap)
    frame = reader.option("subscribe", topic.name).load()
    one, other = frame.where("partition = 0"), frame.where("partition = 1 AND offset >= 0")
    assert (one.count(), frame.count(), other.count()) == (10, 20, 10)
    assert sorted(row.partition for row in one.union(other).collect()) == [0] * 10 + [1] * 10


def test_where_reads_what_the_condition_leaves_and_nothing_else_changes(spark: Any, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    offsets = [topic.produce(make_messages(10), partition, batch=2) for partition in range(2)]
    options = {"kafka.bootstrap.servers": topic.bootstrap, "startingOffsets": "earliest", "minPartitions": "1"}
    frame = spark.read.format("klog").options(**options, assign=json.dumps({topic.name: [0, 1]})).load()
    one = where(frame, "partition = 0")
    other = where(frame, (col("partition") == 1) & (col("offset") >= offsets[1][7]) & (col("key") != "k9"))
    assert [ranges(each) for each in (one, other)] == [
        [[topic.name, 0, 0, offsets[0][-1] + 1]],
        [[topic.name, 1, offsets[1][7], offsets[1][-1] + 1]],
    ]
    assert ranges(where(frame, "key = 'k1' OR partition = 0")) is None
    found = one.select("partition", "offset").union(other.select("partition", "offset")).collect()
    assert sorted(map(tuple, found)) == [(0, at) for at in offsets[0]] + [(1, at) for at in offsets[1][7:9]]
    assert frame.count() == 20
    with pytest.raises(UsageError):
        where(frame.select("offset"), "offset > 3")


def ranges(frame: Any) -> Any:
    """The option of the only relation that the frame reads."""
    text = frame._jdf.queryExecution().analyzed().collectLeaves().head().options().get("ranges")
    return None if text is None else json.loads(text)


def test_bounds_are_those_of_what_is_understood() -> None:
    bounds = Bounds()
    for condition in (
        "(upper(key) = 'A')",
        "isnotnull(partition)",
        "(partition <=> 1)",
        "((offset = 3) OR (offset = 4))",
    ):
        bounds.take(condition)
    assert bounds.is_everything
    for condition in ("(v.partition >= 1)", "(partition < 3)", "(offset > 10L)", "(offset <= 20L)", "(offset >= 5L)"):
        bounds.take(condition)
    assert (bounds.partition, bounds.offset) == ((1, 2), (11, 20))
    whole = [Range("t", 0, 0, 100), Range("t", 1, 15, 18), Range("t", 2, 0, 100), Range("u", 2, 20, 21)]
    assert bounds.within(NOT_ASKED, whole) == [Range("t", 1, 15, 18), Range("t", 2, 11, 21), Range("u", 2, 20, 21)]
    bounds.take("(timestamp > TIMESTAMP '2026-11-25 10:00:00.5')")
    bounds.take("(timestamp < TIMESTAMP '2020-01-01 00:00:00')")
    assert bounds.since_ms == 1795600800500
    bounds.take("(partition = 7)")
    assert bounds.within(NOT_ASKED, whole) == []
