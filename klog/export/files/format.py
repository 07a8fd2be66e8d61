"""What a format of files is: how Arrow batches become one file, and a file Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_BYTES = 64 * 1024 * 1024
"""Of Arrow data a writer holds before it becomes a row group: large enough for readers to skip and to compress well."""


class FileWriter(Protocol):
    """One file being written. The sink stays its owner's to close."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Batches of one file have one schema."""
        ...

    def flush(self) -> None:
        """Write out what is held in memory, as far as the format can without ending the file."""
        return

    def close(self) -> None:
        """The file is complete when this returns; as it is, where the format has no end of its own."""
        return


class FileFormat(Protocol):
    @property
    def suffix(self) -> str:
        """What its files' names end with, for readers that go by names."""
        ...

    def writer(self, sink: BinaryIO, schema: pa.Schema, *, group_bytes: int = GROUP_BYTES) -> FileWriter:
        """``group_bytes`` of Arrow data are held in memory at most, where the format holds any."""
        ...

    def read(
        self, source: BinaryIO, columns: Sequence[str] | None, *, thorough: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The file's rows with these columns (None: all; those that it does not have are left out), some megabytes at
        once; with ``thorough`` against whatever checksums the format has. CorruptLog where it cannot be read.
        """
        ...
