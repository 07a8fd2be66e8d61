"""What a library reads and writes piece by piece, as files of Python's."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

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
