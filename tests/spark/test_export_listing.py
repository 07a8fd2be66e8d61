"""`klog export list` and `compact` on the command line: rows of the manifests, without brokers."""

from __future__ import annotations

from pathlib import Path

from klog.export.compact import compact
from klog.export.listing import batch_of
from klog.export.rows import ExportedRange
from tests.cli.runner import klog
from tests.spark.handmade import HandmadeExport


def test_a_row_a_batch_and_merged_ones_are_one(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path, "a", "b")
    export.commits(3)
    export.commit(2, gap=30)
    rows = klog("export", "list", tmp_path, "-o", "json").rows
    assert [(row["batch"], row["batches"], row["messages"], row["files"]) for row in rows] == [
        *((number, 1, 20, 2) for number in range(3)),
        (3, 1, 8, 2),
    ]
    assert rows[3]["gaps"] == ["a-0:150-180"]
    assert rows[1]["from"] == ["a-0:50", "a-1:50", "b-0:50", "b-1:50"]
    assert rows[3]["to"] == ["a-0:200", "a-1:170", "b-0:170", "b-1:170"]
    assert all(row["committed_at"].endswith("Z") and row["run"] and row["engine"] == "by hand" for row in rows)
    done = klog("export", "compact", tmp_path, "--batches", "1-3", "-o", "json")
    assert [(row["from"], row["to"], row["files_before"], row["files"]) for row in done.rows] == [(1, 3, 6, 1)]
    after = klog("export", "list", tmp_path, "-o", "json").rows
    assert [(row["batch"], row["batches"], row["messages"]) for row in after] == [(0, 1, 20), (3, 3, 48)]
    assert after[1]["gaps"] == ["a-0:150-180"]
    parts = klog("export", "list", tmp_path, "--parts", "-o", "json").rows
    assert parts == rows


def test_what_a_run_has_committed_is_shown_whatever_others_do_meanwhile(tmp_path: Path) -> None:
    """`run --follow` shows its own batch, also where others commit, or merge batches, before it does."""
    export = HandmadeExport(tmp_path)
    export.commits(3)
    export.commit(7)
    own = ExportedRange("t", 1, 50, 100, 5, 1, 1)
    expected = (1, 1, 10, ("t-0:50", "t-1:50"))
    for _ in range(2):
        found = batch_of(str(tmp_path), [own])
        assert found is not None
        assert (found.batch, found.batches, found.messages, found.from_) == expected
        compact(str(tmp_path), batches=(0, 2))
    assert batch_of(str(tmp_path), [ExportedRange("t", 1, 51, 100, 5, 1, 1)]) is None


def test_words_for_what_cannot_be(tmp_path: Path) -> None:
    assert str(tmp_path) in klog("export", "list", tmp_path).stderr
    HandmadeExport(tmp_path / "root").commit()
    assert klog("export", "compact", tmp_path / "root", "-o", "json").rows == []
    assert klog("export", "compact", tmp_path / "root", "--batches", "0-1").code == 1
    assert klog("export", "compact", tmp_path / "root", "--batches", "x").code == 2
    assert klog("export", "compact", tmp_path / "root", "--batches", "0", "--below", "1MB").code == 2
