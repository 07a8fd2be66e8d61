"""The real file system behind the seam: what lasts, what is told of errors."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from klog.errors import DiskFull, LogDirLocked, StorageError
from klog.storage import filesystem
from klog.storage.filesystem import NewFolder, OsFileSystem, OsLogFile, copy_range
from tests.rows import each


@pytest.fixture
def fs() -> OsFileSystem:
    return OsFileSystem()


def test_writing_and_reading(fs: OsFileSystem, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    file = fs.open(path, create=True)
    file.write_at(5, memoryview(b"hello"))
    assert file.read_at(0, 100) == b"\0" * 5 + b"hello"
    assert file.read_at(10, 5) == b""
    file.truncate(7)
    assert file.size() == 7
    file.sync()
    fs.sync_everything(str(tmp_path))
    file.confirm()
    with pytest.raises(StorageError, match="create"):
        fs.open(path, create=True)
    with pytest.raises(StorageError, match="open"):
        fs.open(path + "x")


def test_a_full_device_is_a_full_disk() -> None:
    full = OsLogFile("/dev/full", os.open("/dev/full", os.O_RDWR))
    with pytest.raises(DiskFull, match="/dev/full"):
        full.write_at(0, b"x")


def test_other_errors_name_the_act_and_the_path(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    file = OsLogFile(str(path), os.open(path, os.O_RDONLY))
    with pytest.raises(StorageError, match=f"write.*{path}: {os.strerror(errno.EBADF)}") as caught:
        file.write_at(0, b"x")
    assert not isinstance(caught.value, DiskFull)
    with pytest.raises(StorageError, match="truncate"):
        file.truncate(0)


def test_replacing(fs: OsFileSystem, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    assert fs.read(path) is None
    fs.replace(path, b"one")
    fs.replace(path, b"two")
    assert fs.read(path) == b"two"
    assert [entry.name for entry in fs.scan(str(tmp_path))] == ["f"]


def test_publishing(fs: OsFileSystem, tmp_path: Path) -> None:
    for count in (1, 20):
        folders = [NewFolder(f"{count}.{at}.tmp", f"{count}.{at}", {"a": b"1", "b": b""}) for at in range(count)]
        fs.publish(str(tmp_path), folders)
        assert all(fs.read(f"{tmp_path}/{count}.{at}/a") == b"1" for at in range(count))
    assert {entry.name for entry in fs.scan(str(tmp_path))} == {"1.0", *(f"20.{at}" for at in range(20))}
    with pytest.raises(StorageError):
        fs.publish(str(tmp_path), [NewFolder("x.tmp", "1.0", {})])


def test_a_private_file_that_root_replaces_keeps_its_owner(fs: OsFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    owner = (12345, 54321) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    os.chown(path, *owner)
    fs.replace(str(path), b"new", private=True)
    found = path.stat()
    assert (path.read_bytes(), found.st_uid, found.st_gid, found.st_mode & 0o777) == (b"new", *owner, 0o600)


@each("keep_holes", [False, True])
def test_a_map_of_holes_is_believed_of_files_at_rest_alone(
    fs: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_holes: bool
) -> None:
    """Some file systems show a hole where what was written is not on the disk yet."""
    monkeypatch.setattr(filesystem, "next_data", lambda file, position: sys.maxsize)
    source = fs.open(f"{tmp_path}/a", create=True)
    source.write_at(0, b"0123456789")
    copy_range(fs, source, 2, 5, f"{tmp_path}/b", keep_holes=keep_holes)
    assert (tmp_path / "b").read_bytes() == (bytes(5) if keep_holes else b"23456")


def test_renaming_never_replaces(fs: OsFileSystem, tmp_path: Path) -> None:
    fs.replace(f"{tmp_path}/a", b"1")
    fs.replace(f"{tmp_path}/b", b"2")
    with pytest.raises(StorageError, match=os.strerror(errno.EEXIST)):
        fs.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    fs.rename(f"{tmp_path}/a", f"{tmp_path}/c")
    assert fs.read(f"{tmp_path}/c") == b"1"


def test_removing(fs: OsFileSystem, tmp_path: Path) -> None:
    fs.make_folder(f"{tmp_path}/x/y/z")
    fs.replace(f"{tmp_path}/x/y/z/f", b"1")
    fs.remove(f"{tmp_path}/x/y/z/f")
    fs.remove(f"{tmp_path}/x/y/z/f")
    assert not fs.exists(f"{tmp_path}/x/y/z/f")
    fs.remove_folder(f"{tmp_path}/x")
    fs.remove_folder(f"{tmp_path}/x")
    assert not fs.exists(f"{tmp_path}/x")
    with pytest.raises(StorageError):
        fs.scan(f"{tmp_path}/x")


def test_a_lock_is_held_against_other_processes_and_ends_with_them(fs: OsFileSystem, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    code = (
        "import sys; from klog.storage.filesystem import OsFileSystem;"
        f"lock = OsFileSystem().lock({path!r}); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LogDirLocked):
            fs.lock(path)
        holder.kill()
        holder.wait()
    lock = fs.lock(path)
    with pytest.raises(LogDirLocked):
        fs.lock(path)
    lock.release()
    fs.lock(path).release()
