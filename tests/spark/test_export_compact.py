"""Batches merged into fewer files: every message once, the chain kept, one step whatever happens.

Killed at each step the export is whole; runs and other compactions at the same time lose nothing.
"""

from __future__ import annotations

import gzip
import shutil
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from klog.errors import CorruptLog, NoSuchThing, Refused, UsageError
from klog.export import compact as compaction
from klog.export import history
from klog.export.compact import STEPS, CompactedBatches, compact, parse_batches
from klog.export.gc import collect, find_garbage
from klog.export.manifest import WINDOW_MS
from klog.export.root import ExportRoot
from klog.tools.audit.tiers import read_export
from tests.spark.conftest import NOW_MS, NewTopic, exported_offsets, exported_rows, make_messages, race
from tests.spark.exporting import export as one_run
from tests.spark.exporting import states, when
from tests.spark.handmade import HandmadeExport
from tests.spark.killed_export import kill_at_each


def exported(root: Path, batches: int, messages: int = 5) -> tuple[HandmadeExport, list[dict[str, Any]]]:
    """An export with so many batches, and every row there is then."""
    export = HandmadeExport(root)
    export.commits(batches, messages)
    return export, exported_rows(root)


def folders(root: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("batch=")) for path in (root / "data").iterdir())


def test_batches_become_one_folder_and_nothing_else_changes(tmp_path: Path) -> None:
    export, rows = exported(tmp_path, 5)
    (row,) = compact(str(tmp_path))
    assert row == CompactedBatches(0, 4, 50, 5, row.bytes_before, 1, row.bytes)
    assert folders(tmp_path) == [4]
    assert exported_rows(tmp_path) == rows
    assert set(states(tmp_path)) == {"ok"}
    place = ExportRoot(str(tmp_path))
    (merged,) = [manifest for manifest, _ in place.chain()]
    assert [one.batch for one in history.originals(place, merged)] == [0, 1, 2, 3, 4]
    export.commit(7)  # the chain goes on behind it
    assert folders(tmp_path) == [4, 5]
    assert set(states(tmp_path)) == {"ok"}
    assert compact(str(tmp_path), batches=(0, 5))[0].messages == 64  # what was merged is merged again
    assert folders(tmp_path) == [5]
    assert set(states(tmp_path)) == {"ok"}
    assert compact(str(tmp_path)) == []


def test_neighbours_are_merged_until_they_are_large_enough(tmp_path: Path) -> None:
    _, rows = exported(tmp_path, 6)
    size = max(sum(file.bytes for file in one.files) for one, _ in ExportRoot(str(tmp_path)).chain())
    would = compact(str(tmp_path), below_bytes=size + 1, dry_run=True)
    assert folders(tmp_path) == [0, 1, 2, 3, 4, 5]
    assert [(one.from_, one.to, one.files) for one in would] == [(0, 1, None), (2, 3, None), (4, 5, None)]
    assert len(compact(str(tmp_path), below_bytes=size + 1)) == 3
    assert folders(tmp_path) == [1, 3, 5]
    assert compact(str(tmp_path), below_bytes=1) == []
    assert exported_rows(tmp_path) == rows
    assert set(states(tmp_path)) == {"ok"}


def test_named_batches_must_be_there_and_whole(tmp_path: Path) -> None:
    _, rows = exported(tmp_path, 4)
    assert [(one.from_, one.to) for one in compact(str(tmp_path), batches=(1, 2))] == [(1, 2)]
    with pytest.raises(UsageError, match="1 to 2"):
        compact(str(tmp_path), batches=(2, 3))
    with pytest.raises(NoSuchThing, match="3 to 9"):
        compact(str(tmp_path), batches=(3, 9))
    assert parse_batches("3-9") == (3, 9)
    assert parse_batches("3") == (3, 3)
    for words in ("", "a", "9-3", "1-", "-1"):
        with pytest.raises(UsageError):
            parse_batches(words)
    assert exported_rows(tmp_path) == rows


def test_files_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "FILE_BYTES", 1)
    _, rows = exported(tmp_path, 3)
    (row,) = compact(str(tmp_path))
    assert (row.files_before, row.files) == (3, 3)
    assert exported_rows(tmp_path) == rows
    assert set(states(tmp_path)) == {"ok"}


def test_a_file_that_cannot_be_read_stops_it(tmp_path: Path) -> None:
    exported(tmp_path, 2)
    path = next(tmp_path.glob("data/batch=0000000001/*.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptLog, match=r"batch=0000000001/part"):
        compact(str(tmp_path))
    assert folders(tmp_path) == [0, 1]
    assert list((tmp_path / "_staging").iterdir()) == []


def test_a_history_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(bytes(1_000_000)) * 100
    monkeypatch.setattr(history, "UNPACKED_BYTES_MAX", 5_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match="5000000"):
            history.unpack(bomb, "x")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    texts = [b"{}" * 100] * 10
    assert history.unpack(history.pack(texts), "x") == texts
    with pytest.raises(Refused, match="5000000"):
        history.pack([b"x" * 1_000_000] * 6)


def test_a_changed_history_is_found(tmp_path: Path) -> None:
    exported(tmp_path, 3)
    compact(str(tmp_path))
    folder = (tmp_path / ExportRoot(str(tmp_path)).manifest_path(2)).parent
    path = folder / history.HISTORY
    texts = history.unpack(path.read_bytes(), "x")
    for spoiled in (texts[:-1], [texts[0].replace(b'"messages": 5', b'"messages": 6'), *texts[1:]], [b"{}"] * 3):
        path.write_bytes(history.pack(spoiled))
        assert "broken-chain" in states(tmp_path)
    path.write_bytes(b"rubbish")
    assert "broken-chain" in states(tmp_path)
    path.write_bytes(history.pack(texts))
    assert set(states(tmp_path)) == {"ok"}
    path = folder / "_manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"messages": 15', b'"messages": 14'))
    assert "broken-chain" in states(tmp_path)


def test_a_missing_batch_before_merged_ones_is_found(tmp_path: Path) -> None:
    exported(tmp_path, 4)
    compact(str(tmp_path), batches=(2, 3))
    shutil.rmtree(tmp_path / "data" / "batch=0000000001")
    assert {"gap", "missing-batch"} <= set(states(tmp_path))
    with pytest.raises(Refused, match="batch 1 "):
        compact(str(tmp_path))


def test_runs_and_compactions_at_once(tmp_path: Path) -> None:
    export, _ = exported(tmp_path, 4)
    gate = threading.Barrier(3)
    errors: list[Exception] = []

    def commit(wait: Callable[[str], None]) -> None:
        wait("flushed")
        export.commits(3)

    def caught(act: Callable[[Callable[[str], None]], object]) -> None:
        try:
            act(when("flushed", lambda: gate.wait(20)))
        except Exception as error:
            errors.append(error)

    race(
        caught,
        lambda wait: compact(str(tmp_path), on_step=wait),
        lambda wait: compact(str(tmp_path), batches=(0, 1), on_step=wait),
        commit,
    )
    assert [type(error) for error in errors] == [Refused], errors
    assert " 0 to " in str(errors[0])
    assert folders(tmp_path)[-1] == 6
    assert len(exported_rows(tmp_path)) == 70
    assert len({(row["partition"], row["offset"]) for row in exported_rows(tmp_path)}) == 70
    assert set(states(tmp_path)) == {"ok"}


def test_a_reader_that_lists_sees_each_message_once_or_fails(tmp_path: Path) -> None:
    """Listing and opening over and over while batches are merged: all messages, or a file that is gone."""
    rows = [(row["partition"], row["offset"]) for row in exported(tmp_path, 12, 2)[1]]
    stop, seen, bad = threading.Event(), 0, []

    def read() -> None:
        nonlocal seen
        while not stop.is_set():
            try:
                found = [(row["partition"], row["offset"]) for row in exported_rows(tmp_path)]
            except OSError:
                continue
            seen += 1
            if found != rows:
                bad.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for first in range(0, 12, 3):
            compact(str(tmp_path), batches=(first, first + 2))
        compact(str(tmp_path))
    finally:
        stop.set()
        reader.join()
    assert bad == []
    assert folders(tmp_path) == [11]


def test_killed_at_any_step_an_export_is_what_it_was_or_compacted(tmp_path: Path) -> None:
    _, rows = exported(tmp_path / "root", 3)
    roots = {step: tmp_path / step for step in ("flushed", "linked", "replaced")}
    for root in roots.values():
        shutil.copytree(tmp_path / "root", root)
    assert kill_at_each(roots, "compact") == dict.fromkeys(roots, True)
    for step, root in roots.items():
        replaced = STEPS.index(step) >= STEPS.index("replaced")
        assert folders(root) == ([2] if replaced else [0, 1, 2])
        assert exported_rows(root) == rows
        assert set(states(root)) == {"ok"}
        ExportRoot(str(root)).discard_stale(0)
        assert list((root / "_staging").iterdir()) == []
        compact(str(root))
        assert folders(root) == [2]
        assert exported_rows(root) == rows
        assert set(states(root)) == {"ok"}


def test_the_audit_counts_merged_batches_as_before(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path, "a", "b")
    for number in range(4):
        export.commit(3, at_ms=NOW_MS + number * WINDOW_MS)
    before = read_export(str(tmp_path), 2 * WINDOW_MS)
    assert sum(before.counts.values()) == 48
    compact(str(tmp_path), batches=(1, 3))
    assert read_export(str(tmp_path), 2 * WINDOW_MS) == before


def listed(export: HandmadeExport) -> list[tuple[int, int]]:
    """(partition, offset) of what a reader sees that goes by the manifests."""
    place = ExportRoot(export.store)
    rows = []
    for batch in place.batches():
        manifest, _ = place.manifest(batch)
        for file in manifest.files:
            path = export.path / place.batch_folder(manifest) / file.path
            rows += pq.read_table(path, columns=["partition", "offset"], partitioning=None).to_pylist()
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_where_commits_are_manifests_a_merge_is_one_more(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path, by_manifest=True)
    export.commits(6)
    rows = listed(export)
    early = ExportRoot(export.store)
    numbers = early.batches()
    assert [(row.from_, row.to) for row in compact(export.store, batches=(1, 2))] == [(1, 2)]
    # Who has listed before goes on with what was listed, and its files are there.
    assert [early.manifest(batch)[0].first_batch for batch in numbers] == numbers
    assert [ExportRoot(export.store).batches(), listed(export)] == [[0, 2, 3, 4, 5], rows]
    assert states(export.store) == ["ok", "ok"]
    (row,) = compact(export.store)  # what was merged is merged again
    assert (row.from_, row.to, row.messages) == (0, 5, 60)
    export.commit()
    assert ExportRoot(export.store).batches() == [5, 6]
    assert states(export.store) == ["ok", "ok"]
    rows = listed(export)
    found = find_garbage(export.store, older_than_s=0)
    assert [row.what for row in found] == ["replaced"] * 7  # six batches, and the first merge
    assert find_garbage(export.store, older_than_s=60) == []
    assert export.place.discard_stale(0) == []  # no run takes them for its own dead
    assert len(collect(export.store, found)) == 7
    assert listed(export) == rows
    assert find_garbage(export.store, older_than_s=0) == []
    assert states(export.store) == ["ok", "ok"]


def test_where_commits_are_manifests_two_merges_at_once(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path, by_manifest=True)
    export.commits(6)
    rows = listed(export)
    meanwhile = when("flushed", lambda: compact(export.store, batches=(0, 2)))
    assert [(row.from_, row.to) for row in compact(export.store, batches=(3, 5), on_step=meanwhile)] == [(3, 5)]
    assert ExportRoot(export.store).batches() == [2, 5]
    with pytest.raises(Refused, match=" 0 to 5 "):
        compact(export.store, on_step=when("flushed", lambda: compact(export.store)))
    assert ExportRoot(export.store).batches() == [5]
    assert listed(export) == rows
    assert states(export.store) == ["ok", "ok"]
    assert {row.what for row in find_garbage(export.store, older_than_s=0)} == {"replaced"}


def test_a_run_goes_on_behind_merged_batches_and_brokers_agree(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(2)
    produced = []
    for number in range(3):
        produced += topic.produce(make_messages(5, number), 0)
        assert one_run(topic, tmp_path)
    compact(str(tmp_path))
    produced += topic.produce(make_messages(5), 0)
    assert one_run(topic, tmp_path)
    assert folders(tmp_path) == [2, 3]
    assert exported_offsets(tmp_path) == produced
    assert set(states(tmp_path, topic)) == {"ok"}
