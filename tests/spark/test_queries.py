"""Streaming queries and writes in Spark itself: every message once in what a query has written, whatever fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import TopicOnBroker, make_messages

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NewTopic = Callable[..., TopicOnBroker]


def stream(spark: Any, topic: TopicOnBroker, **options: str) -> Any:
    reader = spark.readStream.format("klog").option("kafka.bootstrap.servers", topic.bootstrap)
    return reader.option("subscribe", topic.name).options(**options).load()


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
