"""Exports that are tables: whole after kills and doubled runs, read by the formats' own libraries, and verified after
the tables' own upkeep. Spark is not started: its tasks' writer is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from klog.errors import Refused, StorageError, UsageError
from klog.export.compact import compact
from klog.export.gc import find_garbage
from klog.export.listing import batch_with, commit_of, list_batches
from klog.export.root import ExportRoot
from klog.export.run import TableChoice
from klog.export.status import status
from klog.export.tables import commits
from klog.export.tables.table import TableBatch
from klog.export.verify import verify
from klog.names import TopicPartition
from tests.spark.conftest import NOW_MS, Message, NewTopic, make_messages
from tests.spark.exporting import export, killed_at, states
from tests.spark.killed_export import Kill, kill_each

pytestmark = pytest.mark.xdist_group("tables")  # whose libraries take seconds to load

FORMATS = ("iceberg", "delta")
ONE = (
    "iceberg",
    pytest.param("delta", marks=pytest.mark.long("test_each_run_is_one_commit_that_readers_see has both")),
)
"""For what klog does alike with either."""
DAY_MS = 86_400_000


def iceberg(root: Path) -> Any:
    from pyiceberg.catalog import load_catalog  # here: a second's import, which other workers need not

    return load_catalog("klog", uri=f"sqlite:///{root}/_klog/catalog.db", type="sql").load_table(f"klog.{root.name}")


def read(root: Path, table: str) -> pa.Table:
    """As the format's own library does."""
    return DeltaTable(root).to_pyarrow_table() if table == "delta" else iceberg(root).scan().to_arrow()


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    return sorted(read(root, table).to_pylist(), key=lambda row: (row["partition"], row["offset"]))


@pytest.mark.parametrize("table", FORMATS)
def test_each_run_is_one_commit_that_readers_see(new_topic: NewTopic, tmp_path: Path, table: str) -> None:
    topic, root = new_topic(2), tmp_path / "clicks"
    old = Message(b"k", None, timestamp_ms=NOW_MS - 2 * DAY_MS)
    first = topic.produce([Message(None, b"v", headers=[("h", b"1"), ("h", None)]), old], 0)
    first += topic.produce(make_messages(100), 1)
    assert [row.messages for row in export(topic, root, table, partition_by="day")] == [2, 100]
    assert export(topic, root) == []
    second = topic.produce(make_messages(50), 0)
    assert [row.messages for row in export(topic, root)] == [50]
    found = rows(root, table)
    assert [row["offset"] for row in found] == [*first[:2], *second, *first[2:]]
    assert (found[0]["key"], bytes(found[0]["value"]), found[1]["value"]) == (None, b"v", None)
    assert [(one["key"], one["value"]) for one in found[0]["headers"]] == [("h", b"1"), ("h", None)]
    assert states(root, topic) == ["ok", "ok"]
    assert [row.lag for row in status(topic.bootstrap, str(root))] == [0, 0]
    assert [row.messages for row in list_batches(str(root))] == [102, 50]
    asked = [(0, first[0]), (1, first[-1]), (0, second[0]), (0, second[-1]), (0, second[-1] + 1), (7, 0)]
    found_in = [batch_with(str(root), TopicPartition(topic.name, one), at) for one, at in asked]
    assert [one and one.batch for one in found_in] == [0, 0, 1, 1, None, None]
    assert find_garbage(str(root), older_than_s=0) == []
    lazy = pl.scan_delta(str(root)) if table == "delta" else pl.scan_iceberg(iceberg(root), reader_override="pyiceberg")
    assert sorted(lazy.collect()["offset"].to_list()) == sorted(first + second)
    if table == "delta":
        last = DeltaTable(root).history(1)[0]
        assert (DeltaTable(root).transaction_version("klog"), last["klog.batch"]) == (1, "1")
        assert commit_of(str(root), 1) == f"version {last['version']}"
        assert DeltaTable(root).metadata().partition_columns == ["dt"]
        assert len(DeltaTable(root).partitions()) == 2
    else:
        snapshots = iceberg(root).metadata.snapshots
        assert [one.summary["klog.batch"] for one in snapshots if one.summary] == ["0", "1"]
        assert commit_of(str(root), 1) == f"snapshot {snapshots[-1].snapshot_id}"
        assert len(iceberg(root).inspect.partitions()) == 2
        day_before = pl.from_epoch([NOW_MS - DAY_MS], time_unit="ms")[0].isoformat()
        assert len(list(iceberg(root).scan(f"timestamp < '{day_before}+00:00'").plan_files())) == 1
    assert commit_of(str(root), 2) is None


@pytest.mark.parametrize("table", FORMATS)
def test_a_receipt_is_what_the_tables_commit_says(new_topic: NewTopic, tmp_path: Path, table: str) -> None:
    topic, root = new_topic(), tmp_path / "t"
    for _ in range(2):
        topic.produce(make_messages(5))
        export(topic, root, table)
    assert states(root, topic) == ["ok"]
    newest = root / "_klog/commits/0000000001.json"
    text = newest.read_text()
    newest.write_text(
        text.replace('"leader_epoch": 0', '"leader_epoch": 7').replace('"leader_epoch":0', '"leader_epoch":7')
    )
    assert newest.read_text() != text
    assert states(root, topic) == ["ok", "broken-chain"], "no later receipt refers to it, and nothing in it is counted"


@pytest.mark.parametrize("table", ONE)
def test_another_run_may_commit_between_two_looks(
    new_topic: NewTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """At the table, and at the root's own commits."""
    topic, root = new_topic(), tmp_path / "t"
    topic.produce(make_messages(5))
    export(topic, root, table)
    commits = ExportRoot(str(root)).table
    assert commits is not None
    look = commits.shown.last_number

    def late() -> int | None:
        found = look()
        topic.produce(make_messages(5))
        export(topic, root)
        return found

    monkeypatch.setattr(commits.shown, "last_number", late)
    commits.settle()
    assert len(rows(root, table)) == 10


@pytest.mark.timeout(300)
def test_a_killed_run_leaves_all_of_a_batch_or_nothing(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    sent = topic.produce(make_messages(100))
    roots = {one: tmp_path / "_".join(one) for one in (("iceberg", "flushed"), ("delta", "committed"))}
    kills = {one: Kill(topic.name, str(root), one[1], TableChoice(one[0])) for one, root in roots.items()}
    assert kill_each(topic.bootstrap, kills) == dict.fromkeys(roots, True)
    assert list(list_batches(str(roots["iceberg", "flushed"]))) == []
    assert len(rows(roots["delta", "committed"], "delta")) == 100
    sent += topic.produce(make_messages(20))
    for (table, step), root in roots.items():
        export(topic, root, table)
        assert [row["offset"] for row in rows(root, table)] == sent, (table, step)
        assert states(root, topic) == ["ok"], (table, step)


@pytest.mark.parametrize("table", ONE)
def test_killed_between_the_tables_commit_and_the_roots(new_topic: NewTopic, tmp_path: Path, table: str) -> None:
    """The table says that it has the batch; the next look at the root writes what was left out, and nothing twice."""
    topic, root = new_topic(), tmp_path / "t"
    sent = topic.produce(make_messages(10))
    export(topic, root, table)
    sent += topic.produce(make_messages(10))
    place = ExportRoot(str(root))
    with killed_at(commits.TableCommits, "record"):
        export(topic, place.store)
    assert len(place.store.names("_klog/commits")) == 1
    assert find_garbage(str(root), older_than_s=0) == []  # its files are the table's
    assert len(place.store.names("_klog/commits")) == 2
    assert [row["offset"] for row in rows(root, table)] == sent
    assert export(topic, root) == []
    assert [row.messages for row in list_batches(str(root))] == [10, 10]
    assert states(root, topic) == ["ok"]
    assert place.store.names(commits.MANIFESTS) == []


@pytest.mark.parametrize("table", FORMATS)
def test_two_runs_that_have_both_looked_commit_a_batch_once(
    new_topic: NewTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """The table's own compare-and-set decides: both runs saw a table without the batch."""
    topic, root = new_topic(), tmp_path / "t"
    sent = topic.produce(make_messages(10))
    export(topic, root, table)
    sent += topic.produce(make_messages(10))
    meanwhile = [lambda: export(topic, root), lambda: upkeep(root, table)]
    tried = between_look_and_commit(monkeypatch, table, meanwhile)
    assert export(topic, root) == []  # the other run has committed it
    assert find_garbage(str(root), older_than_s=0) == []
    assert [row["offset"] for row in rows(root, table)] == sent
    sent += topic.produce(make_messages(10))
    assert [row.messages for row in export(topic, root)] == [10]  # behind what is no batch
    assert [row["offset"] for row in rows(root, table)] == sent
    assert (states(root, topic), len(tried)) == (["ok"], 4)


def between_look_and_commit(
    monkeypatch: pytest.MonkeyPatch, table: str, acts: list[Callable[[], Any]]
) -> list[TableBatch]:
    """Do one of the acts between each outermost run's first look at the table and its commit; all that was tried."""
    from klog.export.tables.delta import Delta
    from klog.export.tables.iceberg import Iceberg

    kind: Any = {"delta": Delta, "iceberg": Iceberg}[table]
    original, tried, inside = kind._commit, [], []

    def racing(self: Any, there: Any, files: Any, schema: Any, batch: TableBatch) -> None:
        is_first = batch not in tried
        tried.append(batch)
        if is_first and acts and not inside:
            inside.append(True)
            acts.pop(0)()
            inside.pop()
        original(self, there, files, schema, batch)

    monkeypatch.setattr(kind, "_commit", racing)
    return tried


def upkeep(root: Path, table: str) -> None:
    """As the table's own tools do it: its rows in one file."""
    if table == "delta":
        DeltaTable(root).optimize.compact()
    else:
        iceberg(root).overwrite(iceberg(root).scan().to_arrow())


@pytest.mark.parametrize("table", ONE)
def test_verify_stays_true_after_the_tables_own_upkeep(new_topic: NewTopic, tmp_path: Path, table: str) -> None:
    topic, root = new_topic(), tmp_path / "t"
    for _ in range(3):
        topic.produce(make_messages(10))
        export(topic, root, table)
    before = rows(root, table)
    if table == "delta":
        DeltaTable(root).optimize.compact()
        removed = DeltaTable(root).vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert len(removed) == 3
    else:
        rewritten = iceberg(root)
        rewritten.overwrite(rewritten.scan().to_arrow())
        kept = rewritten.current_snapshot()
        assert kept is not None
        old = [one.snapshot_id for one in rewritten.metadata.snapshots if one.snapshot_id != kept.snapshot_id]
        rewritten.maintenance.expire_snapshots().by_ids(old).commit()
    assert rows(root, table) == before
    assert states(root, topic) == ["ok"]
    topic.produce(make_messages(5))
    assert [one.messages for one in export(topic, root)] == [5]
    assert len(rows(root, table)) == 35
    assert states(root, topic) == ["ok"]


@pytest.mark.parametrize("table", ONE)
def test_what_others_change_is_found(new_topic: NewTopic, tmp_path: Path, table: str) -> None:
    topic, root = new_topic(), tmp_path / "t"
    sent = topic.produce(make_messages(10))
    export(topic, root, table)
    doubled = pa.Table.from_pylist(rows(root, table)[:1], schema=read(root, table).schema)
    if table == "delta":
        write_deltalake(root, doubled, mode="append")
    else:
        iceberg(root).append(doubled)
    assert states(root, topic) == ["wrong-count"]
    if table == "delta":
        DeltaTable(root).delete(f'"offset" <= {sent[0]}')
    else:
        iceberg(root).delete(f"offset <= {sent[0]}")
    assert states(root, topic) == ["wrong-count"]


@pytest.mark.parametrize("table", FORMATS)
def test_a_value_that_others_changed_is_found(new_topic: NewTopic, tmp_path: Path, table: str) -> None:
    """The receipt of each batch has a checksum of its messages, and `verify` computes it from the table's rows."""
    topic, root = new_topic(2), tmp_path / "t"
    for partition in (0, 1):
        topic.produce([*make_messages(10), Message(None, None), Message(b"", b"")], partition)
    export(topic, root, table)
    upkeep(root, table)
    assert states(root, topic) == ["ok", "ok"]
    found = rows(root, table)
    next(row for row in found if (row["partition"], row["key"]) == (1, b"k3"))["value"] = b"other"
    changed = pa.Table.from_pylist(found, schema=read(root, table).schema)
    if table == "delta":
        write_deltalake(root, changed, mode="overwrite")
    else:
        iceberg(root).overwrite(changed)
    assert states(root, topic) == ["ok", "wrong-checksum"]


@pytest.mark.parametrize("table", ONE)
def test_a_table_that_went_back_is_refused(new_topic: NewTopic, tmp_path: Path, table: str) -> None:
    topic, root = new_topic(), tmp_path / "t"
    topic.produce(make_messages(10))
    export(topic, root, table)
    kept = tmp_path / "kept"
    log = "_delta_log" if table == "delta" else "_klog/catalog.db"
    (shutil.copytree if table == "delta" else shutil.copy)(root / log, kept)
    topic.produce(make_messages(10))
    export(topic, root)
    if table == "delta":
        shutil.rmtree(root / log)
        shutil.copytree(kept, root / log)
    else:
        shutil.copy(kept, root / log)
    with pytest.raises(Refused, match=r"batch 1\b.*batch 0\b"):
        export(topic, root)
    with pytest.raises(Refused):
        verify(topic.bootstrap, str(root))


def test_what_is_refused(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root = new_topic(), tmp_path / "t"
    topic.produce(make_messages(3))
    for options, words in (
        ({"format": "orc"}, "Parquet"),
        ({"table": TableChoice("delta", "a.b")}, "Iceberg"),
        ({"table": TableChoice("iceberg", "clicks")}, "NAMESPACE.NAME"),
    ):
        given = {"table": TableChoice("iceberg"), **options}
        with pytest.raises(UsageError, match=words):
            export(topic, root, **given)
        assert not root.exists()
    export(topic, root, "delta")
    with pytest.raises(Refused, match="iceberg"):
        export(topic, root, "iceberg")
    with pytest.raises(Refused, match="tools"):
        compact(str(root))
    plain = tmp_path / "plain"
    export(topic, plain)
    with pytest.raises(Refused, match="delta"):
        export(topic, plain, "delta")
    (root / "_delta_log/00000000000000000000.json").write_bytes(b"not a log")
    with pytest.raises(StorageError, match="Delta"):
        export(topic, root)
