"""Where an export lies: files by their paths below its root, and the two acts that make a commit.

Strategy: an export needs little of a file system, and two things of it that many have not: either a rename of a folder
that is atomic and never replaces (then a batch is committed by giving its folder its name), or the creation of a file
that fails where one is there (then by creating the file that names the batch). `Store` is that little; which of the two
a store has it says itself.

Paths are relative to the root, with ``/``; ``""`` is the root. Everything blocks, and raises StorageError.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NamedTuple, Protocol

from klog.errors import Refused


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

    def create(self, path: str, data: bytes, *, private: bool = False) -> bool:
        """A new file, whole and durable or not there; False, and nothing changed, where something is there.

        ``private``: for its owner alone, on a local disk; elsewhere who may read it is the store's own matter."""
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
        """When anything in or below the folder last changed, in seconds since the epoch; now if that is unknown."""
        return max((file.modified_s for file in self.walk(folder)), default=time.time())

    def remove(self, path: str) -> None:
        """A file, or a folder with all below; nothing happens where neither is there."""
        ...

    def make_folder(self, path: str) -> None:
        """With its parents. Where a store has no folders, nothing."""
        return

    def open_input(self, path: str) -> BinaryIO:
        """To read from anywhere in it."""
        ...

    def open_output(self, path: str) -> BinaryIO:
        """A new file, with the folders above it; it may be there only when it is closed."""
        ...

    def location(self, path: str) -> str:
        """The path for Spark and for messages: of the local file system, or a URL."""
        ...

    def sync(self, folder: str) -> None:
        """When this returns, all files below the folder, and their names, outlive a power cut: nothing where they do
        as soon as they are there."""
        return

    def rename(self, source: str, target: str) -> bool:
        """The folder ``source`` is ``target``, atomically and durably. False, and nothing changed, where that is
        there. Of stores with `commits_by_rename` only."""
        raise Refused(f"{self.url}: this store renames nothing")


SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)")


def scheme_of(root: str) -> str:
    """In small letters; ``file`` for a path."""
    match = SCHEME.fullmatch(root)
    return match[1].lower() if match else "file"


# --- What a library reads and writes piece by piece, as files of Python's ---


Translated = Callable[[], AbstractContextManager[None]]
"""Says in the store's words what its library raises within."""


class StoreInput(io.RawIOBase):
    """A file of ``size`` bytes to read from anywhere in it. ``read_at``: from (position, bytes at most) to bytes."""

    def __init__(self, size: int, read_at: Callable[[int, int], Any], close: Callable[[], Any] = lambda: None) -> None:
        self._size = size
        self._read_at = read_at
        self._close = close
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        size = max(0, min(len(buffer), self._size - self._at))
        data = self._read_at(self._at, size) if size else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._close()
        super().close()


class StoreOutput(io.RawIOBase):
    """One file to write, from its start to its end. ``sink`` has ``write(bytes)`` and ``close()``."""

    def __init__(self, sink: Any, translated: Translated) -> None:
        self._sink = sink
        self._translated = translated
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        with self._translated():
            self._sink.write(bytes(data))
        self._written += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            with self._translated():
                self._sink.close()
        super().close()
