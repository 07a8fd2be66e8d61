"""Streaming queries and writes in Spark itself: every message once in what a query has written, whatever fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.conftest import TopicOnBroker, make_messages

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NewTopic = Callable[..., TopicOnBroker]


def stream(spark: Any, topic: TopicOnBroker, **options: str) -> Any:
    reader = spark.readStream.format("klog").option("kafka.bootstrap.servers", topic.bootstrap)
    return reader.option("subscribe", topic.name).options(**options).load()


def run(frame: Any, folder: Path, on_batch: Callable[[Any, int], None]) -> Any:
    """All there is, then stop; the query, ended. A batch that raises fails it."""
    query = (
        frame.writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


@pytest.mark.long("an export that goes on is in test_export_run.py")
def test_a_copy_in_batches_of_a_limit_goes_on_where_the_last_run_stopped(
    spark: Any, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic(1)
    offsets = source.produce(make_messages(30), batch=7)
    source.produce(make_messages(10, 100), 1)
    frame = stream(spark, source, startingOffsets="earliest", maxOffsetsPerTrigger="16", includeHeaders="true")
    writer = frame.select("key", "value", "headers").writeStream.format("klog").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path)).option("topic", target.name)
    writer = writer.option("kafka.bootstrap.servers", target.bootstrap)

    def copied() -> list[str]:
        rows = spark.read.format("klog").option("kafka.bootstrap.servers", target.bootstrap)
        found = rows.option("subscribe", target.name).load().selectExpr("CAST(value AS STRING) AS v").collect()
        return sorted(row.v for row in found)

    query = writer.start()
    query.awaitTermination()
    assert [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]] == [16, 16, 8]
    end = json.loads(query.lastProgress["sources"][0]["endOffset"])
    assert end["offsets"][source.name]["0"] == offsets[-1] + 1
    first = [f"value {i}" for i in [*range(30), *range(100, 110)]]
    assert copied() == sorted(first)
    source.produce(make_messages(5, 200), 1)
    writer.start().awaitTermination()
    assert copied() == sorted(first + [f"value {i}" for i in range(200, 205)])


def test_what_cannot_be_written_is_refused(spark: Any, new_topic: NewTopic) -> None:
    topic = new_topic()

    def write(frame: Any, mode: str = "append") -> None:
        writer = frame.write.format("klog").mode(mode).option("topic", topic.name)
        writer.option("bootstrap.servers", topic.bootstrap).save()

    with pytest.raises(PySparkException, match=r"column .{0,2}value"):
        write(spark.range(3))
    with pytest.raises(PySparkException, match="appended"):
        write(spark.range(3).selectExpr("CAST(id AS STRING) AS value"), "overwrite")


@pytest.mark.long("unsteady: tests/unsteady.md; test_streams.py has queries")
def test_a_query_with_default_options_misses_nothing(spark: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    """It begins at the end; a run that finds nothing, and a batch that fails, are followed by what has come since."""
    topic = new_topic()
    topic.produce(make_messages(5))
    frame = stream(spark, topic)
    seen: list[int] = []

    def keep(batch: Any, number: int) -> None:
        seen.extend(row.offset for row in batch.select("offset").collect())

    def fail(batch: Any, number: int) -> None:
        raise RuntimeError("as the sink says")

    run(frame, tmp_path, keep)
    assert seen == []
    first = topic.produce(make_messages(4))
    with pytest.raises(PySparkException, match="sink"):
        run(frame, tmp_path, fail)
    second = topic.produce(make_messages(3, 100))
    run(frame, tmp_path, keep)
    assert seen == first + second
