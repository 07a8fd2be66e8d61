"""A repair that is cut off at any of its steps leaves a log that can be repaired again, with every byte still there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from klog.errors import StorageError
from klog.storage.filesystem import OsFileSystem
from klog.tools.log_files import dump, verify
from klog.tools.log_repair import apply_repair, plan_repair
from tests.tools.log_folders import Stored, fill, folder_of, overwrite

STEPS = frozenset({"open", "rename", "remove", "replace", "sync_folder", "write_at", "truncate", "sync"})


class _CutOffError(StorageError):
    pass


class CutOff:
    """A file system, or a file of it, that fails from the n-th step on that could change something."""

    def __init__(self, real: Any, left: list[int]) -> None:
        self._real = real
        self._left = left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name not in STEPS:
            return found

        def step(*args: Any, **kwargs: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] < 0:
                raise _CutOffError(f"cut off before {name}")
            result = found(*args, **kwargs)
            return CutOff(result, self._left) if name == "open" else result

        return step


def kept_in(file: Path) -> bytes:
    """The log's bytes in a file of a repair; those of a hole come after a line about it."""
    data = file.read_bytes()
    return data.partition(b"\n")[2] if file.suffix == ".damaged" else data


def harm(log_dir: Path) -> tuple[list[Stored], list[tuple[str, str, int]]]:
    """Damage in the middle and at the end of closed segments, a lost one, one that reaches too far, and a torn end.

    The batches that are left, and what becomes of the rest: the state, the file's name, the end."""
    stored = fill(log_dir, 24)
    files = sorted({one.file for one in stored})
    by_file = {file: [one for one in stored if one.file == file] for file in files}
    first, second, third, fourth, *_, last = files
    overwrite(first, by_file[first][1].position + 70, b"harm")
    overwrite(second, by_file[second][-1].position, bytes(20))
    third.unlink()
    with fourth.open("ab") as file:
        file.write(b"too far")
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 5)
    middle, end, torn = by_file[first][1], by_file[second][-1], stored[-1]
    too_far = by_file[fourth][-1].end
    return [one for one in stored if one not in (middle, end, torn, *by_file[third])], [
        ("hole", f"{middle.address:020d}.damaged", middle.end),
        ("hole", f"{end.address:020d}.damaged", end.end),
        ("hole", f"{by_file[third][0].address:020d}.damaged", by_file[third][-1].end),
        ("cut", f"{too_far:020d}.cut", too_far + len(b"too far")),
        ("cut", f"{torn.address:020d}.cut", torn.end - 5),
    ]


def test_cut_off_at_every_step(tmp_path: Path) -> None:
    harmed = tmp_path / "harmed" / "data"
    rest, expected = harm(harmed)
    steps = 0
    while True:
        log_dir = shutil.copytree(harmed, tmp_path / str(steps) / "data")
        plan = plan_repair(log_dir)
        lost = [
            Path(fault.file).read_bytes()[fault.address - int(Path(fault.file).stem) :][: fault.bytes]
            for fault in plan.folders[0].faults
        ]
        assert [(row.state, Path(row.file).name, row.end) for row in plan.rows] == expected
        assert all(Path(row.file).stem == f"{row.base_offset:020d}" for row in plan.rows)
        try:
            apply_repair(plan, CutOff(OsFileSystem(), [steps]))
        except _CutOffError:
            was_cut_off = True
            apply_repair(plan_repair(log_dir))
        else:
            was_cut_off = False
        good = [(row.base_offset, row.end) for row in dump(log_dir) if row.state == "ok"]
        assert good == [(one.address, one.end) for one in rest], f"cut off before step {steps}"
        beside = [kept_in(file) for kind in ("*.cut", "*.damaged") for file in folder_of(log_dir).glob(kind)]
        assert all(data in beside for data in lost if data), f"cut off before step {steps}"
        if not was_cut_off:
            went_to = zip((Path(row.file) for row in plan.rows), lost, strict=True)
            assert all(kept_in(file) == data for file, data in went_to if data)
            assert not any(row.is_fault for row in verify(log_dir))
            break
        steps += 1
    assert steps > 30
