"""What an export needs of a table: to add the files of a batch in one commit, which also says which batch it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from klog.errors import StorageError
from klog.export.partitioning import Partitioning

T = TypeVar("T")

FORMATS: Final = ("iceberg", "delta")
KEYS: Final = ("klog.batch", "klog.run", "klog.manifest-sha256")
TRIES: Final = 20
"""Of a commit that others precede, such as the table's own compaction."""


@dataclass(frozen=True, slots=True)
class TableBatch:
    """The last batch of klog's in a table: its number, its run, and the SHA-256 of its manifest."""

    batch: int
    run: str
    sha256: str

    @property
    def facts(self) -> dict[str, str]:
        """As the commit has it that adds the batch."""
        return dict(zip(KEYS, (str(self.batch), self.run, self.sha256), strict=True))

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> TableBatch | None:
        """Out of the facts of a commit; None where they lack one of it."""
        number, run, sha256 = (facts.get(key) for key in KEYS)
        return None if number is None or run is None or sha256 is None else cls(int(number), str(run), str(sha256))


class AddedFile(NamedTuple):
    """A Parquet file to be part of the table."""

    path: str
    """Relative to the table's location."""
    bytes: int
    messages: int
    partition: tuple[Any] | None = None
    """What all its rows have in common, where the table is divided by a column; that may be null."""


class Table(Protocol):
    """One table. Everything blocks; errors are klog's."""

    def last_number(self) -> int | None:
        """The number of klog's last batch in the table; None without a table, and in one without a batch."""
        ...

    def last(self) -> TableBatch | None:
        """As `last_number`, with all that the table says of that batch, which may take longer to find."""
        ...

    def create(self, schema: Any, by: Partitioning | None) -> None:
        """Make the table with the columns of an Arrow schema; nothing happens where it is there."""
        ...

    def append(self, files: Sequence[AddedFile], schema: Any, batch: TableBatch) -> bool:
        """Add the files and record the batch in one commit. False, and no row added, where the table has a batch of
        that number already. ``schema``: the Arrow schema of all files; the table gets what it lacks of that. Refused
        where a type of the table's cannot become the files'."""
        ...

    def count(self) -> int:
        """The rows that a reader sees now."""
        ...

    def scan(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns of all rows that a reader sees now, as Arrow record batches."""
        ...


def append_once(
    where: str, batch: TableBatch, look: Callable[[], tuple[T, TableBatch | None]], commit: Callable[[T], bool]
) -> bool:
    """`Table.append`: commit behind whatever others commit meanwhile, but for a batch of the same number.

    ``look``: the table, and klog's last batch in it. ``commit``: False where others preceded it.
    """
    for _ in range(TRIES):
        table, last = look()
        if last is not None and last.batch >= batch.batch:
            return last == batch  # where an error hid that it was committed
        if commit(table):
            return True
    raise StorageError(f"{where}: others committed to the table {TRIES} times first")
