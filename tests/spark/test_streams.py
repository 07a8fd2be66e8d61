"""`klog.streams` with the running session: what is computed, and that each result is in its topic once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

from klog import streams
from klog.errors import Refused, UnknownTopicOrPartition, UsageError
from klog.export.compact import compact
from klog.export.listing import list_batches
from klog.export.run import TableChoice
from klog.export.stores.local import LocalStore
from klog.export.verify import verify
from klog.spark.committed import read_export
from klog.spark.export import run_export
from klog.streams import running
from klog.streams.batch import Batch
from klog.streams.export_sink import ExportSink
from klog.streams.folder import StreamFolder
from klog.streams.topic_sink import TopicSink
from tests.spark.conftest import NOW_MS, Message, NewTopic, TopicOnBroker, make_messages
from tests.spark.exporting import export
from tests.spark.test_tables import iceberg, upkeep

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

MINUTE_MS = 60_000
START_MS = NOW_MS // MINUTE_MS * MINUTE_MS - 60 * MINUTE_MS
"""The beginning of a minute."""


@pytest.fixture
def of_broker(spark: Any, broker: Any) -> Iterator[streams.Streams]:
    yield streams.Streams(broker.bootstrap, spark)
    assert not spark.streams.active


def views(*rows: tuple[str, int]) -> list[Message]:
    """(country, seconds after START_MS)."""
    return [
        Message(None, json.dumps({"country": country}).encode(), (), START_MS + seconds * 1000)
        for country, seconds in rows
    ]


def run(stream: streams.Stream, target: TopicOnBroker, checkpoint: Path, **options: Any) -> Any:
    """To the end of what is there now; the query, which has ended."""
    queries: list[Any] = []

    def start() -> Any:
        queries.append(stream.to_topic(target.name, checkpoint=str(checkpoint), available_now=True, **options))
        return queries[-1]

    running.run(StreamFolder(checkpoint.parent, f"{checkpoint.name}-run"), start, threading.Event())
    return queries[-1]


def values(topic: TopicOnBroker) -> list[dict[str, Any]]:
    return [json.loads(one.value or b"") for one in topic.messages()]


def at(value: dict[str, Any], name: str) -> int:
    """Seconds after START_MS of a time in a value."""
    return int(datetime.fromisoformat(value[name]).timestamp() * 1000 - START_MS) // 1000


def counted(topic: TopicOnBroker) -> list[tuple[int, str, int]]:
    """(minutes after START_MS, country, count), sorted."""
    return sorted((at(one, "window_start") // 60, one["country"], one["count"]) for one in values(topic))


def test_a_windowed_count_is_written_once_and_late_rows_are_counted(
    of_broker: streams.Streams, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic(3)
    source.produce(views(("de", 1), ("de", 59), ("fr", 30), ("de", 61), ("fr", 200)))
    stream = of_broker.topic(source.name, json="country string").window("1 minute", late="30 seconds").count("country")
    run(stream, target, tmp_path / "checkpoint", key="country")
    assert counted(target) == [(0, "de", 2), (0, "fr", 1), (1, "de", 1)]
    source.produce(views(("de", 2), ("fr", 201), ("de", 300)), 1)
    query = run(stream, target, tmp_path / "checkpoint", key="country")
    assert counted(target) == [(0, "de", 2), (0, "fr", 1), (1, "de", 1), (3, "fr", 2)]
    assert sum(one.stateOperators[0].numRowsDroppedByWatermark for one in query.recentProgress) == 1
    assert {one.key for one in target.messages()} == {b"de", b"fr"}


@pytest.mark.long("more windows; one is counted here")
def test_windows_that_overlap_sessions_and_ranks(
    of_broker: streams.Streams, new_topic: NewTopic, tmp_path: Path
) -> None:
    source = new_topic(2)
    source.produce(views(("de", 1), ("de", 10), ("fr", 50), ("it", 61), ("it", 62), ("it", 63), ("end", 999)))
    by_topic = of_broker.topic(source.name, json="country string")
    sliding, sessions = new_topic(), new_topic()
    run(by_topic.window("2 minutes", every="1 minute").count("country").top(1, by="count"), sliding, tmp_path / "1")
    assert sorted(
        (at(one, "window_start") // 60, one["country"], one["count"], one["rank"]) for one in values(sliding)
    ) == [
        (-1, "de", 2, 1),
        (0, "it", 3, 1),
        (1, "it", 3, 1),
    ]
    run(by_topic.session("30 seconds").aggregate("country", rows="count(*)"), sessions, tmp_path / "2")
    assert sorted(
        (at(one, "window_start"), at(one, "window_end"), one["country"], one["rows"]) for one in values(sessions)
    ) == [
        (1, 40, "de", 2),
        (50, 80, "fr", 1),
        (61, 93, "it", 3),
    ]


def test_a_batch_that_is_written_again_is_there_once(
    spark: Any, of_broker: streams.Streams, new_topic: NewTopic, tmp_path: Path
) -> None:
    """The driver died between the last append and Spark's commit. The rows come in another order, by other tasks."""
    target = new_topic(3)
    sink = TopicSink(of_broker.bootstrap, target.name, key=["n"])
    frame = spark.range(1000).selectExpr("id AS n", "id * 2 AS twice")
    sink.check(frame)
    for parts in (3, 1):
        sink.write(
            frame.orderBy("n", ascending=parts == 1).repartition(parts), Batch(spark, "query", 5, LocalStore(tmp_path))
        )
    found = [(one["n"], one["twice"]) for one in values(target)]
    assert len(found) == 1000
    assert sorted(found) == [(n, 2 * n) for n in range(1000)]
    assert {(one.key or b"").decode() for one in target.messages()} == {str(n) for n in range(1000)}
    assert sorted(path.name for path in (tmp_path / "klog-sink").iterdir()) == ["0000000005.json", "secret"]
    assert (tmp_path / "klog-sink/secret").stat().st_mode & 0o077 == 0


@pytest.mark.long("a windowed count, in this file, reads a stream too")
def test_only_new_rows_and_only_what_can_be_read(
    of_broker: streams.Streams, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic()
    source.produce([*views(("de", 1), ("de", 1), ("fr", 2)), Message(b"k", b"no JSON"), Message(b"gone", None)])
    lenient = of_broker.topic(source.name, json="country string", bad="null")
    run(lenient.distinct("country", within="1 hour").select("country AS value"), target, tmp_path / "1")
    assert sorted(str(one.value) for one in target.messages()) == ["None", "b'de'", "b'fr'"]
    strict = of_broker.topic(source.name, json="country string").select("country AS value")
    query = strict.to_topic(target.name, checkpoint=str(tmp_path / "2"), available_now=True)
    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        query.awaitTermination()
    assert len(target.messages()) == 3


def test_what_cannot_be_is_refused_before_anything_runs(
    spark: Any, of_broker: streams.Streams, new_topic: NewTopic, tmp_path: Path
) -> None:
    source = new_topic()
    stream = of_broker.topic(source.name, json="country string")
    checkpoint = str(tmp_path / "checkpoint")
    with pytest.raises(UnknownTopicOrPartition):
        stream.to_topic("not-there", checkpoint=checkpoint)
    with pytest.raises(UsageError, match=r"\bland\b.*\bcountry\b"):
        stream.to_topic(source.name, key="land", checkpoint=checkpoint)
    with pytest.raises(UsageError, match=r"\bvalue\b.*\bint\b"):
        stream.select("1 AS value").to_topic(source.name, checkpoint=checkpoint)
    with pytest.raises(UsageError, match=r"\bland\b"):
        stream.window("1 minute").count("land")
    with pytest.raises(UsageError, match="soon"):
        stream.window("soon")
    with pytest.raises(UsageError, match="window"):
        stream.top(1, by="country", per=()).window("1 minute")
    with pytest.raises(UsageError):
        of_broker.topic(source.name, text=True, json="a int")
    with pytest.raises(UsageError):
        streams.Stream(spark.range(3), servers=of_broker.bootstrap).to_topic(source.name, checkpoint=checkpoint)
    assert not Path(checkpoint).exists()


@pytest.mark.parametrize(
    "table", ["iceberg", pytest.param("delta", marks=pytest.mark.long("test_tables.py commits to both"))]
)
def test_results_in_a_table_are_there_once(spark: Any, tmp_path: Path, table: str) -> None:
    root = str(tmp_path / "counts")
    sink = ExportSink(root, TableChoice(table))
    frame = spark.sql(
        "SELECT country, count(*) AS count, timestamp '2026-11-25 10:00:00' AS at"
        " FROM VALUES ('de'), ('de'), ('fr') AS views(country) GROUP BY country"
    )
    for number in (0, 0, 1, 2, 1):  # 0 and 1 again, as after a crash
        sink.write(frame if number != 1 else frame.limit(0), Batch(spark, "query", number, LocalStore(tmp_path)))
    if table == "delta":
        lazy = pl.scan_delta(root)
    else:
        lazy = pl.scan_iceberg(iceberg(Path(root)), reader_override="pyiceberg")
    shown = lazy.sort("country").collect()
    assert shown["count"].to_list() == [2, 2, 1, 1]
    assert shown["at"].dtype == pl.Datetime("us", "UTC")
    assert [(one.batches, one.messages, one.state) for one in verify(None, root)] == [(2, 4, "ok")]
    upkeep(Path(root), table)
    assert [one.state for one in verify(None, root)] == ["ok"]
    if table == "delta":
        DeltaTable(root).delete("country = 'fr'")
    else:
        iceberg(Path(root)).delete("country == 'fr'")
    assert "wrong-count" in [one.state for one in verify(None, root)]
    with pytest.raises(Refused, match=table):
        ExportSink(root, TableChoice("iceberg" if table == "delta" else "delta")).check(frame)


@pytest.mark.parametrize("table", ["delta", "iceberg"])
def test_an_export_to_a_table_is_what_the_table_is(spark: Any, new_topic: NewTopic, tmp_path: Path, table: str) -> None:
    """Rows that others have deleted are gone, and files that they have merged are read."""
    topic, root = new_topic(), tmp_path / "t"
    for _ in range(2):
        sent = topic.produce(make_messages(20))
        export(topic, root, table, partition_by="day" if table == "delta" else None)
    assert {row.batch for row in read_export(spark, str(root)).collect()} == {0, 1}
    if table == "delta":
        DeltaTable(root).delete(f"offset < {sent[5]}")
        DeltaTable(root).optimize.compact()
        DeltaTable(root).vacuum(0, dry_run=False, enforce_retention_duration=False)
    else:
        iceberg(root).delete(f"offset < {sent[5]}")
    found = read_export(spark, str(root)).collect()
    assert sorted(row.offset for row in found) == sent[5:]
    if table == "delta":
        assert {row.dt for row in found} == {datetime.fromtimestamp(NOW_MS / 1000, UTC).date()}, "its folders have it"


def test_results_in_an_export_are_there_once(
    spark: Any, of_broker: streams.Streams, new_topic: NewTopic, tmp_path: Path
) -> None:
    root = str(tmp_path / "root")
    sink = ExportSink(root)
    frame = spark.range(10).selectExpr("id", "CAST('2026-11-25 10:00:00' AS TIMESTAMP) AS at")

    def batch(number: int, query: str = "query") -> Batch:
        return Batch(spark, query, number, LocalStore(tmp_path))

    for number in (0, 0, 1, 2, 1):  # 0 and 1 again, as after a crash
        sink.write(frame if number != 1 else frame.limit(0), batch(number))
    assert [(one.batch, one.messages) for one in list_batches(root)] == [(0, 10), (1, 10)]
    assert sorted(row.id for row in read_export(spark, root).collect()) == sorted([*range(10)] * 2)
    assert [(one.batches, one.messages, one.state) for one in verify(of_broker.bootstrap, root)] == [(2, 20, "ok")]
    file = next((tmp_path / "root/data/batch=0000000001").glob("*.parquet"))
    file.unlink()
    assert [one.state for one in verify(None, root)] == ["missing-file"]
    topic = new_topic()
    topic.produce([Message(b"k", b"v")])
    for refused in (
        lambda: sink.write(frame, batch(3, "another")),
        lambda: compact(root),
        lambda: run_export(topic.bootstrap, [topic.name], root, where=None),
    ):
        with pytest.raises(Refused):
            refused()
    with pytest.raises(UsageError, match="batch"):
        sink.check(frame.withColumnRenamed("id", "Batch"))
