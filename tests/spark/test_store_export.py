"""Whole exports in other stores than folders: where a manifest commits, and one of Hadoop's file systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klog.errors import NoSuchThing, StorageError
from klog.export.root import ExportRoot
from klog.export.stores import open_store
from klog.export.verify import verify
from klog.spark import read_export
from klog.spark.export import run_export
from klog.spark.running import hadoop
from klog.spark.running.session import SparkTarget
from tests.spark.conftest import NewTopic, make_messages
from tests.spark.exporting import export
from tests.spark.handmade import LocalByManifest
from tests.spark.test_store import hdfs

__all__ = ["hdfs"]

pytestmark = pytest.mark.xdist_group("store")  # whose servers test_store.py has started


class LostAnswer(LocalByManifest):
    """A commit that was done and says that it was not."""

    def create(self, path: str, data: bytes, *, private: bool = False) -> bool:
        made = super().create(path, data)
        if path.startswith("_klog/commits/"):
            raise StorageError("the connection broke")
        return made


def test_what_may_have_been_committed_is_not_taken_away(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(1)
    produced = topic.produce(make_messages(20))
    with pytest.raises(StorageError, match="broke"):
        export(topic, LostAnswer(tmp_path))
    assert export(topic, LocalByManifest(tmp_path)) == []
    (check,) = verify(topic.bootstrap, str(tmp_path))
    assert (check.state, check.messages) == ("ok", len(produced))


@pytest.mark.spark
def test_only_what_is_committed_is_read(spark: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, store = new_topic(1), LocalByManifest(tmp_path)
    with pytest.raises(NoSuchThing):
        read_export(spark, store)
    produced = topic.produce(make_messages(30))
    export(topic, store)
    produced += topic.produce(make_messages(5))
    export(topic, store)
    root = ExportRoot(store)
    assert not root.by_rename
    never = root.stage(2).folder
    first, second = (root.batch_folder(root.manifest(batch)[0]) for batch in (0, 1))
    for folder in (never, second):  # of a run that was killed; of a task that failed
        for name in ("part-never", "part-00000-lost"):
            (file,) = (file for file in store.walk(first) if file.path.endswith(".parquet"))
            with store.open_input(file.path) as source, store.open_output(f"{folder}/{name}.parquet") as target:
                target.write(source.read())
    frame = read_export(spark, store)
    assert [row.offset for row in frame.orderBy("offset").collect()] == produced
    assert {(row.batch, row["count"]) for row in frame.groupBy("batch").count().collect()} == {(0, 30), (1, 5)}


@pytest.mark.spark
@pytest.mark.parametrize("kind", [pytest.param("viewfs", marks=pytest.mark.long("hdfs is another such store")), "hdfs"])
def test_where_tasks_cannot_write_spark_does(
    spark: Any, new_topic: NewTopic, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    topic = new_topic(2)
    produced = topic.produce(make_messages(40), 0) + topic.produce(make_messages(9), 1)
    where = SparkTarget(settings={"spark.hadoop.fs.viewfs.mounttable.klog.link./exports": f"file://{tmp_path}"})
    url = "viewfs://klog/exports/root" if kind == "viewfs" else f"{request.getfixturevalue('hdfs')}/{tmp_path.name}"
    rows = run_export(topic.bootstrap, [topic.name], url, where=where, format="orc")
    assert sum(row.messages or 0 for row in rows) == len(produced)
    assert isinstance(open_store(url), hadoop.HadoopStore)
    assert {check.state for check in verify(topic.bootstrap, url)} == {"ok"}
    store = open_store(url)
    names = store.names("data/batch=0000000000")
    assert {name.partition("-")[0] for name in names} == {"part", "_klog"}
    assert store.names("_staging") == []
    frame = read_export(spark, str(tmp_path / "root") if kind == "viewfs" else url)
    assert sorted(row.offset for row in frame.collect()) == sorted(produced)
