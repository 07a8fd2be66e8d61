"""A disk in memory that forgets what was not flushed, fails on demand, and stops the world at any step.

Fault model. A file has bytes as the process sees them and bytes as the disk has them; ``sync`` copies the first to the
second. A folder has names likewise; ``sync_folder`` copies them. ``crash()`` gives the disk as the next start finds it:

* ``crash()``             power loss, the worst of it: only what was flushed;
* ``crash(seed)``         power loss, any of it: of what was not flushed, each name change and each 512-byte block
                          of a file may or may not have reached the disk;
* ``kill()``              the process died, the kernel lives: everything is there, and still not flushed.

Every act that changes the disk is a step; ``stop_at(n)`` raises Stopped (a BaseException, so no handler eats it) before
step n, and half of the way through where the step is a write. ``fail(act, path, ...)`` makes acts raise instead.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from klog.errors import LogDirLocked
from klog.storage.filesystem import TEMPORARY_SUFFIX, FileStatus, NewFolder, translated

BLOCK_BYTES = 512


class Stopped(BaseException):
    """The power went."""


class _Inode:
    def __init__(self, *, is_folder: bool = False) -> None:
        self.is_folder = is_folder
        self.data = bytearray()
        self.durable = b""
        self.modified_ms = 0


@dataclass
class _Fault:
    act: str
    path: str
    number: int
    times: int


@dataclass(frozen=True)
class _Status:
    name: str
    is_folder: bool
    size: int
    modified_ms: int


class FaultyFile:
    """A LogFile of a FaultyFileSystem."""

    def __init__(self, disk: FaultyFileSystem, path: str, inode: _Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def fileno(self) -> int:
        raise AssertionError("a file in memory has no descriptor")

    def read_at(self, position: int, size: int) -> bytes:
        self._disk.check("read", self.path)
        return bytes(self._inode.data[position : position + size])

    def write_at(self, position: int, data: memoryview | bytes | bytearray) -> None:
        with self._disk.step("write", self.path) as step:
            content = bytes(data)
            room = self._disk.room()
            grows = position + len(content) - len(self._inode.data)
            if step.fails or step.stops:
                self._put(position, content[: len(content) // 2])
                step.act()
            if room is not None and grows > room:
                self._put(position, content[: max(len(content) - (grows - room), 0)])
                raise translated(OSError(errno.ENOSPC, "no space left"), "write to", self.path)
            self._put(position, content)

    def _put(self, position: int, content: bytes) -> None:
        data = self._inode.data
        if position > len(data):
            data.extend(bytes(position - len(data)))
        data[position : position + len(content)] = content
        self._inode.modified_ms = self._disk.clock_ms

    def truncate(self, size: int) -> None:
        with self._disk.step("truncate", self.path) as step:
            step.act()
            del self._inode.data[size:]
            self._inode.data.extend(bytes(size - len(self._inode.data)))

    def sync(self) -> None:
        with self._disk.step("sync", self.path) as step:
            if step.fails:
                # The kernel marks the pages clean although they never reached the disk: the next sync succeeds.
                self._disk.lost_pages.append(self.path)
            step.act()
            self._inode.durable = bytes(self._inode.data)

    def confirm(self) -> None:
        self._disk.check("confirm", self.path)

    def size(self) -> int:
        return len(self._inode.data)

    def is_resident(self, position: int, size: int) -> bool:
        return True

    def warm(self, position: int, size: int) -> None:
        self._disk.check("read", self.path)

    def forget(self, position: int, size: int) -> None:
        pass


class _Lock:
    def __init__(self, disk: FaultyFileSystem, path: str) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class _Step:
    """One act: ``act`` raises where a fault or the stop is due."""

    def __init__(self, disk: FaultyFileSystem, name: str, path: str, fault: int | None, stops: bool) -> None:
        self._disk, self._name, self._path = disk, name, path
        self.fails = fault
        self.stops = stops

    def __enter__(self) -> _Step:
        self._disk.lock_all.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self._disk.lock_all.release()

    def act(self) -> None:
        if self.stops:
            self._disk.stopped = True
            raise Stopped(f"before {self._name} {self._path}")
        if self.fails:
            raise translated(OSError(self.fails, os.strerror(self.fails)), self._name, self._path)


class FaultyFileSystem:
    """FileSystem in memory. Thread-safe as the real one is."""

    def __init__(self) -> None:
        self.names: dict[str, _Inode] = {}
        self.durable_names: dict[str, _Inode] = {}
        self.locks: set[str] = set()
        self.steps = 0
        self.trace: list[tuple[str, str]] = []
        self.capacity: int | None = None
        self.clock_ms = 0
        self.lost_pages: list[str] = []
        self.stopped = False
        self.lock_all = threading.RLock()
        self._stop_at: int | None = None
        self._faults: list[_Fault] = []

    # --- Faults ---

    def stop_at(self, step: int | None) -> None:
        """Stop the world before step ``step`` (counted from the first, 1)."""
        self._stop_at = step

    def fail(self, act: str, path: str = "*", number: int = errno.EIO, times: int = 1 << 30) -> None:
        """Let ``act`` on paths that match ``path`` (a glob) fail with errno ``number``, ``times`` times."""
        self._faults.append(_Fault(act, path, number, times))

    def heal(self) -> None:
        self._faults.clear()

    def crash(self, seed: int | None = None) -> FaultyFileSystem:
        """The disk after a power loss."""
        after = FaultyFileSystem()
        chance = random.Random(seed) if seed is not None else None
        names = dict(self.durable_names)
        if chance is not None:
            for path in sorted(self.names.keys() | names.keys()):
                if self.names.get(path) is not names.get(path) and chance.random() < 0.5:
                    if path in self.names:
                        names[path] = self.names[path]
                    else:
                        del names[path]
        copies: dict[int, _Inode] = {}
        for path, inode in names.items():
            if id(inode) not in copies:
                copy = copies[id(inode)] = _Inode(is_folder=inode.is_folder)
                copy.durable = inode.durable if chance is None else _torn(inode, chance)
                copy.data = bytearray(copy.durable)
                copy.modified_ms = inode.modified_ms
            after.names[path] = after.durable_names[path] = copies[id(inode)]
        for path in list(after.names):  # what lay in a folder that is gone is gone
            parent = os.path.dirname(path)
            while parent not in ("", "/"):
                if parent not in after.names:
                    after.names.pop(path, None)
                    after.durable_names.pop(path, None)
                parent = os.path.dirname(parent)
        after.clock_ms = self.clock_ms
        return after

    def kill(self) -> FaultyFileSystem:
        """The disk and the page cache after the process died."""
        self.locks.clear()
        self._stop_at = None
        self.stopped = False
        self._faults.clear()
        return self

    def step(self, act: str, path: str) -> _Step:
        self.steps += 1
        self.trace.append((act, path))
        if self.stopped:
            raise Stopped("after the power went")
        return _Step(self, act, path, self._fault(act, path), self.steps == self._stop_at)

    def check(self, act: str, path: str) -> None:
        """For acts that change nothing: fail, or do nothing."""
        number = self._fault(act, path)
        if number:
            raise translated(OSError(number, os.strerror(number)), act, path)

    def room(self) -> int | None:
        if self.capacity is None:
            return None
        return self.capacity - sum(len(inode.data) for inode in set(self.names.values()))

    def _fault(self, act: str, path: str) -> int | None:
        for fault in self._faults:
            if fault.act == act and fault.times > 0 and fnmatch(path, fault.path):
                fault.times -= 1
                return fault.number
        return None

    # --- FileSystem ---

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        if create:
            with self.step("create", path) as step:
                step.act()
                if path in self.names:
                    raise translated(FileExistsError(errno.EEXIST, "file exists"), "create", path)
                if (room := self.room()) is not None and room <= 0:
                    raise translated(OSError(errno.ENOSPC, "no space left"), "create", path)
                self.names[path] = _Inode()
                self.names[path].modified_ms = self.clock_ms
        else:
            self.check("open", path)
        inode = self.names.get(path)
        if inode is None:
            raise translated(FileNotFoundError(errno.ENOENT, "no such file"), "open", path)
        return FaultyFile(self, path, inode)

    def scan(self, folder: str) -> list[FileStatus]:
        if folder not in self.names:
            raise translated(FileNotFoundError(errno.ENOENT, "no such folder"), "list", folder)
        return [
            _Status(os.path.basename(path), inode.is_folder, len(inode.data), inode.modified_ms)
            for path, inode in self.names.items()
            if os.path.dirname(path) == folder
        ]

    def exists(self, path: str) -> bool:
        return path in self.names

    def read(self, path: str) -> bytes | None:
        self.check("read", path)
        inode = self.names.get(path)
        return None if inode is None else bytes(inode.data)

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        temporary = path + TEMPORARY_SUFFIX
        self.names.pop(temporary, None)
        file = self.open(temporary, create=True)
        file.write_at(0, data)
        file.sync()
        with self.step("rename", path) as step:
            step.act()
            self.names[path] = self.names.pop(temporary)
        self.sync_folder(os.path.dirname(path))

    def make_folder(self, path: str) -> None:
        missing = []
        while path not in ("", "/") and path not in self.names:
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            with self.step("make folder", folder) as step:
                step.act()
                self.names[folder] = self.durable_names[folder] = _Inode(is_folder=True)

    def publish(self, parent: str, folders: Sequence[NewFolder]) -> None:
        for folder in folders:
            path = f"{parent}/{folder.temporary}"
            with self.step("make folder", path) as step:
                step.act()
                self.names[path] = _Inode(is_folder=True)
            for name, data in folder.files.items():
                file = self.open(f"{path}/{name}", create=True)
                file.write_at(0, data)
                file.sync()
            self.sync_folder(path)
        for folder in folders:
            self._rename(f"{parent}/{folder.temporary}", f"{parent}/{folder.name}")
        self.sync_folder(parent)

    def _rename(self, source: str, target: str) -> None:
        with self.step("rename", target) as step:
            step.act()
            if target in self.names:
                raise translated(FileExistsError(errno.EEXIST, "file exists"), "rename to", target)
            for path in [one for one in self.names if one == source or one.startswith(source + "/")]:
                self.names[target + path[len(source) :]] = self.names.pop(path)
            # What is in a folder is as durable under its new name, once that is durable itself.
            for path in [one for one in self.durable_names if one.startswith(source + "/")]:
                self.durable_names[target + path[len(source) :]] = self.durable_names[path]

    def rename(self, source: str, target: str) -> None:
        self._rename(source, target)
        self.sync_folder(os.path.dirname(target))
        for path in [one for one in self.durable_names if one.startswith(source + "/")]:
            del self.durable_names[path]

    def remove(self, path: str) -> None:
        with self.step("remove", path) as step:
            step.act()
            self.names.pop(path, None)

    def remove_folder(self, path: str) -> None:
        for one in [one for one in self.names if one == path or one.startswith(path + "/")]:
            with self.step("remove", one) as step:
                step.act()
                self.names.pop(one, None)
        self.durable_names = {
            name: inode
            for name, inode in self.durable_names.items()
            if name != path and not name.startswith(path + "/")
        }

    def sync_folder(self, path: str) -> None:
        with self.step("sync folder", path) as step:
            step.act()
            for name in [one for one in self.durable_names if os.path.dirname(one) == path]:
                del self.durable_names[name]
            for name, inode in self.names.items():
                if os.path.dirname(name) == path:
                    self.durable_names[name] = inode

    def sync_everything(self, path: str) -> None:
        with self.step("sync everything", path) as step:
            step.act()
            for inode in self.names.values():
                inode.durable = bytes(inode.data)
            self.durable_names = dict(self.names)

    def free_bytes(self, path: str) -> int:
        room = self.room()
        return 1 << 40 if room is None else max(room, 0)

    def lock(self, path: str) -> _Lock:
        self.check("lock", path)
        if path in self.locks:
            raise LogDirLocked(f"{path} is held by another process")
        self.locks.add(path)
        self.names.setdefault(path, _Inode())
        return _Lock(self, path)


def _torn(inode: _Inode, chance: random.Random) -> bytes:
    """Between what the disk had and what the process wrote: any blocks of it, any size in between."""
    old, new = inode.durable, bytes(inode.data)
    if old == new:
        return old
    result = bytearray(new[: chance.randint(min(len(old), len(new)), max(len(old), len(new)))] or old)
    for at in range(0, len(result), BLOCK_BYTES):
        if chance.random() < 0.3:
            block = old[at : at + BLOCK_BYTES]
            result[at : at + BLOCK_BYTES] = block.ljust(min(BLOCK_BYTES, len(result) - at), b"\0")
    return bytes(result)
