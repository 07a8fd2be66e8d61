"""What a run asks of the writer of its files, and what the writer returns. `klog.spark.export` has Spark's writers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from klog.client.raw_fetch import Range
from klog.errors import UsageError
from klog.export.stores.store import Store
from klog.names import TopicPartition

PARTITIONINGS = ("day", "hour")
"""Folders that readers know as columns, inside each batch: ``dt=2026-02-01``, and ``hour=09`` below; by UTC."""

UNDECODABLE = "_undecodable"
"""The folder, inside a batch's, of messages that could not be decoded; readers leave it out, as its name begins so."""


@dataclass(frozen=True)
class FileLayout:
    """How a batch's files are to look."""

    format: str = "parquet"
    partition_by: str | None = None
    max_file_bytes: int | None = None
    """A file is ended before it is larger, but not before it has a message."""

    def __post_init__(self) -> None:
        if self.partition_by is not None and self.partition_by not in PARTITIONINGS:
            raise UsageError(f"partitioning by {self.partition_by!r}: there are {', '.join(PARTITIONINGS)}")
        if self.max_file_bytes is not None and self.max_file_bytes < 1:
            raise UsageError("--max-file-bytes 0: a file holds a message at least", hint="for example 512MiB")


@dataclass(frozen=True)
class WriteJob:
    """The messages of ``ranges``, exactly, as files in ``folder`` of ``store``."""

    bootstrap: str
    ranges: Sequence[Range]
    store: Store
    folder: str
    layout: FileLayout = field(default_factory=FileLayout)
    decode: dict[str, Any] | None = None
    """How values become typed columns; None: they stay bytes."""
    attempts: str | None = None
    """A folder for what is not yet known to count: `Store.rename` makes it ``folder``, so an abandoned attempt of a
    task cannot write there. None: the store has no rename, and what counts a manifest lists.
    """
    checksum: bool = False
    """Whether checksums are wanted of the messages as they come from the log."""
    messages: int | None = None
    """In all the ranges, as the brokers count; None where they cannot."""


@dataclass(frozen=True)
class WriteResult:
    """What a writer knows beyond what lies in the files."""

    checksums: dict[TopicPartition, int] | None = None
    """Of the messages as they came from the log; None: the writer computed none."""
    schema_ids: frozenset[int] = frozenset()
    """Of the decoded values."""
    left_out: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """By those of them whose values have fields that the export has no columns for: the paths of these."""


def checksum_text(value: int) -> str:
    """A checksum as manifests have it."""
    return f"{value:016x}"


class BatchWriter(Protocol):
    @property
    def engine(self) -> str:
        """Its name and version, for the manifest."""
        ...

    def ready(self, decode: dict[str, Any] | None) -> None:
        """Raise what would keep it from writing at all, before a root is made; ``decode`` as in the job."""
        ...

    def write(self, job: WriteJob) -> WriteResult:
        """Do the job, or raise. Files whose names begin with ``_`` or ``.`` may lie beside those of messages."""
        ...
