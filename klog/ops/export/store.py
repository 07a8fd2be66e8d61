"""Where an export lies: files by their paths below its root, and the two acts that make a commit.

Strategy: an export needs little of a file system, and two things of it that many have not: either a rename of a folder
that is atomic and never replaces (then a batch is committed by giving its folder its name), or the creation of a file
that fails where one is there (then by creating the file that names the batch). `Store` is that little; which of the two
a store has it says itself. The schemes that need more than the standard library are added by who has it (`add_opener`).

Paths are relative to the root, with ``/``; ``""`` is the root. Everything blocks, and raises StorageError.
"""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from klog.errors import Refused, StorageError, UsageError
from klog.storage.filesystem import FileSystem, OsFileSystem, translated


class StoredFile(NamedTuple):
    path: str
    """Relative to the root."""
    bytes: int
    modified_s: float
    """Since the epoch, by the store's clock."""


class Store(Protocol):
    """One root. Thread-safe, and can be pickled, so that tasks elsewhere can open the same."""

    @property
    def url(self) -> str:
        """The root as it was given; what messages show."""
        ...

    @property
    def commits_by_rename(self) -> bool:
        """Whether `rename` can be relied on; else `create` can."""
        ...

    @property
    def opens_anywhere(self) -> bool:
        """Whether a task of Spark's, on another machine, can open it and write there itself; else Spark writes."""
        ...

    def read(self, path: str) -> bytes | None:
        """A small file whole; None where there is none."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """A new file, whole and durable or not there; False, and nothing changed, where something is there."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """``path`` holds ``data``, whatever it held: for hints."""
        ...

    def names(self, folder: str) -> list[str]:
        """What lies in a folder, sorted; [] where it is not there. Refused where it is a file."""
        ...

    def walk(self, folder: str) -> list[StoredFile]:
        """All files below a folder, by path; [] where it is not there."""
        ...

    def touched_s(self, folder: str) -> float:
        """When anything in or below the folder was last changed, since the epoch; now where that cannot be said."""
        ...

    def remove(self, path: str) -> None:
        """A file, or a folder with all below; nothing happens where neither is there."""
        ...

    def make_folder(self, path: str) -> None:
        """With its parents. Where a store has no folders, nothing."""
        ...

    def open_input(self, path: str) -> BinaryIO:
        """To read from anywhere in it."""
        ...

    def open_output(self, path: str) -> BinaryIO:
        """A new file, with the folders above it; it may be there only when it is closed."""
        ...

    def location(self, path: str) -> str:
        """What Spark is told, and messages show: a path of the local file system, or a URL."""
        ...

    def sync(self, folder: str) -> None:
        """When this returns, all files below the folder, and their names, outlive a power cut."""
        ...

    def rename(self, source: str, target: str) -> bool:
        """The folder ``source`` is ``target``, atomically and durably. False, and nothing changed, where that is
        there. Of stores with `commits_by_rename` only."""
        ...


Opener = Callable[[str, bool], Store]
"""Of a URL, and of whether to trust that nobody else writes there (see `open_store`)."""

_OPENERS: dict[str, Opener] = {}
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)")


def add_opener(schemes: Iterable[str], opener: Opener) -> None:
    """URLs of these schemes are opened by ``opener``, from now on and in this process."""
    _OPENERS.update(dict.fromkeys(schemes, opener))


def scheme_of(root: str) -> str:
    """In small letters; ``file`` for a path."""
    match = _SCHEME.fullmatch(root)
    return match[1].lower() if match else "file"


def open_store(root: str, *, unsafe_single_writer: bool = False) -> Store:
    """The store of an export's root: a path or a URL.

    ``unsafe_single_writer``: stores that can neither rename atomically nor create conditionally are not refused, since
    the caller vouches that no two runs ever write to this root at once.

    UsageError where nobody knows the scheme, or what it needs is not installed.
    """
    from klog.ops.export import store_object  # here: it needs what is defined above

    scheme = scheme_of(root)
    if scheme == "file":
        return LocalStore(_local_path(root))
    if scheme in _OPENERS:
        return _OPENERS[scheme](root, unsafe_single_writer)
    if scheme in store_object.SCHEMES:
        return store_object.ObjectStore(root, unsafe_single_writer)
    known = sorted({*_OPENERS, *store_object.SCHEMES})
    raise UsageError(
        f"{root}: exports cannot go to {scheme}:",
        hint=f"a folder, for example /data/export, or a URL of {', '.join(known)}",
    )


class LocalStore:
    """A folder of a local (or mounted) file system, where a rename onto a folder that is not empty fails."""

    commits_by_rename = True
    opens_anywhere = True
    """Where workers are on other machines, the folder has to be mounted there too."""

    def __init__(self, path: Path, files: FileSystem | None = None) -> None:
        self.path = path
        self._files = files or OsFileSystem()

    def __reduce__(self) -> tuple[type[LocalStore], tuple[Path]]:
        return LocalStore, (self.path,)

    @property
    def url(self) -> str:
        return str(self.path)

    def location(self, path: str) -> str:
        return str(self.path / path)

    def read(self, path: str) -> bytes | None:
        place = self.path / path
        return self._files.read(str(place)) if place.is_file() else None

    def create(self, path: str, data: bytes) -> bool:
        target = self.path / path
        self._files.make_folder(str(target.parent))
        temporary = target.parent / f".{uuid.uuid4()}"
        file = self._files.open(str(temporary), create=True)
        try:
            file.write_at(0, data)
            file.sync()
            os.link(temporary, target)  # unlike rename, never replaces
        except FileExistsError:
            return False
        except OSError as error:
            raise translated(error, "make", str(target)) from error
        finally:
            self._files.remove(str(temporary))
            self._files.sync_folder(str(target.parent))
        return True

    def replace(self, path: str, data: bytes) -> None:
        place = self.path / path
        self._files.make_folder(str(place.parent))
        self._files.replace(str(place), data)

    def names(self, folder: str) -> list[str]:
        place = self.path / folder
        try:
            return sorted(one.name for one in place.iterdir())
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise Refused(f"{place} is a file", hint="name a folder that is not there yet") from None
        except OSError as error:
            raise translated(error, "list", str(place)) from error

    def walk(self, folder: str) -> list[StoredFile]:
        found = []
        for directory, _, names in os.walk(self.path / folder):
            for name in names:
                place = Path(directory, name)
                try:
                    status = place.stat()
                except FileNotFoundError:
                    continue  # removed meanwhile
                found.append(StoredFile(place.relative_to(self.path).as_posix(), status.st_size, status.st_mtime))
        return sorted(found)

    def touched_s(self, folder: str) -> float:
        latest = 0.0
        for directory, _, names in os.walk(self.path / folder):
            for name in (".", *names):
                try:
                    latest = max(latest, Path(directory, name).stat().st_mtime)
                except FileNotFoundError:
                    return time.time()  # it lives
        return latest or time.time()

    def remove(self, path: str) -> None:
        place = self.path / path
        if place.is_dir() and not place.is_symlink():
            self._files.remove_folder(str(place))
        elif self._files.exists(str(place)):
            self._files.remove(str(place))

    def make_folder(self, path: str) -> None:
        self._files.make_folder(str(self.path / path))

    def open_input(self, path: str) -> BinaryIO:
        place = self.path / path
        try:
            return place.open("rb")
        except OSError as error:
            raise translated(error, "open", str(place)) from error

    def open_output(self, path: str) -> BinaryIO:
        place = self.path / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            return place.open("xb")
        except OSError as error:
            raise translated(error, "make", str(place)) from error

    def sync(self, folder: str) -> None:
        for directory, _, names in os.walk(self.path / folder, topdown=False):
            for name in names:
                self._files.open(os.path.join(directory, name)).sync()
            self._files.sync_folder(directory)

    def rename(self, source: str, target: str) -> bool:
        try:
            self._files.rename(self.location(source), self.location(target))
        except StorageError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return False
            raise
        return True


def _local_path(root: str) -> Path:
    match = _SCHEME.fullmatch(root)
    if match:
        rest = match[2]
        root = re.sub(r"^//[^/]*", "", rest) if rest.startswith("//") else rest
    if not root:
        raise UsageError("an export needs a folder to go to", hint="--to /data/export")
    return Path(root).expanduser().absolute()
