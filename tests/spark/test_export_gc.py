"""What belongs to nobody in an export: found, shown, removed; killed anywhere, the export is what it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from klog.export.compact import compact
from klog.export.gc import STEPS, collect, find_garbage
from tests.cli.runner import klog
from tests.spark.conftest import exported_rows
from tests.spark.exporting import states
from tests.spark.handmade import HandmadeExport
from tests.spark.killed_export import kill_at_each


def littered(root: Path) -> HandmadeExport:
    """An export with the staging of a dead run, a file that was never linked, and batches that were replaced."""
    export = HandmadeExport(root)
    export.commits(3)
    compact(str(root))
    export.commit()
    dead = export.place.stage(9)
    with export.place.store.open_output(f"{dead.folder}/part-0.parquet") as file:
        file.write(b"half a file")
    (root / "_klog" / ".0f0f0f0f-0000-4000-8000-000000000000").write_bytes(b"{")
    return export


def kinds(root: Path, older_than_s: float = 0) -> list[str]:
    return sorted(row.what for row in find_garbage(str(root), older_than_s=older_than_s))


def test_rubbish_is_found_and_removed_and_nothing_else(tmp_path: Path) -> None:
    littered(tmp_path)
    rows = exported_rows(tmp_path)
    assert kinds(tmp_path, 3600) == []
    found = find_garbage(str(tmp_path), older_than_s=0)
    assert sorted(row.what for row in found) == [*["orphan"] * 3, "replaced", "staging", "temporary"]
    (replaced,) = [row for row in found if row.what == "replaced"]
    assert replaced.files == 6  # three batches, each a file and its mark; what their manifests were is in the history
    assert {row.path for row in collect(str(tmp_path), found)} == {row.path for row in found}
    assert kinds(tmp_path) == []
    assert exported_rows(tmp_path) == rows
    assert set(states(tmp_path)) == {"ok"}
    assert collect(str(tmp_path), found) == []


def test_what_came_to_life_again_stays(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path)
    export.commit()
    staged = export.place.stage(1)
    folder = tmp_path / staged.folder
    os.utime(folder, (1, 1))
    found = find_garbage(str(tmp_path), older_than_s=60)
    assert [row.what for row in found] == ["staging"]
    (folder / "part-0.parquet").write_bytes(b"it goes on")
    assert collect(str(tmp_path), found) == []
    assert folder.is_dir()


def test_killed_at_any_step_an_export_is_what_it_was(tmp_path: Path) -> None:
    littered(tmp_path / "root")
    rows = exported_rows(tmp_path / "root")
    roots = {step: tmp_path / step for step in STEPS}
    for root in roots.values():
        shutil.copytree(tmp_path / "root", root)
    assert kill_at_each(roots, "gc") == dict.fromkeys(STEPS, True)
    for root in roots.values():
        assert exported_rows(root) == rows
        assert set(states(root)) == {"ok"}
        collect(str(root), find_garbage(str(root), older_than_s=0))
        assert kinds(root) == []


def test_the_command_asks_and_can_only_show(tmp_path: Path) -> None:
    littered(tmp_path)
    assert klog("export", "gc", tmp_path, "-o", "json").rows == []
    asked = klog("export", "gc", tmp_path, "--older-than", "0s")
    assert asked.code == 2
    shown = klog("export", "gc", tmp_path, "--older-than", "0s", "--dry-run", "-o", "json")
    assert (shown.code, len(shown.rows)) == (0, 6)
    assert len(kinds(tmp_path)) == 6
    done = klog("export", "gc", tmp_path, "--older-than", "0s", "-y", "-o", "json")
    assert (done.code, len(done.rows)) == (0, 6)
    assert kinds(tmp_path) == []
