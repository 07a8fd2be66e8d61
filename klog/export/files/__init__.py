"""The formats in which an export's files are written and read again: one module each, none of which knows Spark.

A format's module is loaded when it is asked for: pyarrow and numpy cost more time than a run with nothing to export.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from klog.errors import CorruptLog, Refused, UsageError
from klog.export.files.format import FileFormat
from klog.export.stores.store import Store

FORMATS = ("parquet", "avro", "orc", "json")
"""Their names, as ``--format`` and the manifests have them."""


def format_named(name: str) -> FileFormat:
    """Refused for a name that is not in FORMATS: a manifest or identity of a newer klog may have others."""
    match name:
        case "parquet":
            from klog.export.files.parquet import ParquetFormat

            return ParquetFormat()
        case "avro":
            from klog.export.files.avro import AvroFormat

            return AvroFormat()
        case "orc":
            from klog.export.files.orc import OrcFormat

            return OrcFormat()
        case "json":
            from klog.export.files.jsonl import JsonLinesFormat

            return JsonLinesFormat()
    raise _unknown(name)


def check_known(name: str) -> None:
    """As `format_named` does, without loading anything."""
    if name not in FORMATS:
        raise _unknown(name)


def _unknown(name: str) -> Refused:
    return Refused(f"files of format {name!r} are not known here", hint=f"{', '.join(FORMATS)} are; use a newer klog")


_SUFFIXES = {
    ".parquet": "parquet",
    ".avro": "avro",
    ".orc": "orc",
    ".jsonl.gz": "json",
    ".json.gz": "json",  # Spark's
}


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


def check_format(name: str) -> str:
    """The name, if it is one of FORMATS; else UsageError."""
    if name not in FORMATS:
        raise UsageError(f"--format {name}: there are {', '.join(FORMATS)}")
    return name


__all__ = ["FORMATS", "FileFormat", "check_format", "check_known", "format_named", "format_of", "read_stored"]
