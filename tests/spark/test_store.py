"""Where exports lie: every store keeps the same promises, above all those that commits stand on."""

from __future__ import annotations

import io
import json
import os
import pickle
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from bench.maven import PeerMissing, hdfs_jars
from klog.errors import Refused, StorageError, UsageError
from klog.export.manifest import Manifest
from klog.export.root import ExportRoot
from klog.export.stores import open_store
from klog.export.stores.local import LocalStore
from klog.export.stores.store import Store
from klog.spark.running import hadoop
from tests.spark.conftest import race
from tests.spark.quick_java import JVM_QUICK_START
from tests.spark.s3_server import BUCKET, S3, settings
from tests.spark.test_export_root import IDENTITY
from tests.spark.test_export_root import manifest as manifest_of
from tests.until import until

pytestmark = pytest.mark.xdist_group("store")  # its tests share servers that take long to start


@pytest.fixture(scope="session")
def server() -> Iterator[S3]:
    server = S3()
    yield server
    server.stop()


@pytest.fixture
def s3(server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    for name, value in settings(server.url).items():
        monkeypatch.setenv(name, value)
    yield server
    server.heeds, server.loses_answers = True, False


@pytest.fixture(params=["local", "s3", "viewfs", "hdfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_as(request.param, request, tmp_path)


def open_as(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of its own for the test."""
    if kind == "local":
        return LocalStore(tmp_path / "root")
    if kind == "s3":
        request.getfixturevalue("s3")
        return open_store(f"s3://{BUCKET}/{tmp_path.name}")
    if kind == "viewfs":
        table = f"klog-{secrets.token_hex(4)}"  # Hadoop keeps file systems by their URLs
        hadoop.use_settings({f"spark.hadoop.fs.viewfs.mounttable.{table}.link./mounted": f"file://{tmp_path}"})
        return hadoop.open_hadoop(f"viewfs://{table}/mounted/root")
    return hadoop.open_hadoop(f"{request.getfixturevalue('hdfs')}/{tmp_path.name}")


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of Hadoop's own small cluster: a name node and a data node in a JVM."""
    if not os.environ.get("KLOG_TEST_HDFS"):
        pytest.skip("56 MB of Hadoop's servers are fetched, and take half a minute: KLOG_TEST_HDFS=1 runs them")
    try:
        jars = hdfs_jars()
    except PeerMissing as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("hdfs")
    details = folder / "details.json"
    class_path = ":".join([*map(str, jars), f"{Path(pyspark.__file__).parent}/jars/*"])
    cluster = ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1", "-nnport", "0"]
    cluster += ["-writeDetails", str(details)]
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                ["java", *JVM_QUICK_START.split(), f"-Dtest.build.data={folder}", "-cp", class_path, *cluster],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        stack.callback(process.kill)
        until(
            lambda: process.poll() is not None or (details.exists() and details.read_text().endswith("}")),
            "the name node answers",
            timeout_s=90,
        )
        assert process.poll() is None, "the name node does not start"
        yield f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"


def test_files_are_kept_listed_and_removed(store: Store) -> None:
    assert store.read("a/b") is None
    assert (store.names(""), store.names("a"), store.walk("")) == ([], [], [])
    store.replace("a/hint", b"1")
    store.replace("a/hint", b"22")
    with store.open_output("a/batch=01/part-0") as file:
        file.write(b"x" * 10)
    with store.open_output("a/batch=01-2/part-1") as file:
        file.write(b"y")
    store.sync("a")
    assert store.read("a/hint") == b"22"
    assert store.names("") == ["a"]
    assert store.names("a") == ["batch=01", "batch=01-2", "hint"]
    sizes = [(file.path, file.bytes) for file in store.walk("a")]
    assert sizes == [("a/batch=01-2/part-1", 1), ("a/batch=01/part-0", 10), ("a/hint", 2)]
    assert [file.path for file in store.walk("a/batch=01")] == ["a/batch=01/part-0"]
    assert abs(store.touched_s("a") - max(file.modified_s for file in store.walk("a"))) < 60
    store.remove("a/batch=01")
    store.remove("a/hint")
    store.remove("a/hint")
    assert store.names("a") == ["batch=01-2"]
    assert pickle.loads(pickle.dumps(store)).read("a/batch=01-2/part-1") == b"y"


def test_a_large_file_is_read_from_anywhere(store: Store) -> None:
    data = bytes(range(256)) * 80_000  # several parts of an upload
    with store.open_output("big") as file:
        for at in range(0, len(data), 3_000_000):
            assert file.tell() == at
            file.write(data[at : at + 3_000_000])
    with store.open_input("big") as file:
        assert file.seek(-5, io.SEEK_END) == len(data) - 5
        assert file.read() == data[-5:]
        file.seek(4_999_999)
        assert file.read(1_000_003) == data[4_999_999:6_000_002]
    table = pa.table({"n": list(range(100_000)), "text": ["some text"] * 100_000})
    with store.open_output("t.parquet") as file:
        pq.write_table(table, file)
    with store.open_input("t.parquet") as file:
        assert pq.read_table(file).equals(table)


@pytest.mark.parametrize("kind", ["local", "s3", "hdfs"])
def test_of_many_creations_exactly_one_wins_and_nothing_is_replaced(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = open_as(kind, request, tmp_path)
    assert store.create("c/first", b"one")
    assert not store.create("c/first", b"two")
    assert store.read("c/first") == b"one"
    for round_ in range(8):
        won: list[bytes] = []
        path = f"c/{round_}"

        def attempt(data: bytes, path: str = path, won: list[bytes] = won) -> None:
            if store.create(path, data):
                won.append(data)

        race(attempt, b"0", b"1")
        assert [store.read(path)] == won
    assert sorted(store.names("c")) == sorted(["first", *map(str, range(8))])  # and no probe, no temporary file


def test_hadoop_is_found_from_spark_s_own_python_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which have pyspark from a zip, above which its jars lie."""
    home = Path(pyspark.__file__).parent
    monkeypatch.setattr(pyspark, "__file__", str(home / "python/lib/pyspark.zip/pyspark/__init__.py"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert hadoop._py4j().parent == home / "jars"


def test_of_many_renames_of_a_folder_in_hdfs_exactly_one_wins(hdfs: str, tmp_path: Path) -> None:
    store = hadoop.open_hadoop(f"{hdfs}/{tmp_path.name}")
    won = []
    for round_ in range(20):
        for run in ("a", "b"):
            store.replace(f"_staging/{round_}-{run}/part-0", run.encode())

        def attempt(run: str, round_: int = round_) -> None:
            if store.rename(f"_staging/{round_}-{run}", f"data/batch={round_}"):
                won.append((round_, run))

        race(attempt, "a", "b")
    assert [round_ for round_, _ in won] == list(range(20))
    assert [(round_, store.read(f"data/batch={round_}/part-0")) for round_, _ in won] == [
        (round_, run.encode()) for round_, run in won
    ]
    assert [file.path for file in store.walk("data/batch=0")] == ["data/batch=0/part-0"]  # nothing was merged into it
    assert len(store.names("_staging")) == 20


def test_a_hadoop_file_system_that_promises_no_rename_is_refused_with_words(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="two runs") as refused:
        hadoop.open_hadoop("wasb://c@a/x")
    assert "--unsafe-single-writer" in str(refused.value.hint)
    promised = hadoop.HadoopStore(f"file://{tmp_path}/root", {}, False)  # of any file system of Hadoop's
    root = ExportRoot(promised)
    assert root.create(IDENTITY).commit == "manifest"
    for run in (root.stage(0), root.stage(0)):
        root.flush(run, manifest(0, run.run, None))
        assert root.commit(run) == (root.manifest(0)[0].run == run.run)
    promised.replace("_klog/hint", b"1")
    assert root.batches() == [0]
    with pytest.raises(UsageError, match="abfs") as missing:
        hadoop.open_hadoop("abfs://c@a.dfs.core.windows.net/x")
    assert "hadoop-azure" in str(missing.value.hint)


def test_a_creation_whose_answer_was_lost_is_ours(s3: S3, tmp_path: Path) -> None:
    store = open_store(f"s3a://{BUCKET}/{tmp_path.name}")
    assert store.create("warm", b"")
    s3.loses_answers = True
    assert store.create("mine", b"of this run")
    assert not s3.loses_answers
    assert not store.create("mine", b"of another run")


def manifest(batch: int, run: str, previous: str | None) -> Manifest:
    return replace(manifest_of(batch, previous, batch * 10, batch * 10 + 10), run=run)


def test_batches_are_committed_by_their_manifests(s3: S3, tmp_path: Path) -> None:
    root = ExportRoot(f"s3://{BUCKET}/{tmp_path.name}")
    assert root.identity() is None
    assert root.create(IDENTITY).commit == "manifest"
    one, other = root.stage(0), root.stage(0)
    for staged in (one, other):
        root.store.replace(f"{staged.folder}/part-0.parquet", b"data")
    digest = root.flush(one, manifest(0, one.run, None))
    root.flush(other, manifest(0, other.run, None))
    assert root.batches() == []  # written where it stays, and still nobody's
    assert root.last() is None
    assert root.commit(one)
    assert not root.commit(other)
    again = ExportRoot(f"s3://{BUCKET}/{tmp_path.name}")
    assert again.batches() == [0]
    assert again.batch_folder(again.manifest(0)[0]) == one.folder
    last = again.last()
    assert last is not None
    assert (last[0].run, last[1]) == (one.run, digest)
    assert again.uncommitted() == [other.folder]
    assert again.discard_stale() == []
    assert again.discard_stale(-60) == [other.folder]
    assert again.store.walk(one.folder)
    assert again.uncommitted() == []
    removed = again.stage(1)
    again.flush(removed, manifest(1, removed.run, digest))
    again.store.remove(removed.folder)
    with pytest.raises(StorageError, match="removed"):
        again.commit(removed)
    assert again.batches() == [0]


def test_a_store_that_heeds_no_condition_is_refused_unless_its_one_writer_is_promised(s3: S3, tmp_path: Path) -> None:
    s3.heeds = False
    url = f"s3://{BUCKET}/{tmp_path.name}"
    with pytest.raises(Refused, match="two runs") as refused:
        ExportRoot(url).create(IDENTITY)
    assert "--unsafe-single-writer" in str(refused.value.hint)
    assert open_store(url).walk("") == []
    promised = open_store(url, unsafe_single_writer=True)
    assert ExportRoot(promised).create(IDENTITY).topic_ids == {"t": "id"}
    assert not promised.create("_klog/export.json", b"other")
    with pytest.raises(Refused, match="two runs"):
        open_store(url).create("_klog/commits/0000000000.json", b"{}")


def test_an_export_that_was_copied_to_where_it_cannot_go_on_is_read_and_not_written(s3: S3, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/{tmp_path.name}"
    root = ExportRoot(url)
    root.store.create("_klog/export.json", IDENTITY.to_json())  # made on a file system, by renames
    root.store.replace("data/batch=0000000000/_klog-run", b"\n")
    root.store.replace("batches/0000000000-run/_manifest.json", manifest(0, "run", None).to_json())
    assert root.batches() == [0]
    with pytest.raises(Refused, match="renaming"):
        root.stage(1)


def test_what_is_wrong_with_a_store_is_said(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="bucket"):
        open_store("s3://nowhere-to-be-found/x").create("a", b"")
    with pytest.raises(StorageError, match="not there"):
        open_store(f"s3://{BUCKET}/x").open_input("missing")
    with pytest.raises(UsageError, match="ftp:"):
        open_store("ftp://host/x")
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(UsageError, match="obstore") as missing:
        open_store(f"s3://{BUCKET}/x")
    assert "klog[object-stores]" in str(missing.value.hint)
