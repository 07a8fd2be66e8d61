"""The formats in which an export's files are written and read again: one module each, none of which knows Spark.

A format's module is loaded when it is asked for: pyarrow and numpy cost more time than a run with nothing to export.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, cast

from klog.errors import CorruptLog, Refused
from klog.export.stores.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

_MODULES: Final = {"parquet": "parquet", "avro": "avro", "orc": "orc", "json": "jsonl"}
FORMATS: Final = tuple(_MODULES)
"""Their names, as ``--format`` and the manifests have them."""
_SUFFIXES: Final = {
    ".parquet": "parquet",
    ".avro": "avro",
    ".orc": "orc",
    ".jsonl.gz": "json",
    ".json.gz": "json",  # Spark's
}
GROUP_BYTES: Final = 64 * 1024 * 1024
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
    """What a format's module has."""

    SUFFIX: str
    """What its files' names end with, for readers that go by names."""

    def Writer(self, sink: BinaryIO, schema: pa.Schema, group_bytes: int = GROUP_BYTES) -> FileWriter:
        """A class: ``group_bytes`` of Arrow data are held in memory at most, where the format holds any."""
        ...

    def read(
        self, source: BinaryIO, columns: Sequence[str] | None, *, thorough: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The file's rows with these columns (None: all; those that it does not have are left out), some megabytes at
        once; with ``thorough`` against whatever checksums the format has. CorruptLog where it cannot be read.
        """
        ...


def format_named(name: str) -> FileFormat:
    """As `check_known`."""
    check_known(name)
    return cast(FileFormat, import_module(f"{__name__}.{_MODULES[name]}"))


def check_known(name: str) -> None:
    """Refused for a name that is not in FORMATS: a manifest or identity of a newer klog may have others."""
    if name not in FORMATS:
        raise Refused(
            f"files of format {name!r} are not known here", hint=f"{', '.join(FORMATS)} are; use a newer klog"
        )


def format_of(path: str) -> FileFormat | None:
    """By the file's name; None for other files than messages, such as names that begin with _ or a dot."""
    if path.rpartition("/")[2].startswith(("_", ".")):
        return None
    return next((format_named(name) for suffix, name in _SUFFIXES.items() if path.endswith(suffix)), None)


def read_stored(store: Store, path: str, columns: Sequence[str] | None, *, thorough: bool = False) -> Iterator[Any]:
    """The record batches of a file, as `FileFormat.read`; of one of no known format none. CorruptLog with its place."""
    kind = format_of(path)
    if kind is None:
        return
    try:
        with store.open_input(path) as opened:
            yield from kind.read(opened, columns, thorough=thorough)
    except CorruptLog as error:
        raise CorruptLog(f"{store.location(path)} cannot be read: {error.message}") from None
