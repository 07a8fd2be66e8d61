"""A root in a local, or mounted, file system."""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from klog.errors import Refused, StorageError, UsageError
from klog.export.stores.store import SCHEME, Store, StoredFile
from klog.storage.filesystem import NO_LINKS, FileSystem, OsFileSystem, translated


class LocalStore(Store):
    """A folder of a local (or mounted) file system, where a rename onto a folder that is not empty fails."""

    commits_by_rename = True
    opens_anywhere = True
    """If workers run on other machines, the folder must be mounted there too."""

    def __init__(self, path: Path, files: FileSystem | None = None) -> None:
        self.path = path
        self._files = files or OsFileSystem()

    def __reduce__(self) -> tuple[type[LocalStore], tuple[Path]]:
        return type(self), (self.path,)

    @property
    def url(self) -> str:
        return str(self.path)

    def location(self, path: str) -> str:
        return str(self._place(path))

    def _place(self, path: str) -> Path:
        """Where ``path`` lies. Refused if ``..`` or a link leads elsewhere."""
        place = self.path / path
        if Path(os.path.realpath(place)) != Path(f"{os.path.realpath(self.path).rstrip('/')}/{path}"):
            raise Refused(f"{place} leads to {os.path.realpath(place)}, out of the export {self.path}", hint=NO_LINKS)
        return place

    def read(self, path: str) -> bytes | None:
        place = self._place(path)
        return self._files.read(str(place)) if place.is_file() else None

    def create(self, path: str, data: bytes, *, private: bool = False) -> bool:
        target = self._place(path)
        self._files.make_folder(str(target.parent))
        temporary = target.parent / f".{uuid.uuid4()}"
        file = self._files.open(str(temporary), create=True)
        try:
            if private:
                temporary.chmod(0o600)
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
        place = self._place(path)
        self._files.make_folder(str(place.parent))
        self._files.replace(str(place), data)

    def names(self, folder: str) -> list[str]:
        place = self._place(folder)
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
        for directory, _, names in os.walk(self._place(folder)):
            for name in names:
                place = Path(directory, name)
                try:
                    status = place.lstat()
                except FileNotFoundError:
                    continue  # removed meanwhile
                found.append(StoredFile(place.relative_to(self.path).as_posix(), status.st_size, status.st_mtime))
        return sorted(found)

    def touched_s(self, folder: str) -> float:
        latest = 0.0
        for directory, _, names in os.walk(self._place(folder)):
            for name in (".", *names):
                try:
                    latest = max(latest, Path(directory, name).lstat().st_mtime)
                except FileNotFoundError:
                    return time.time()  # it lives
        return latest or time.time()

    def remove(self, path: str) -> None:
        place = self._place(os.path.dirname(path)) / os.path.basename(path)
        if place.is_symlink():  # it goes, and not what it leads to
            self._files.remove(str(place))
        elif self._place(path).is_dir():
            self._files.remove_folder(str(place))
        elif self._files.exists(str(place)):
            self._files.remove(str(place))

    def make_folder(self, path: str) -> None:
        self._files.make_folder(str(self._place(path)))

    def open_input(self, path: str) -> BinaryIO:
        place = self._place(path)
        try:
            return place.open("rb")
        except OSError as error:
            raise translated(error, "open", str(place)) from error

    def open_output(self, path: str) -> BinaryIO:
        place = self._place(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            return place.open("xb")
        except OSError as error:
            raise translated(error, "make", str(place)) from error

    def sync(self, folder: str) -> None:
        for directory, _, names in os.walk(self._place(folder), topdown=False):
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


def local_path(root: str) -> Path:
    match = SCHEME.fullmatch(root)
    if match:
        rest = match[2]
        root = unquote(re.sub(r"^//[^/]*", "", rest))
    if not root:
        raise UsageError("an export needs a folder to go to", hint="--to /data/export")
    return Path(root).expanduser().absolute()
