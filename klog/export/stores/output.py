"""What a library writes to piece by piece, as a file of Python's."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Translating(Protocol):
    """A store that says in its own words what its library raises."""

    def translated(self, act: str, path: str) -> AbstractContextManager[None]: ...


class StoreOutput(io.RawIOBase):
    """One file to write, from its start to its end. ``sink`` has ``write(bytes)`` and ``close()``."""

    def __init__(self, store: Translating, path: str, sink: Any) -> None:
        self._store = store
        self._path = path
        self._sink = sink
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        with self._store.translated("write", self._path):
            self._sink.write(bytes(data))
        self._written += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            with self._store.translated("write", self._path):
                self._sink.close()
        super().close()
