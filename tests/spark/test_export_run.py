"""The algorithm of an export against a real broker: exact, incremental, and refused where it must be.

Spark is not started here; `test_export_spark.py` has what needs it.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import PropertyMock, patch

import pyarrow.parquet as pq
import pytest

from klog.client.raw_fetch import Range
from klog.errors import (
    CorruptLog,
    KlogError,
    NoSuchThing,
    OffsetOutOfRange,
    Refused,
    UnknownTopicOrPartition,
    UsageError,
)
from klog.export.batch_writer import WriteJob, WriteResult
from klog.export.root import ExportRoot
from klog.export.rows import ExportedRange
from klog.export.run import STEPS, how_far, run, timed
from klog.export.status import losses, status, waiting_bytes
from klog.export.stores.local import LocalStore
from klog.export.verify import verify
from klog.spark.export import DirectWriter, LocalWriter
from tests.broker_fixture import RunningBroker
from tests.spark.conftest import (
    NOW_MS,
    Message,
    NewTopic,
    TopicOnBroker,
    exported_offsets,
    exported_rows,
    make_messages,
    race,
)
from tests.spark.exporting import export, states, when
from tests.spark.killed_export import Kill, kill_each


def test_each_run_takes_what_is_new_and_nothing_else(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root = new_topic(2), tmp_path / "root"
    first = topic.produce(make_messages(100), 0)
    other = topic.produce(make_messages(40), 1)
    rows = export(topic, root)
    assert [(row.partition, row.from_, row.to, row.messages) for row in rows] == [
        (0, 0, first[-1] + 1, 100),
        (1, 0, other[-1] + 1, 40),
    ]
    assert sum(row.bytes or 0 for row in rows) <= sum(p.stat().st_size for p in root.rglob("*.parquet"))
    assert sum(row.files or 0 for row in rows) == len(list(root.rglob("*.parquet"))) == 1  # which both share
    assert export(topic, root) == []
    second = topic.produce(make_messages(50, 100), 0)
    (row,) = export(topic, root)
    assert (row.partition, row.from_, row.messages) == (0, first[-1] + 1, 50)
    assert export(topic, root) == []
    assert exported_offsets(root, 0) == first + second
    assert exported_offsets(root, 1) == other
    assert [bytes(row["value"]) for row in exported_rows(root)][:150] == [f"value {i}".encode() for i in range(150)]
    assert states(root, topic) == ["ok", "ok"]
    assert sorted(path.name for path in (root / "data").iterdir()) == ["batch=0000000000", "batch=0000000001"]
    assert list((root / "_staging").iterdir()) == []


def test_nothing_new_and_nothing_at_all(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(3)
    assert export(topic, tmp_path / "root") == []
    assert exported_rows(tmp_path / "root") == []
    assert [row.lag for row in status(topic.bootstrap, str(tmp_path / "root"))] == [0, 0, 0]
    assert states(tmp_path / "root", topic) == ["ok"] * 3


def test_a_dry_run_says_what_would_be_and_leaves_nothing(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(10))
    (row,) = export(topic, tmp_path / "root", dry_run=True)
    assert (row.messages, row.files, row.bytes) == (10, None, None)
    assert not (tmp_path / "root").exists()


def test_max_messages_bounds_a_run_and_the_next_one_goes_on(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(25), batch=7)
    taken = [sum(row.messages or 0 for row in export(topic, tmp_path, max_messages=10)) for _ in range(4)]
    assert taken == [10, 10, 5, 0]
    assert exported_offsets(tmp_path) == produced
    assert states(tmp_path, topic) == ["ok"]


def test_from_is_for_the_first_run(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(10), batch=4)
    asked = {"+3": (3, 10), "-4": (6, 10), "end": (10, 10), "+2:-2": (2, 8), ":+5": (0, 5)}
    for words, (first, last) in asked.items():
        export(topic, tmp_path / words, from_range=words)
        assert exported_offsets(tmp_path / words) == produced[first:last], words
    later = topic.produce(make_messages(3))
    for words, (first, _) in asked.items():
        export(topic, tmp_path / words)
        assert exported_offsets(tmp_path / words) == produced[first:] + later, words
        with pytest.raises(UsageError, match="--from"):
            export(topic, tmp_path / words, from_range="start")


def test_a_root_is_not_made_where_its_beginning_is_not_there_yet(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(2)
    produced = topic.produce(make_messages(10), 1)
    for words in ("100000", "100000:200000", "+11", "+11:", "@4102444800000", "@2100-01-01"):
        for dry_run in (True, False):
            with pytest.raises(UsageError, match="--from") as refused:
                export(topic, tmp_path / "root", from_range=words, dry_run=dry_run)
        assert re.search(rf"{topic.name}-1 .*\b{produced[-1] + 1}\b", refused.value.message), words
        assert f"{topic.name}-0" not in refused.value.message, words  # it has no message that could be missed
        assert not (tmp_path / "root").exists(), words
    export(topic, tmp_path / "root")
    assert exported_offsets(tmp_path / "root", 1) == produced


def test_an_empty_topic_ends_too(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(2)
    with pytest.raises(UsageError, match=rf"{topic.name}-0 .*\b0, {topic.name}-1 .*\b0"):
        export(topic, tmp_path / "root", from_range="1")
    for words in ("0", "end", "start", "-3"):
        export(topic, tmp_path / words, from_range=words)


def test_a_beginning_that_is_moved_is_said(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(10), batch=5)
    topic.delete_before(produced[5])
    notes: list[str] = []
    export(topic, tmp_path / "offset", from_range="0", on_note=notes.append)
    (said,) = notes
    assert re.search(rf"{topic.name}-0 .*\b{produced[5]}\b", said)
    assert exported_offsets(tmp_path / "offset") == produced[5:]
    notes.clear()
    export(topic, tmp_path / "back", from_range="-6", on_note=notes.append)
    (said,) = notes
    assert f"{topic.name}-0 has 5 messages" in said
    assert exported_offsets(tmp_path / "back") == produced[5:]
    notes.clear()
    now_ms = time.time_ns() // 1_000_000
    assert export(topic, tmp_path / "time", from_range=f"@{now_ms}", on_note=notes.append) == []
    (said,) = notes
    assert re.search(rf"{topic.name}-0: .*\btime\b", said)
    notes.clear()
    export(topic, tmp_path / "exactly", from_range="-5", on_note=notes.append)
    assert notes == []


def test_from_a_time(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce([Message(None, b"x", (), NOW_MS + 1000 * i) for i in range(20)], batch=6)
    export(topic, tmp_path, from_range=f"@{NOW_MS + 6500}")
    assert exported_offsets(tmp_path) == produced[7:]


def test_an_interrupted_first_run_keeps_where_it_began(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(10))

    def fail(step: str) -> None:
        if step == "staged":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(topic, tmp_path, from_range="+4", on_step=fail)
    with pytest.raises(UsageError, match=rf"-0 at {produced[4]}, \w+ at {produced[5]}\b"):
        export(topic, tmp_path, from_range="+5")
    export(topic, tmp_path)
    assert exported_offsets(tmp_path) == produced[4:]


def test_several_topics_are_one_batch_and_stay_the_same(new_topic: NewTopic, tmp_path: Path) -> None:
    one, two, three = new_topic(), new_topic(), new_topic()
    one.produce(make_messages(5))
    two.produce(make_messages(6))
    rows = run(one.bootstrap, [one.name, two.name], str(tmp_path), LocalWriter())
    assert sorted(row.messages or 0 for row in rows) == [5, 6]
    assert len(list(tmp_path.glob("data/*"))) == 1
    for others in ([one.name], [one.name, three.name], [three.name]):
        with pytest.raises(Refused, match=one.name):
            run(one.bootstrap, others, str(tmp_path), LocalWriter())
    two.produce(make_messages(1))
    (row,) = run(one.bootstrap, [], str(tmp_path), LocalWriter())  # none named: those of the export
    assert row.topic == two.name


def test_a_topic_that_is_not_there(new_topic: NewTopic, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        run(new_topic().bootstrap, ["nowhere"], str(tmp_path / "root"), LocalWriter())
    assert not (tmp_path / "root").exists()


def test_a_topic_made_again_under_its_name_is_refused(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(5))
    export(topic, tmp_path)
    before = exported_rows(tmp_path)
    topic_id = ExportRoot(str(tmp_path)).existing_identity().topic_ids[topic.name]
    topic.delete()
    again = topic.made_again()
    again.produce(make_messages(50))
    with pytest.raises(Refused, match=topic_id):
        export(again, tmp_path)
    with pytest.raises(Refused, match=topic_id):
        status(again.bootstrap, str(tmp_path))
    assert exported_rows(tmp_path) == before


def test_another_cluster_is_refused(
    new_topic: NewTopic, make_broker: Callable[..., RunningBroker], tmp_path: Path
) -> None:
    topic = new_topic()
    topic.produce(make_messages(5))
    export(topic, tmp_path / "root")
    other = TopicOnBroker(make_broker().start().bootstrap, topic.name, 1)
    with pytest.raises(Refused, match=str(ExportRoot(str(tmp_path / "root")).existing_identity().cluster_id)):
        export(other, tmp_path / "root")


def test_retention_past_the_start_fails_or_is_recorded(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    first = topic.produce(make_messages(10), batch=5)
    export(topic, tmp_path)
    second = topic.produce(make_messages(10), batch=5)
    topic.delete_before(second[4])
    with pytest.raises(OffsetOutOfRange, match=rf"\[{first[-1] + 1}, {second[4]}\)"):
        export(topic, tmp_path)
    (lost,) = losses(status(topic.bootstrap, str(tmp_path)))
    assert f"[{first[-1] + 1}, {second[4]})" in lost
    assert exported_offsets(tmp_path) == first
    export(topic, tmp_path, fail_on_data_loss=False)
    assert losses(status(topic.bootstrap, str(tmp_path))) == []
    assert exported_offsets(tmp_path) == first + second[4:]
    (gap,) = ExportRoot(str(tmp_path)).manifest(1)[0].gaps
    assert (gap.from_offset, gap.to_offset) == (first[-1] + 1, second[4])
    assert states(tmp_path, topic) == ["ok"]


def test_retention_of_what_was_exported_is_no_loss(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(10))
    export(topic, tmp_path)
    topic.delete_before(produced[-1] + 1)
    assert export(topic, tmp_path) == []
    later = topic.produce(make_messages(2))
    export(topic, tmp_path)
    assert exported_offsets(tmp_path) == produced + later
    assert states(tmp_path, topic) == ["ok"]


def test_a_partition_that_the_topic_gets_later_is_exported_from_its_start(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(1)
    topic.produce(make_messages(5))
    export(topic, tmp_path)
    topic.grow(2)
    later = topic.produce(make_messages(7), 1)
    (row,) = export(topic, tmp_path)
    assert (row.partition, row.messages) == (1, 7)
    assert exported_offsets(tmp_path, 1) == later
    assert states(tmp_path, topic) == ["ok", "ok"]


class Forgetful(LocalWriter):
    """A writer that loses, doubles or invents, as a broken engine might."""

    def __init__(self, spoil: Callable[[Path], None]) -> None:
        self.spoil = spoil

    def write(self, job: WriteJob) -> WriteResult:
        written = super().write(job)
        self.spoil(Path(job.store.location(job.folder)))
        return written


def _lose_a_file(folder: Path) -> None:
    next(iter(folder.glob("*.parquet"))).unlink()


def _lose_a_row(folder: Path) -> None:
    path = next(iter(folder.glob("*.parquet")))
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)


def _double_a_file(folder: Path) -> None:
    path = next(iter(folder.glob("*.parquet")))
    shutil.copy(path, folder / "part-99.parquet")


def _swap_a_row_for_another(folder: Path) -> None:
    path = next(iter(folder.glob("*.parquet")))
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[3] = rows[4]
    pq.write_table(table.from_pylist(rows, schema=table.schema), path)


def _cut_a_file(folder: Path) -> None:
    path = next(iter(folder.glob("*.parquet")))
    path.write_bytes(path.read_bytes()[:-20])


def _flip_a_bit_of_a_value(folder: Path) -> None:
    path = next(iter(folder.glob("*.parquet")))
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 4
    path.write_bytes(data)


def _copy_the_batch_under_another_name(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("batch=7"))


def _copy_a_file_beside_the_batches(folder: Path) -> None:
    shutil.copy(next(folder.glob("*.parquet")), folder.with_name("mine.parquet"))


def test_what_was_written_wrong_is_not_committed(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    produced = topic.produce(make_messages(20))
    for spoil in (_lose_a_file, _lose_a_row, _double_a_file, _swap_a_row_for_another, _cut_a_file):
        with pytest.raises(CorruptLog):
            run(topic.bootstrap, [topic.name], str(tmp_path), Forgetful(spoil))
        assert exported_rows(tmp_path) == [], spoil
        assert list((tmp_path / "_staging").iterdir()) == [], spoil
    export(topic, tmp_path)
    assert exported_offsets(tmp_path) == produced


def test_verify_finds_what_was_spoiled_later(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root = new_topic(), tmp_path / "whole"
    topic.produce(make_messages(20))
    export(topic, root)
    for spoil, state in (
        (_lose_a_file, "missing-file"),
        (_lose_a_row, "wrong-count"),
        (_double_a_file, "unknown-file"),
        (_swap_a_row_for_another, "overlap"),
        (_cut_a_file, "changed-file"),
        (_flip_a_bit_of_a_value, "changed-file"),
        (_copy_the_batch_under_another_name, "unknown-file"),
        (_copy_a_file_beside_the_batches, "unknown-file"),
        (shutil.rmtree, "missing-batch"),
    ):
        spoiled = tmp_path / spoil.__name__
        shutil.copytree(root, spoiled)
        spoil(spoiled / "data" / "batch=0000000000")
        found = verify(topic.bootstrap, str(spoiled))
        assert state in {row.state for row in found}, spoil
        assert all(row.error and row.message for row in found if row.state != "ok"), spoil


def test_verify_finds_a_missing_batch_as_a_gap(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    for start in range(0, 30, 10):
        topic.produce(make_messages(10, start))
        export(topic, tmp_path)
    shutil.rmtree(tmp_path / "data" / "batch=0000000001")
    assert sorted(states(tmp_path, topic)) == ["gap", "missing-batch"]
    with pytest.raises(Refused, match="batch 1 "):
        export(topic, tmp_path)


def test_status_counts_what_is_behind(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(2)
    first = topic.produce(make_messages(4))
    export(topic, tmp_path)
    topic.produce([one._replace(timestamp_ms=NOW_MS - 5000) for one in make_messages(9)])
    rows = status(topic.bootstrap, str(tmp_path))
    assert [(row.partition, row.exported, row.lag) for row in rows] == [(0, first[-1] + 1, 9), (1, 0, 0)]
    assert (rows[0].lag_ms or 0) >= 5000
    assert rows[1].lag_ms == 0
    waiting = sum((row.log_end_offset or 0) - row.exported for row in rows)
    assert waiting_bytes(topic.bootstrap, str(tmp_path)) == waiting > 0
    export(topic, tmp_path)
    assert waiting_bytes(topic.bootstrap, str(tmp_path)) == 0
    assert waiting_bytes("127.0.0.1:1", str(tmp_path)) == 0


def test_verbs_on_a_folder_without_an_export(broker: RunningBroker, tmp_path: Path) -> None:
    for verb in (status, verify):
        with pytest.raises(NoSuchThing, match=re.escape(str(tmp_path))):
            verb(broker.bootstrap, str(tmp_path))


def test_two_exporters_at_once_leave_every_message_once(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(2)
    produced = {0: topic.produce(make_messages(300), 0), 1: topic.produce(make_messages(200), 1)}
    gate = threading.Barrier(2)
    results: list[list[ExportedRange]] = []
    errors: list[KlogError] = []

    def one(_: int) -> None:
        try:  # both wait once before the commit; who has lost goes on alone
            results.append(export(topic, tmp_path, on_step=when("flushed", lambda: gate.wait(20))))
        except KlogError as error:
            errors.append(error)

    race(one, 1, 2)
    assert not errors
    assert sorted(len(rows) for rows in results) == [0, 2]
    assert {one: exported_offsets(tmp_path, one) for one in (0, 1)} == produced
    assert len(list(tmp_path.glob("data/*"))) == 1
    assert list((tmp_path / "_staging").iterdir()) == []


def test_killed_at_any_step_and_run_again_every_message_is_there_once(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    first = topic.produce(make_messages(60), batch=9)
    roots = {step: tmp_path / step for step in STEPS if step not in ("planned", "started", "staged", "counted")}
    kills = {step: Kill(topic.name, str(root), step) for step, root in roots.items()}
    assert kill_each(topic.bootstrap, kills) == dict.fromkeys(roots, True)
    committed = STEPS[STEPS.index("committed") :]
    assert {step: exported_offsets(root) for step, root in roots.items()} == {
        step: first if step in committed else [] for step in roots
    }
    second = topic.produce(make_messages(10))
    for root in roots.values():
        export(topic, root)
    assert {step: exported_offsets(root) for step, root in roots.items()} == dict.fromkeys(roots, first + second)
    for step, root in roots.items():
        assert states(root, topic) == ["ok"], step
        ExportRoot(str(root)).discard_stale(0)
        assert list((root / "_staging").iterdir()) == [], step


# --- What a person sees meanwhile ---


def test_how_far_a_batch_is(tmp_path: Path) -> None:
    writer, job = LocalWriter(), WriteJob("", [Range("t", 0, 0, 2_000_000)], LocalStore(tmp_path), "x", messages=10)
    assert how_far(writer, job) == (None, 10)
    writer.fraction = 0.5
    assert how_far(writer, job) == (5, 10)
    assert how_far(writer, replace(job, messages=None)) == (1_000_000, 2_000_000)
    with patch.object(DirectWriter, "fraction", PropertyMock(side_effect=OSError("the JVM is gone"))):
        assert how_far(DirectWriter(), job) == (None, 10)


def test_steps_are_said_with_their_durations() -> None:
    said: list[str] = []
    times = iter([1.0, 1.5, 4.0, 9.0, 9.25])
    step = timed(said.append, lambda: next(times))
    for name in ("planned", "staged", "written", "planned", "staged"):
        step(name)
    assert said == ["planned", "staged in 0.50 s", "written in 2.50 s", "planned", "staged in 0.25 s"]
