"""The one module that makes data durable.

Strategy: a broker writes its log dirs through the two Protocols below only, so that tests can replace them with a disk
that loses whatever was not flushed. Nothing else in storage calls fsync, rename or truncate. Durable operations:

* ``LogFile.write_at`` + ``LogFile.sync``  append, then ``fdatasync``;
* ``FileSystem.replace``          a small file, all or nothing: temporary file, fsync, rename, fsync of the folder;
* ``FileSystem.publish``          new folders with files in them, each complete or absent;
* ``FileSystem.sync_folder``      names created or removed in a folder;
* ``FileSystem.sync_everything``  one ``syncfs`` instead of many ``fdatasync`` (rule L9).

``OSError`` is translated here, once: ENOSPC and EDQUOT to DiskFull, everything else to StorageError.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import io
import mmap
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from klog.errors import DiskFull, LogDirLocked, NoDescriptors, StorageError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_WAIT_WRITE_WAIT: Final = 7
"""SYNC_FILE_RANGE_WAIT_BEFORE | _WRITE | _WAIT_AFTER."""
_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW
NO_LINKS: Final = "below its folder klog follows no link, which may lead anywhere: put there what the link leads to"
TEMPORARY_SUFFIX: Final = ".tmp"
COPY_BYTES: Final = 1 << 20
PUBLISH_TOGETHER_MIN: Final = 4
"""For this many new folders or more, one syncfs is cheaper than two fsyncs each."""


def translated(error: OSError, act: str, path: str) -> StorageError:
    """The StorageError for ``error``, with operation and path."""
    kind = StorageError
    if error.errno in _FULL:
        kind = DiskFull
    elif error.errno in _NO_DESCRIPTORS:
        kind = NoDescriptors
    if error.errno == errno.ELOOP:
        return kind(f"cannot {act} {path}: it is a link", hint=NO_LINKS)
    return kind(f"cannot {act} {path}: {error.strerror or error} (errno {error.errno})")


_CACHESTAT: Final = 451
"""The system call's number, the same on every architecture."""


class _CacheRange(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _CacheStatistics(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


_tells_cached = True


def _cached_bytes(descriptor: int, position: int, size: int) -> int | None:
    """Bytes of the range that are in the page cache; None if the kernel cannot tell. Any thread.

    By ``cachestat`` (Linux 6.5), which Python does not wrap: one call for a range of any length.
    """
    global _tells_cached
    if not _tells_cached:
        return None
    first = position - position % mmap.PAGESIZE
    asked = _CacheRange(first, position + size - first)
    found = _CacheStatistics()
    if _LIBC.syscall(_CACHESTAT, descriptor, ctypes.byref(asked), ctypes.byref(found), 0) != 0:
        _tells_cached = False
        return None
    pages = -(-(position + size - first) // mmap.PAGESIZE)
    # All pages or not enough: the first and the last are touched in part only.
    return size if found.cached >= pages else min(int(found.cached) * mmap.PAGESIZE, size - 1)


def next_data(file: object, position: int) -> int:
    """The next position with data, by the file system's map of holes; far behind the end if there is none.

    A file of a terabyte may be a hole of a terabyte.
    """
    try:
        return os.lseek(file.fileno(), position, os.SEEK_DATA) if isinstance(file, OsLogFile) else position
    except OSError as error:
        return sys.maxsize if error.errno == errno.ENXIO else position


def open_to_read(path: str) -> OsLogFile:
    """Open a file read-only."""
    try:
        return OsLogFile(path, os.open(path, os.O_RDONLY | _OPEN))
    except OSError as error:
        raise translated(error, "open", path) from error


class LogFile(Protocol):
    """An open file of record bytes. Thread-safe: every call names its position. The descriptor closes with the last
    reference, so a reader that still sends from it keeps it open."""

    path: str

    def fileno(self) -> int: ...
    def read_at(self, position: int, size: int) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end of the file."""
        ...

    def write_at(self, position: int, data: memoryview | bytes | bytearray) -> None:
        """Write all of ``data``; after an error, any part of it may be there."""
        ...

    def truncate(self, size: int) -> None: ...
    def sync(self) -> None:
        """Make the bytes and the file's size durable."""
        ...

    def confirm(self) -> None:
        """Raise a write-back error of this file that was not raised yet; call after ``sync_everything``."""
        ...

    def size(self) -> int: ...
    def is_resident(self, position: int, size: int) -> bool:
        """Whether the page cache has these bytes, by a sample of the pages."""
        ...

    def warm(self, position: int, size: int) -> None:
        """Read these bytes into the page cache. Blocks."""
        ...

    def forget(self, position: int, size: int) -> None:
        """Drop these bytes from the page cache where they are clean."""
        ...


class Lock(Protocol):
    def release(self) -> None: ...


class FileStatus(Protocol):
    """``size`` and ``modified_ms`` may read the disk and raise StorageError, as `FileSystem.scan` does."""

    @property
    def name(self) -> str: ...
    @property
    def is_folder(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def modified_ms(self) -> int: ...


class NewFolder(NamedTuple):
    """A folder to create: as ``temporary`` until it is durable, then as ``name``."""

    temporary: str
    name: str
    files: Mapping[str, bytes]


class FileSystem(Protocol):
    """Folders and files by path. Thread-safe. Every method raises StorageError (DiskFull where the disk is full)."""

    def open(self, path: str, *, create: bool = False) -> LogFile:
        """Open to read and write. ``create``: the file must not exist; its name is durable after sync_folder."""
        ...

    def scan(self, folder: str) -> list[FileStatus]: ...
    def exists(self, path: str) -> bool: ...
    def read(self, path: str) -> bytes | None:
        """A small file's contents; None if it does not exist."""
        ...

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        """Write ``data`` to ``path``, durably, all or nothing. ``private``: readable by its owner only, who stays the
        owner of a file that root replaces."""
        ...

    def make_folder(self, path: str) -> None:
        """Create the folder and its missing parents, durably."""
        ...

    def publish(self, parent: str, folders: Sequence[NewFolder]) -> None:
        """Create each folder in ``parent`` with its files, durably; after a crash each is complete or absent."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename, durably. ``target`` must not exist."""
        ...

    def remove(self, path: str) -> None:
        """Unlink; open descriptors stay valid. Durable after sync_folder."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove the folder and its contents."""
        ...

    def sync_folder(self, path: str) -> None: ...
    def sync_everything(self, path: str) -> None:
        """Make all writes and names durable on the file system of ``path``.

        An error may be another file's: then each file's ``sync`` decides; after a success, its ``confirm``.
        """
        ...

    def free_bytes(self, path: str) -> int: ...
    def lock(self, path: str) -> Lock:
        """Lock ``path`` exclusively until released or the process ends. Raises LogDirLocked."""
        ...


def copy_range(
    file_system: FileSystem, source: LogFile, position: int, size: int, target: str, *, keep_holes: bool = False
) -> None:
    """Copy bytes of a file to the new file ``target``, durably, all or nothing. Blocks.

    With ``keep_holes`` a hole stays one: for files at rest, since some file systems show a hole where what was written
    is not on the disk yet.
    """

    def to_copy(at: int) -> int:
        return max(at, next_data(source, position + at) - position) if keep_holes else at

    temporary = target + TEMPORARY_SUFFIX
    file_system.remove(temporary)
    copy = file_system.open(temporary, create=True)
    at = 0
    while (at := to_copy(at)) < size:
        part = min(COPY_BYTES, size - at)
        copy.write_at(at, source.read_at(position + at, part))
        at += part
    if keep_holes:
        copy.truncate(size)  # it may end in one
    copy.sync()
    file_system.rename(temporary, target)


class OsFileStatus:
    """A directory entry. Reads the disk only for more than name and kind.

    A start lists one folder per partition, and needs more of the segments alone.
    """

    __slots__ = ("_entry", "is_folder", "name")

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self._entry = entry
        self.name = entry.name
        self.is_folder = entry.is_dir()
        if entry.is_symlink():
            raise StorageError(f"{entry.path} is a link", hint=NO_LINKS)

    @property
    def size(self) -> int:
        return self._status.st_size

    @property
    def modified_ms(self) -> int:
        return self._status.st_mtime_ns // 1_000_000

    @property
    def _status(self) -> os.stat_result:
        try:
            return self._entry.stat()
        except OSError as error:
            raise translated(error, "look at", self._entry.path) from error


class OsLogFile:
    """LogFile over a descriptor."""

    __slots__ = ("_descriptor", "path")

    PROBE_BYTES: Final = 128 * 1024
    """Distance of the pages that is_resident samples: the kernel's default read-ahead, read and dropped together."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def __del__(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def read_at(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size:  # pread may stop early (2 GiB, a signal); only an empty answer is the end
                data = os.pread(self._descriptor, size - got, position + got)
                if not data:
                    break
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as error:
            raise translated(error, "read", self.path) from error

    def write_at(self, position: int, data: memoryview | bytes | bytearray) -> None:
        try:
            written = os.pwrite(self._descriptor, data, position)
            if written == len(data):
                return
            rest = memoryview(data)
            while written < len(rest):  # a disk that fills up first writes less than asked
                written += os.pwrite(self._descriptor, rest[written:], position + written)
        except OSError as error:
            raise translated(error, "write to", self.path) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise translated(error, "truncate", self.path) from error

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise translated(error, "flush", self.path) from error

    def confirm(self) -> None:
        # Finds write-back done and returns this descriptor's error; fdatasync would also flush the disk's cache once
        # per file, which is what one syncfs saves.
        if _LIBC.sync_file_range(self._descriptor, 0, 0, _WAIT_WRITE_WAIT) != 0:
            error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            raise translated(error, "flush", self.path)

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise translated(error, "look at", self.path) from error

    def is_resident(self, position: int, size: int) -> bool:
        cached_bytes = _cached_bytes(self._descriptor, position, size)
        if cached_bytes is not None:
            return cached_bytes >= size
        probe = bytearray(1)
        last = position + size - 1
        try:
            for at in (*range(position, last, self.PROBE_BYTES), last):
                os.preadv(self._descriptor, [probe], at, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return True  # the file system cannot tell (tmpfs): no disk to wait for, or no way to know
            raise translated(error, "read", self.path) from error
        return True

    def warm(self, position: int, size: int) -> None:
        scratch = bytearray(min(size, COPY_BYTES))
        end = position + size
        try:
            while position < end:
                got = os.preadv(self._descriptor, [memoryview(scratch)[: end - position]], position)
                if not got:
                    return
                position += got
        except OSError as error:
            raise translated(error, "read", self.path) from error

    def forget(self, position: int, size: int) -> None:
        try:
            os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_DONTNEED)
        except OSError:
            pass  # it was advice only


class OsLock:
    """``flock`` on a file: the kernel releases it when the process ends, in any way."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsFileSystem:
    """FileSystem over the operating system (Linux)."""

    def __init__(self) -> None:
        self._roots: dict[str, int] = {}

    def __del__(self) -> None:
        for descriptor in self._roots.values():
            os.close(descriptor)

    def open(self, path: str, *, create: bool = False) -> OsLogFile:
        flags = os.O_RDWR | _OPEN | (os.O_CREAT | os.O_EXCL if create else 0)
        try:
            return OsLogFile(path, os.open(path, flags, 0o644))
        except OSError as error:
            raise translated(error, "create" if create else "open", path) from error

    def scan(self, folder: str) -> list[FileStatus]:
        try:
            with os.scandir(folder) as entries:
                return [OsFileStatus(entry) for entry in entries]
        except OSError as error:
            raise translated(error, "list", folder) from error

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def read(self, path: str) -> bytes | None:
        try:
            # Not through Path: a start reads one file per partition, and more.
            with io.FileIO(os.open(path, os.O_RDONLY | _OPEN)) as file:
                return file.readall()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translated(error, "read", path) from error

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        temporary = path + TEMPORARY_SUFFIX
        try:
            if private and os.path.lexists(temporary):
                os.unlink(temporary)  # noqa: PTH108  # left by a crash; a reader may hold it open
            self._write_file(temporary, data, sync=True, mode=0o600 if private else 0o644)
            if private and os.geteuid() == 0 and os.path.exists(path):  # noqa: PTH110
                old = os.stat(path)  # noqa: PTH116
                os.chown(temporary, old.st_uid, old.st_gid)
            os.rename(temporary, path)  # noqa: PTH104
        except OSError as error:
            raise translated(error, "replace", path) from error
        self.sync_folder(os.path.dirname(path))

    def make_folder(self, path: str) -> None:
        missing: list[str] = []
        at = os.path.abspath(path)  # noqa: PTH100
        while not os.path.isdir(at):  # noqa: PTH112
            missing.append(at)
            at = os.path.dirname(at)
        for folder in reversed(missing):
            try:
                os.mkdir(folder)  # noqa: PTH102
            except FileExistsError:
                pass
            except OSError as error:
                raise translated(error, "make the folder", folder) from error
            self.sync_folder(os.path.dirname(folder))

    def publish(self, parent: str, folders: Sequence[NewFolder]) -> None:
        one_by_one = len(folders) < PUBLISH_TOGETHER_MIN
        for folder in folders:
            path = f"{parent}/{folder.temporary}"
            try:
                os.mkdir(path)  # noqa: PTH102
                for name, data in folder.files.items():
                    self._write_file(f"{path}/{name}", data, sync=one_by_one)
            except OSError as error:
                raise translated(error, "make the folder", path) from error
            if one_by_one:
                self.sync_folder(path)
        if not one_by_one:
            self.sync_everything(parent)
        for folder in folders:
            source, target = f"{parent}/{folder.temporary}", f"{parent}/{folder.name}"
            try:
                os.rename(source, target)  # noqa: PTH104
            except OSError as error:
                raise translated(error, f"rename {source} to", target) from error
        self.sync_folder(parent)

    def _write_file(self, path: str, data: bytes, *, sync: bool, mode: int = 0o644) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _OPEN, mode)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        try:
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            os.rename(source, target)  # noqa: PTH104
        except OSError as error:
            raise translated(error, f"rename {source} to", target) from error
        self.sync_folder(os.path.dirname(target))

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)  # noqa: PTH108
        except FileNotFoundError:
            pass
        except OSError as error:
            raise translated(error, "remove", path) from error

    def remove_folder(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise translated(error, "remove", path) from error

    def sync_folder(self, path: str) -> None:
        try:
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise translated(error, "flush the folder", path) from error

    def sync_everything(self, path: str) -> None:
        # The descriptor stays open: Linux (5.8 on) reports to it every write-back error since its last call.
        descriptor = self._roots.get(path)
        if descriptor is None:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise translated(error, "open", path) from error
            self._roots[path] = descriptor
        if _LIBC.syncfs(descriptor) != 0:
            error_number = ctypes.get_errno()
            raise translated(OSError(error_number, os.strerror(error_number)), "flush everything below", path)

    def free_bytes(self, path: str) -> int:
        try:
            status = os.statvfs(path)
        except OSError as error:
            raise translated(error, "look at", path) from error
        return status.f_bavail * status.f_frsize

    def lock(self, path: str) -> OsLock:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _OPEN, 0o644)
        except OSError as error:
            raise translated(error, "open", path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LogDirLocked(
                    f"{path} is held by another process", hint="another broker uses this log dir; give each its own"
                ) from error
            raise translated(error, "lock", path) from error
        return OsLock(descriptor)
