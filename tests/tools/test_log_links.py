"""Files of a log that are links, or holes of a terabyte: nothing outside the folder is touched, and reading ends."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from klog.errors import KlogError
from klog.storage.filesystem import OsFileSystem
from klog.tools.log_files import dump, verify
from klog.tools.log_repair import apply_repair, plan_repair
from klog.tools.registry_facts import read_dirs
from tests.tools.log_folders import Stored, folder_of, opened

TERABYTE = 1 << 40
SOON_S = 30


def moved_behind_a_link(place: Path, elsewhere: Path) -> None:
    shutil.move(place, elsewhere)
    place.symlink_to(elsewhere)


def test_a_segment_that_is_a_link_is_left_alone(tmp_path: Path, stored: list[Stored]) -> None:
    foreign = tmp_path / "foreign"
    moved_behind_a_link(stored[-1].file, foreign)
    with foreign.open("ab") as file:
        file.write(b"not a batch")  # which a repair would cut
    before = foreign.read_bytes()
    folder = folder_of(tmp_path / "data")
    for act in (lambda: apply_repair(plan_repair(folder)), lambda: list(verify(folder)), lambda: list(dump(folder))):
        with pytest.raises(KlogError) as refused:
            act()
        assert str(stored[-1].file) in refused.value.message
    assert foreign.read_bytes() == before


def test_a_partition_that_is_a_link_is_left_alone(tmp_path: Path, stored: list[Stored]) -> None:
    log_dir, foreign = tmp_path / "data", tmp_path / "foreign"
    folder = folder_of(log_dir)
    moved_behind_a_link(Path(folder), foreign)
    before = sorted(foreign.iterdir())

    def serve() -> None:
        with opened(log_dir):
            pass

    for act in (lambda: apply_repair(plan_repair(log_dir)), lambda: read_dirs([log_dir]), serve):
        with pytest.raises(KlogError) as refused:
            act()
        assert str(folder) in refused.value.message
    assert sorted(foreign.iterdir()) == before


def test_a_folder_named_by_a_link_is_held_by_its_own_log_dir(tmp_path: Path, stored: list[Stored]) -> None:
    link = tmp_path / "elsewhere-0"
    link.symlink_to(folder_of(tmp_path / "data"))
    with opened(tmp_path / "data"), pytest.raises(KlogError):
        plan_repair(link)  # the broker's lock lies beside the folder, not beside the link


@pytest.mark.parametrize("act", ["open", "read", "replace", "lock"])
def test_no_file_is_opened_by_way_of_a_link(tmp_path: Path, act: str) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"as it was")
    place = tmp_path / "file"
    (tmp_path / ("file.tmp" if act == "replace" else "file")).symlink_to(foreign)
    with pytest.raises(KlogError):
        getattr(OsFileSystem(), act)(str(place), *([b"new"] if act == "replace" else []))
    assert foreign.read_bytes() == b"as it was"


def test_a_hole_of_a_terabyte_ends(tmp_path: Path, stored: list[Stored]) -> None:
    log_dir, last = tmp_path / "data", stored[-1]
    os.truncate(last.file, TERABYTE)
    started = time.monotonic()
    fault = list(verify(log_dir))[-1]
    assert (fault.state, fault.base_offset, fault.bytes) == ("torn", last.end, TERABYTE - last.position - last.size)
    apply_repair(plan_repair(log_dir))
    assert not any(row.is_fault for row in verify(log_dir))
    assert last.file.stat().st_size == last.position + last.size
    assert time.monotonic() - started < SOON_S


def test_a_batch_behind_a_hole_is_found(tmp_path: Path, stored: list[Stored]) -> None:
    """Its address begins with zeros, which may be the last of the hole."""
    first, second = stored[0], stored[1]
    assert first.file == second.file
    data = second.file.read_bytes()
    with second.file.open("r+b") as file:
        file.truncate(0)
        file.seek(second.position)
        file.write(data[second.position :])
    assert next(row.base_offset for row in dump(tmp_path / "data") if row.state == "ok") == second.address
