"""The interface to the writers of export files. `klog.spark.export` implements it with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from klog.client.raw_fetch import Range
from klog.errors import UsageError
from klog.export.files import check_known
from klog.export.partitioning import Partitioning
from klog.export.stores.store import Store
from klog.names import TopicPartition

UNDECODABLE = "_undecodable"
"""The folder inside a batch for messages that could not be decoded. Readers skip names that begin with ``_``."""


def is_undecodable(path: str) -> bool:
    """Whether a file, by its path inside a batch, has messages that could not be decoded."""
    return path.startswith(f"{UNDECODABLE}/")


@dataclass(frozen=True)
class FileLayout:
    """Format, folders and size of a batch's files."""

    format: str = "parquet"
    partition_by: str | None = None
    max_file_bytes: int | None = None
    """The largest size of a file; a file has at least one message, whatever its size."""
    is_table: bool = False
    """Whether the table, and not the name of a folder, says what the rows in it have in common."""

    def __post_init__(self) -> None:
        """Refused for a format that a newer klog may know; UsageError."""
        check_known(self.format)
        if self.partition_by is not None:
            Partitioning.parse(self.partition_by)
        if self.max_file_bytes is not None and self.max_file_bytes < 1:
            raise UsageError(
                f"--max-file-bytes must be at least 1, got {self.max_file_bytes}", hint="for example 512MiB"
            )


@dataclass(frozen=True)
class WriteJob:
    """Write exactly the messages of ``ranges`` as files in ``folder`` of ``store``."""

    bootstrap: str
    ranges: Sequence[Range]
    store: Store
    folder: str
    layout: FileLayout = field(default_factory=FileLayout)
    decode: dict[str, Any] | None = None
    """How to decode values into typed columns; None: keep bytes."""
    attempts: str | None = None
    """A folder for the files of task attempts. `Store.rename` turns it into ``folder``, so that an abandoned attempt
    cannot write there. None: the store has no rename, and the manifest lists the valid files.
    """
    checksum: bool = False
    """Whether to compute checksums of the messages as read from the log."""
    messages: int | None = None
    """Messages in all ranges, counted by the brokers; None if they cannot count."""


@dataclass(frozen=True)
class WriteResult:
    """What a writer reports in addition to its files."""

    checksums: dict[TopicPartition, int] | None = None
    """Of the messages as read from the log; None: not computed."""
    schema_ids: frozenset[int] = frozenset()
    """Writers' schemas of the decoded values."""
    left_out: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Schema id -> paths of fields in its values that have no column in the export."""
    met: frozenset[int] = frozenset()
    """The ids of all schemas in messages, also where their values could not be read as the export's."""


def checksum_text(value: int) -> str:
    """A checksum in the form of manifests: 16 hexadecimal digits."""
    return f"{value:016x}"


class BatchWriter(Protocol):
    @property
    def engine(self) -> str:
        """Its name and version, for the manifest."""
        ...

    @property
    def fraction(self) -> float | None:
        """How much of the job in hand is done, from 0 to 1; None if unknown. Another thread may ask."""
        ...

    def ready(self, decode: dict[str, Any] | None) -> None:
        """Raise an error now if this writer cannot work here, before a root is made; ``decode`` as in the job."""
        ...

    def write(self, job: WriteJob) -> WriteResult:
        """Do the job, or raise. May leave files whose names begin with ``_`` or ``.`` beside those of messages."""
        ...
