"""pyiceberg's files on a local disk, flushed: a catalogue must not name metadata that a power cut takes away."""

from __future__ import annotations

import os
from typing import Final

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

_LOCAL: Final = "file"


class DurableFileIO(PyArrowFileIO):
    """As pyiceberg's own; a local file that was closed outlives a power cut, and so does its name."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != _LOCAL:
            return super().new_output(location)
        return _DurableFile(location, path, self.fs_by_scheme(scheme, netloc))


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        return _DurableStream(super().create(overwrite), self._path)


class _DurableStream(OutputStream):
    """What is written to a file, flushed when it is closed."""

    def __init__(self, stream: OutputStream, path: str) -> None:
        self._stream, self._path, self._is_open = stream, path, True

    def write(self, b: bytes) -> int:
        return self._stream.write(b)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._stream.close()
        for path in (self._path, os.path.dirname(self._path)):
            number = os.open(path, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)

    @property
    def closed(self) -> bool:
        return not self._is_open

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
