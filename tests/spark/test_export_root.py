"""The folder of an export: whose it is, its chain, its one commit, and what of it outlives a power cut."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from klog import __version__
from klog.errors import NoSuchThing, Refused, UsageError
from klog.export import stores
from klog.export.manifest import ExportedFile, ExportedPartition, ExportIdentity, Gap, Manifest
from klog.export.root import ExportRoot, Staged
from klog.export.stores.local import LocalStore
from klog.names import TopicPartition
from klog.storage.filesystem import OsFileSystem, OsLogFile
from tests.rows import each
from tests.spark.conftest import race
from tests.spark.refusals import not_refused

PARTITION = TopicPartition("t", 0)
IDENTITY = ExportIdentity("cluster", "parquet", {"t": "id"}, {PARTITION: 0}, "2026-01-01T00:00:00.000Z", "0.1.0")


def manifest(batch: int, previous: str | None, start: int = 0, end: int = 10) -> Manifest:
    return Manifest(
        batch=batch,
        run="run",
        previous_sha256=previous,
        format="parquet",
        cluster_id="cluster",
        topic_ids={"t": "id"},
        partitions={PARTITION: ExportedPartition(start, end, 3, 3, start, end - 1, 5, 6, 2)},
        gaps=(Gap("t", 0, 1, 2, "why"),),
        windows={("t", 0): 3},
        files=(ExportedFile("part-0.parquet", 4, 3),),
        klog="0.1.0",
        engine="none",
        started_at="a",
        committed_at="b",
    )


def batch_path(root: ExportRoot, batch: int) -> Path:
    return Path(root.store.location(root.batch_folder(root.manifest(batch)[0])))


def manifest_file(root: ExportRoot, batch: int) -> Path:
    return Path(root.store.location(root.manifest_path(batch)))


def commit(root: ExportRoot, batch: int, previous: str | None, start: int = 0, end: int = 10) -> str:
    staged = root.stage(batch)
    Path(root.store.location(staged.folder), "part-0.parquet").write_text("data")
    digest = root.flush(staged, manifest(batch, previous, start, end))
    assert root.commit(staged)
    return digest


def test_identity_and_manifest_read_back_as_written(tmp_path: Path) -> None:
    assert ExportIdentity.from_json(IDENTITY.to_json(), "x") == IDENTITY
    assert json.loads(IDENTITY.to_json())["plain"] is True, "klog 0.2 takes it for another layout"
    one = manifest(4, "abc")
    assert Manifest.from_json(one.to_json(), "x") == one
    first = manifest(0, None)
    assert Manifest.from_json(first.to_json(), "x") == first


def test_what_is_no_manifest_is_refused() -> None:
    texts = ("", "[]", "{}", '{"layout": 2}', '{"layout": 1, "batch": 0}', "\0")
    for kind in (Manifest, ExportIdentity):
        cases = ((text, "the-path") for text in texts)
        assert not_refused(cases, lambda text, kind=kind: kind.from_json(text.encode(), "the-path"), Refused) == []


@each(("layout", "words"), [(1, r"another folder"), (9, r"newer")])
def test_another_layout_names_both_versions_and_the_way_on(layout: int, words: str) -> None:
    written = json.loads(IDENTITY.to_json()) | {"layout": layout, "commit": "rename", "klog": "7.6.5"}
    with pytest.raises(Refused, match=rf"layout is {layout}, of klog 7\.6\.5.*{re.escape(__version__)}.*{words}"):
        ExportIdentity.from_json(json.dumps(written).encode(), "export.json")


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    texts = ("file.txt", "data/batch=0000000000/part.parquet", "_klog", "_klog/other.json", "_staging/x/y")
    for number, foreign in enumerate(texts):
        root = tmp_path / str(number)
        path = root / foreign
        path.parent.mkdir(parents=True)
        path.write_text("mine")
        named = foreign if foreign.startswith("_klog") else foreign.partition("/")[0]
        with pytest.raises(Refused, match=rf"{re.escape(str(root))} .*{re.escape(named)}\b"):
            ExportRoot(str(root)).identity()
        assert path.read_text() == "mine"


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("x")
    with pytest.raises(Refused, match=re.escape(f"{tmp_path}/root")):
        ExportRoot(str(tmp_path / "root")).identity()


def test_an_empty_folder_and_a_first_run_cut_off_are_taken(tmp_path: Path) -> None:
    assert ExportRoot(str(tmp_path)).identity() is None
    (tmp_path / "_klog").mkdir()
    (tmp_path / "_klog" / ".1234").write_text('{"lay')
    assert ExportRoot(str(tmp_path)).identity() is None
    assert ExportRoot(str(tmp_path)).create(IDENTITY) == IDENTITY
    with pytest.raises(NoSuchThing):
        ExportRoot(str(tmp_path / "elsewhere")).existing_identity()


def test_other_stores_are_refused_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_OPENERS", {})  # what a process knows depends on what it has loaded
    roots = ("hdfs://n/x", "ftp://n/x", "FTP://n/x", "abfs:x", "")
    assert not_refused(((root, "") for root in roots), ExportRoot, UsageError) == []


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    assert str(ExportRoot(f"file://{tmp_path}/a")) == f"{tmp_path}/a"
    assert str(ExportRoot(f"file:{tmp_path}/a")) == f"{tmp_path}/a"


def test_who_comes_second_gets_the_first_ones_identity(tmp_path: Path) -> None:
    root = ExportRoot(str(tmp_path / "root"))
    assert root.create(IDENTITY) == IDENTITY
    assert root.create(replace(IDENTITY, cluster_id="other")) == IDENTITY


def test_a_root_that_another_run_begins_between_two_looks_is_an_export(tmp_path: Path) -> None:
    class Late(LocalStore):
        def names(self, folder: str) -> list[str]:
            ExportRoot(str(tmp_path)).create(IDENTITY)
            return super().names(folder)

    assert ExportRoot(Late(tmp_path)).identity() is not None


def test_of_many_commits_of_one_batch_exactly_one_wins(tmp_path: Path) -> None:
    root = ExportRoot(str(tmp_path / "root"))
    root.create(IDENTITY)
    for batch in range(15):
        runs = [root.stage(batch) for _ in range(2)]
        for staged in runs:
            (tmp_path / "root" / staged.folder / "mine").write_text(staged.run)
            root.flush(staged, manifest(batch, None))
        won: list[str] = []

        def attempt(staged: Staged, won: list[str] = won) -> None:
            if root.commit(staged):
                won.append(staged.run)

        race(attempt, *runs)
        assert len(won) == 1
        assert (batch_path(root, batch) / "mine").read_text() == won[0]


def test_the_chain_is_followed_and_a_checkpoint_spares_reading_it_again(tmp_path: Path) -> None:
    root = ExportRoot(str(tmp_path))
    root.create(IDENTITY)
    assert root.last() is None
    first = commit(root, 0, None, 0, 10)
    second = commit(root, 1, first, 10, 20)
    last = root.last()
    assert last is not None
    assert (last[0].batch, last[1]) == (1, second)
    root.checkpoint(1, second)
    manifest_file(root, 0).write_text("rubbish")
    third = commit(root, 2, second, 20, 30)
    last = root.last()
    assert last is not None
    assert last[1] == third
    root.checkpoint(2, "wrong")  # a hint that does not hold is not believed
    with pytest.raises(Refused):
        root.last()


def test_a_changed_manifest_breaks_the_chain(tmp_path: Path) -> None:
    root = ExportRoot(str(tmp_path))
    root.create(IDENTITY)
    digest = commit(root, 0, None, 0, 10)
    commit(root, 1, digest, 10, 20)
    path = manifest_file(root, 0)
    path.write_bytes(path.read_bytes().replace(b'"messages": 3', b'"messages": 4'))
    with pytest.raises(Refused, match=digest):
        root.last()


def test_a_missing_batch_is_refused(tmp_path: Path) -> None:
    root = ExportRoot(str(tmp_path))
    root.create(IDENTITY)
    commit(root, 1, None)
    with pytest.raises(Refused, match="batch 0 "):
        root.last()


def test_a_batch_that_begins_before_the_end_of_the_one_before_is_refused(tmp_path: Path) -> None:
    root = ExportRoot(str(tmp_path))
    root.create(IDENTITY)
    commit(root, 1, commit(root, 0, None, 0, 10), 9, 20)
    with pytest.raises(Refused, match=r"t-0 .*\b9\b"):
        root.last()


def test_only_staging_that_nobody_touches_is_removed(tmp_path: Path) -> None:
    root = ExportRoot(str(tmp_path))
    root.create(IDENTITY)
    old, busy = root.stage(0), root.stage(0)
    old_path, busy_path = (Path(root.store.location(one.folder)) for one in (old, busy))
    for path in (old_path, busy_path):
        os.utime(path, (1, 1))
    (busy_path / "part-1").write_text("written a moment ago")
    assert root.discard_stale() == [old.folder]
    assert not old_path.exists()
    assert (busy_path / "part-1").exists()
    root.discard(busy)
    assert not busy_path.exists()


class RecordingFileSystem(OsFileSystem):
    """The real one, that notes what was made durable, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.acts: list[tuple[str, str]] = []

    def open(self, path: str, *, create: bool = False) -> OsLogFile:
        acts = self.acts

        class Recorded(OsLogFile):
            def sync(self) -> None:
                acts.append(("sync", self.path))
                super().sync()

        return Recorded(path, os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0), 0o644))

    def sync_folder(self, path: str) -> None:
        self.acts.append(("sync", path))
        super().sync_folder(path)

    def rename(self, source: str, target: str) -> None:
        self.acts.append(("rename", source))
        super().rename(source, target)


def test_everything_is_on_the_disk_before_the_commit_and_the_commit_after_it(tmp_path: Path) -> None:
    files = RecordingFileSystem()
    root = ExportRoot(LocalStore(tmp_path, files))
    root.create(IDENTITY)
    staged = root.stage(0)
    folder = Path(root.store.location(staged.folder))
    (folder / "part-0.parquet").write_text("data")
    (folder / "dt=1").mkdir()
    (folder / "dt=1" / "part-1.parquet").write_text("data")
    below = sorted(str(path) for path in [folder, *folder.rglob("*")])
    root.flush(staged, manifest(0, None))
    assert root.commit(staged)
    at = files.acts.index(("rename", str(folder)))
    flushed = {path for act, path in files.acts[:at] if act == "sync"}
    beside = str(manifest_file(root, 0).parent)
    assert flushed >= {*below, str(folder / f"_klog-{staged.run}"), beside, f"{beside}/_manifest.json"}
    assert str(tmp_path / "_klog") in flushed
    assert ("sync", str(tmp_path / "data")) in files.acts[at:]
    assert json.loads(manifest_file(root, 0).read_bytes())["batch"] == 0
