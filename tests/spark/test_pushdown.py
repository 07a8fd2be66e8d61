"""`klog.spark.where`, which makes a source of its own for each filter: klog's source takes none from Spark.

Spark 4.3 keeps what a source has planned for a filter with the DataFrame. The next query of the same frame reads that
plan, whatever it asks for.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.functions import col

from klog.client.raw_fetch import Range
from klog.errors import UsageError
from klog.spark import where
from klog.spark.narrowing import Bounds
from tests.spark.conftest import NewTopic, make_messages

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NOT_ASKED: Any = None
"""In place of a cluster: nothing is asked where no time is a bound."""
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.mark.long("of a setting that Spark has off by default")
def test_rows_are_right_where_spark_hands_filters_over(spark: Any, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    for partition in range(2):
        topic.produce(make_messages(10), partition)
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, "true")
    try:
        reader = spark.read.format("klog").option("kafka.bootstrap.servers", topic.bootstrap)
        frame = reader.option("subscribe", topic.name).load()
        one, other = frame.where("partition = 0"), frame.where("partition = 1 AND offset >= 0")
        assert (one.count(), frame.count(), other.count()) == (10, 20, 10)
    finally:
        spark.conf.set(PUSHDOWN, before)


def test_where_reads_what_the_condition_leaves_and_nothing_else_changes(spark: Any, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    offsets = [topic.produce(make_messages(10), partition, batch=2) for partition in range(2)]
    options = {"kafka.bootstrap.servers": topic.bootstrap, "startingOffsets": "earliest", "minPartitions": "1"}
    frame = spark.read.format("klog").options(**options, assign=json.dumps({topic.name: [0, 1]})).load()
    found = where(frame, (col("partition") == 1) & (col("offset") >= offsets[1][7]) & (col("key") != "k9"))
    assert ranges(where(frame, "partition = 0")) == [[topic.name, 0, 0, offsets[0][-1] + 1]]
    assert ranges(found) == [[topic.name, 1, offsets[1][7], offsets[1][-1] + 1]]
    assert ranges(where(frame, "key = 'k1' OR partition = 0")) is None
    rows = found.select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [(1, at) for at in offsets[1][7:9]]
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
