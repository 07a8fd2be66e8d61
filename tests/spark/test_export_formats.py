"""Exports in every format, cut and put apart by time: what the log has, no more, no less, by counts and checksums."""

from __future__ import annotations

import errno
import json
import os
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

import klog
from klog.errors import Refused, StorageError, UsageError
from klog.export.batch_writer import FileLayout, WriteJob
from klog.export.file_statistics import collect_statistics
from klog.export.files import FORMATS, format_of
from klog.export.root import ExportRoot
from klog.export.rows import spark_options
from klog.export.run import run
from klog.export.stores.local import LocalStore
from klog.export.verify import verify
from klog.names import TopicPartition
from klog.spark import files as spark_files
from klog.spark.export import DirectWriter, run_export
from tests.cli.runner import klog as command_line
from tests.spark import exporting
from tests.spark.conftest import NOW_MS, Message, NewTopic, TopicOnBroker, make_messages
from tests.spark.exporting import rows_of, states
from tests.spark.full_store import FailingStore, FullStore
from tests.spark.test_files import batch_of, some_rows

HOUR_MS = 3_600_000
SPARK_FORMAT = {"avro": "org.apache.spark.sql.avro.AvroFileFormat"}


def export(topic: TopicOnBroker, root: Path, **options: Any) -> int:
    return sum(row.messages or 0 for row in exporting.export(topic, root, **options))


def data_files(root: Path) -> list[Path]:
    return [one for one in sorted(root.glob("data/**/*")) if one.is_file() and format_of(str(one))]


def some_messages(count: int) -> list[Message]:
    return [
        Message(
            row["key"],
            row["value"],
            tuple((one["key"], one["value"]) for one in row["headers"]),
            NOW_MS - (number % 5) * HOUR_MS,  # the future is refused by brokers
        )
        for number, row in enumerate(some_rows(count))
    ]


MASK = 2**64 - 1


def mixed(x: int) -> int:
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def hash_of(content: bytes | None) -> int:
    length = 0xD6E8FEB86659FD93
    if content is None:
        return mixed(-length & MASK)
    padded = content + bytes(-len(content) % 8)
    words = [int.from_bytes(padded[at : at + 8], "little") for at in range(0, len(padded), 8)]
    found = sum((word ^ word >> 32) * pow(0x9E3779B97F4A7C15, k + 1, 2**64) for k, word in enumerate(words))
    return mixed((found + len(content) * length) & MASK)


def checksum_of(messages: list[tuple[int, bytes | None, bytes | None]]) -> str:
    """As the document of the layout says it, message by message."""
    hashes = [
        mixed((offset * 0xA0761D6478BD642F + hash_of(key) + 3 * hash_of(value)) & MASK)
        for offset, key, value in messages
    ]
    return f"{sum(hashes) & MASK:016x}"


@pytest.mark.parametrize(
    ("name", "partition_by"), [("avro", None), ("orc", "day"), ("json", "hour"), ("parquet", "day")]
)
def test_an_export_holds_what_the_log_has(
    new_topic: NewTopic, tmp_path: Path, name: str, partition_by: str | None
) -> None:
    topic = new_topic(2)
    messages = {0: some_messages(150), 1: some_messages(40)}
    offsets = {one: topic.produce(sent, one, batch=30) for one, sent in messages.items()}
    assert export(topic, tmp_path, format=name, partition_by=partition_by, checksum=True) == 190
    later = some_messages(20)
    offsets[0] += topic.produce(later, 0)
    messages[0] += later
    assert export(topic, tmp_path) == 20
    wanted = [
        (one, offset, sent.key, sent.value, sent.headers, sent.timestamp_ms)
        for one in (0, 1)
        for offset, sent in zip(offsets[one], messages[one], strict=True)
    ]
    found = [
        (
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            tuple((one["key"], one["value"]) for one in row["headers"]),
            round(row["timestamp"].timestamp() * 1000),
        )
        for row in rows_of(tmp_path)
    ]
    assert found == wanted
    assert set(states(tmp_path, topic)) == {"ok"}
    manifest, _ = ExportRoot(str(tmp_path)).manifest(0)
    assert (manifest.format, manifest.partition_by) == (name, partition_by)
    sums = {one.partition: part.checksum for one, part in manifest.partitions.items()}
    for one in (0, 1):
        taken = [(offset, key, value) for number, offset, key, value, _, _ in wanted if number == one]
        assert sums[one] == checksum_of(taken[:150] if one == 0 else taken)
    folders = {path.parent.relative_to(tmp_path / "data").parts[1:] for path in data_files(tmp_path)}
    hours = {datetime.fromtimestamp(sent.timestamp_ms / 1000, UTC) for sent in messages[0]}
    assert (
        folders
        == {
            None: {()},
            "day": {(f"dt={hour:%Y-%m-%d}",) for hour in hours},
            "hour": {(f"dt={hour:%Y-%m-%d}", f"hour={hour:%H}") for hour in hours},
        }[partition_by]
    )


def test_what_the_first_run_has_fixed_stays(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(3))
    export(topic, tmp_path, format="orc", partition_by="day")
    topic.produce(make_messages(3))
    for other in ({"format": "avro"}, {"partition_by": "hour"}):
        with pytest.raises(Refused, match=r"not (avro|hour)"):
            export(topic, tmp_path, **other)
    assert export(topic, tmp_path, format="orc", partition_by="day") == 3
    for wrong in ({"format": "csv"}, {"partition_by": "week"}):
        with pytest.raises((Refused, UsageError)):
            export(topic, tmp_path / "other", **wrong)
    assert not (tmp_path / "other").exists()


def test_an_export_of_a_later_format_is_left_alone(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(3))
    export(topic, tmp_path, format="avro")
    path = tmp_path / "_klog" / "export.json"
    known = json.loads(path.read_bytes())
    assert known["layout"] == 3
    topic.produce(make_messages(3))
    for change, words in (
        ({"format": "lance"}, "lance"),
        ({"layout": 4}, "layout is 4"),
        ({"layout": 2}, "layout is 2"),
    ):
        path.write_text(json.dumps({**known, **change}))
        with pytest.raises(Refused, match=words):
            export(topic, tmp_path)
    assert len(list(tmp_path.glob("data/*"))) == 1


def test_files_are_cut(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    chance = random.Random(5)
    sent = [Message(None, chance.randbytes(20_000)) for _ in range(150)]
    offsets = topic.produce(sent, batch=10)
    limit = 900_000
    for name in FORMATS:
        root = tmp_path / name
        assert export(topic, root, format=name, max_file_bytes=limit) == 150
        sizes = [path.stat().st_size for path in data_files(root)]
        assert len(sizes) >= 150 * 20_000 // limit, name
        assert max(sizes) <= limit, name
        assert [row["offset"] for row in rows_of(root)] == offsets, name
        assert set(states(root, topic)) == {"ok"}, name


def test_files_of_no_size_or_format_are_refused_before_anything_is_made(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    with pytest.raises(UsageError, match="--max-file-bytes"):
        export(topic, tmp_path / "root", max_file_bytes=0)
    with pytest.raises(UsageError, match=r"parquet.*'csv'"):
        export(topic, tmp_path / "root", format="csv")
    assert not (tmp_path / "root").exists()


def test_many_hours_at_once_and_times_of_no_date(tmp_path: Path) -> None:
    rows = some_rows(400)
    for number, row in enumerate(rows):
        row.update(topic="t", partition=0, offset=number, timestamp=(number * 7 % 40) * HOUR_MS * 1000 - 1)
    batch = batch_of(rows)
    far = pa.array([2**63 - 1] + [0] * 399, pa.int64()).cast(pa.timestamp("us", "UTC"))
    odd = batch.set_column(5, batch.schema.field(5), far)
    store = LocalStore(tmp_path)
    job = WriteJob("", (), store, "batch", FileLayout("avro", "hour"), checksum=True)
    done = spark_files.write(job, iter([batch, odd.slice(0, 1)]), "part-0")
    folders = {path.rpartition("/")[0] for path, _ in done["files"]}
    assert "dt=1969-12-31/hour=23" in folders
    assert "dt=1970-01-02/hour=14" in folders
    assert "dt=__HIVE_DEFAULT_PARTITION__/hour=00" in folders or any("HIVE" in one for one in folders)
    assert len(folders) == 41
    assert sum(count for _, count in done["files"]) == 401
    assert sorted(path for path, _ in done["files"]) == sorted(
        one.path.removeprefix("batch/") for one in store.walk("batch")
    )
    found = collect_statistics(store, "batch", checksum=True).partitions[TopicPartition("t", 0)]
    assert (found.messages, found.distinct) == (401, False)  # offset 0 is there twice
    assert found.checksum == done["checksums"][0][2]


def test_a_changed_value_shows_in_the_checksum(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(30))
    export(topic, tmp_path, format="json", checksum=True)
    (path,) = data_files(tmp_path)
    kind = format_of(str(path))
    assert kind is not None
    (batch,) = kind.read(path.open("rb"), None)
    rows = batch.to_pylist()
    rows[3]["value"], rows[4]["value"] = rows[4]["value"], rows[3]["value"]
    with path.open("wb") as sink:
        writer = kind.Writer(sink, batch.schema)
        writer.write(pa.RecordBatch.from_pylist(rows, schema=batch.schema))
        writer.close()
    (row, *_) = verify(topic.bootstrap, str(tmp_path))
    assert (row.state, row.error) == ("wrong-checksum", "WRONG_CHECKSUM")


def test_a_full_disk_commits_nothing_and_says_where(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    offsets = topic.produce([Message(None, random.Random(1).randbytes(5000)) for _ in range(40)])
    for name in FORMATS:
        root = tmp_path / name
        with pytest.raises(StorageError, match=rf"part-.*{os.strerror(errno.ENOSPC)}"):
            exporting.export(topic, FullStore(root), format=name)
        assert [*root.glob("data/*"), *root.glob("_staging/*")] == [], name
        assert export(topic, root) == 40
        assert [row["offset"] for row in rows_of(root)] == offsets, name
        assert set(states(root, topic)) == {"ok"}, name


def test_a_group_is_told_how_far_the_export_is(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(2)
    ends = {one: topic.produce(make_messages(5 + one), one)[-1] + 1 for one in (0, 1)}
    group = f"g-{topic.name}"
    words = ("export", "run", topic.name, "--to", tmp_path / "r", "--engine", "local", "--group", group)
    assert command_line("-B", topic.bootstrap, *words).code == 0
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
    assert {one.partition: one.offset for one in found.topic_partitions} == ends


def test_the_command_says_what_would_be_exported_in_sparks_words(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    end = topic.produce(make_messages(4))[-1] + 1
    command = ("export", "run", topic.name, "--to", tmp_path / "r", "--dry-run", "--spark-json", "-o", "json")
    done = command_line("-B", topic.bootstrap, *command, "--format", "avro", "--partition-by", "day")
    options = {one["option"]: json.loads(one["value"]) for one in done.rows}
    assert options == {
        "assign": {topic.name: [0]},
        "startingOffsets": {topic.name: {"0": 0}},
        "endingOffsets": {topic.name: {"0": end}},
    }
    assert not (tmp_path / "r").exists()


# --- With Spark ---


@pytest.mark.long("Spark reads each format in test_decoded_export.py")
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_reads_what_tasks_wrote_and_klog_what_spark_wrote(
    spark: Any, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    messages = some_messages(60)
    topic.produce(messages)
    manifests = {}
    for name in FORMATS:
        for writer in ("direct", "spark"):
            root = tmp_path / f"{name}-{writer}"
            partition_by = "hour" if name in ("parquet", "json") else None
            (row,) = run_export(
                topic.bootstrap,
                [topic.name],
                str(root),
                format=name,
                partition_by=partition_by,
                writer=writer,
                max_file_bytes=1 << 20,
                checksum=True,
            )
            assert row.messages == 60
            assert set(states(root, topic)) == {"ok"}
            manifests[name, writer], _ = ExportRoot(str(root)).manifest(0)
        direct, spark_s = rows_of(tmp_path / f"{name}-direct"), rows_of(tmp_path / f"{name}-spark")
        differing = {column for a, b in zip(direct, spark_s, strict=True) for column in a if a[column] != b[column]}
        assert not differing, (name, direct[0]["timestamp"], spark_s[0]["timestamp"], spark_s[0]["headers"])
        frame = spark.read.format(SPARK_FORMAT.get(name, name)).load(str(tmp_path / f"{name}-direct" / "data"))
        assert frame.count() == 60
        assert frame.agg({"offset": "max"}).first()[0] == direct[-1]["offset"]
        assert "batch" in frame.columns
        if name != "json":
            values = [None if row.value is None else bytes(row.value) for row in frame.orderBy("offset").collect()]
            assert values == [one.value for one in messages]
            times = frame.orderBy("offset").selectExpr("unix_millis(timestamp) AS at").collect()
            assert [row["at"] for row in times] == [one.timestamp_ms for one in messages]
        else:
            assert {"dt", "hour", "value_encoding"} <= set(frame.columns)
    one = TopicPartition(topic.name, 0)
    (checksum,) = {manifest.partitions[one].checksum for manifest in manifests.values()}
    assert checksum is not None
    assert len({json.dumps(sorted(manifest.windows.items())) for manifest in manifests.values()}) == 1


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_task_that_failed_leaves_nothing_in_the_batch(spark: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(100))
    run(topic.bootstrap, [topic.name], FailingStore(tmp_path), DirectWriter())
    assert (tmp_path / "_klog" / "failed").exists()
    assert len(data_files(tmp_path)) == 1
    assert len(rows_of(tmp_path)) == 100
    assert set(states(tmp_path, topic)) == {"ok"}
    assert list(tmp_path.glob("_staging/*")) == []


def test_ranges_as_sparks_options_read_what_would_be_exported(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(2)
    topic.produce(make_messages(10), 0)
    export(topic, tmp_path)
    topic.produce(make_messages(7), 0)
    topic.produce(make_messages(4), 1)
    rows = exporting.export(topic, tmp_path, dry_run=True)
    options = {one.option: one.value for one in spark_options(rows)}
    assert json.loads(options["endingOffsets"]) == {topic.name: {str(row.partition): row.to for row in rows}}
    assert klog.read(bootstrap_servers=topic.bootstrap, **options).read_all().num_rows == 11
