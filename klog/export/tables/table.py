"""What an export needs of a table: to add the files of a batch in one commit, which also says which batch it was."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from klog.errors import Refused, StorageError
from klog.export.partitioning import Partitioning

FORMATS: Final = ("iceberg", "delta")
KEYS: Final = ("klog.batch", "klog.run", "klog.manifest-sha256")
ADDRESS: Final = ("topic", "partition", "offset")
"""Columns of where a message is. In a table that others write to, too, klog's rows are those that have them."""
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


class Column(NamedTuple):
    """A column of a table, or one that rows bring. ``type``: the format's own library's."""

    name: str
    type: Any
    is_required: bool = False


class Table(ABC):
    """One table. Everything blocks; errors are klog's. A format's class has what begins with ``_``, on the library's
    own object for the table."""

    location: str
    conflict: type[Exception]
    """What the library raises where others have committed since the table was read."""

    def last_number(self) -> int | None:
        """The number of klog's last batch in the table; None without a table, and in one without a batch."""
        last = self.last()
        return None if last is None else last.batch

    def last(self) -> TableBatch | None:
        """As `last_number`, with all that the table says of that batch, which may take longer to find."""
        table = self._open()
        return None if table is None else self._last(table)

    def commit_of(self, batch: int) -> str | None:
        """The table's own name of the commit that added the batch; None where its history is kept no longer."""
        table = self._open()
        if table is not None:
            with self._named("read"):
                for name, facts in self._commits(table):
                    found = TableBatch.of(facts)
                    if found is not None and found.batch == batch:
                        return name
        return None

    def hashes(self) -> dict[int, str]:
        """Batch -> the hash of its manifest, as the table's commits say that its history still has."""
        table = self._open()
        if table is None:
            return {}
        with self._named("read"):
            found = [TableBatch.of(facts) for _, facts in self._commits(table)]
        return {one.batch: one.sha256 for one in (*found, self._last(table)) if one is not None and one.sha256}

    @abstractmethod
    def _commits(self, table: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Each commit that the table knows, by name, with the facts in it."""

    def create(self, schema: Any, by: Partitioning | None) -> None:
        """Make the table with the columns of an Arrow schema; nothing happens where it is there."""
        if self._open() is not None:
            return
        try:
            with self._named("create"):
                self._create(schema, by)
        except StorageError:
            if self._open() is None:  # another run may have been quicker
                raise

    @abstractmethod
    def misfits(self, schema: Any, by: Partitioning | None, *, is_first: bool) -> list[str]:
        """A sentence for each column, or other property, of the table that keeps rows of the Arrow schema out.

        ``is_first``: the table has no row of klog's yet, so no column of its own may be one that tells which rows are.
        Refused where there is no table."""

    def append(self, files: Sequence[AddedFile], schema: Any, batch: TableBatch) -> bool:
        """Add the files and record the batch in one commit, behind whatever others commit meanwhile. False, and no row
        added, where the table has a batch of that number already. ``schema``: the Arrow schema of all files; the table
        gets what it lacks of that."""
        for _ in range(TRIES):
            table = self._existing()
            last = self._last(table)
            if last is not None and last.batch >= batch.batch:
                return last == batch  # where an error hid that it was committed
            try:
                with self._named("commit to"):
                    self._commit(table, files, schema, batch)
                return True
            except StorageError as error:
                if not isinstance(error.__cause__, self.conflict):
                    raise
        raise StorageError(f"{self.location}: others committed to the table {TRIES} times first")

    def files(self) -> list[str]:
        """The files whose rows a reader sees now, below `location`, or where they are if they lie elsewhere.

        Refused where some of their rows are deleted by other files."""
        table = self._existing()
        with self._named("read"):
            found = [str(one) for one in self._files(table)]
        places = {f"{one.rstrip('/')}/" for one in (self.location, self.location.removeprefix("file://"))}
        return [next((one[len(place) :] for place in places if one.startswith(place)), one) for one in found]

    def folders(self, by: Partitioning | None) -> Sequence[str]:
        """The columns whose values folders name, NAME=VALUE, and files may lack."""
        return ()

    def _deleted_beside(self) -> Refused:
        return Refused(
            f"{self.location}: rows of the table are deleted by files beside the data, which only its own readers know",
            hint="read it by the table's own format, or have the table's own tools rewrite its files",
        )

    def count(self) -> int:
        """The rows that a reader sees now."""
        table = self._open()
        with self._named("read"):
            return 0 if table is None else int(self._count(table))

    def scan(self, columns: Sequence[str]) -> Iterator[Any]:
        """These columns of all rows that a reader sees now, as Arrow record batches."""
        table = self._open()
        if table is not None:
            with self._named("read"):
                yield from self._scan(table, columns)

    def _existing(self) -> Any:
        table = self._open()
        if table is None:
            raise self._missing()
        return table

    @abstractmethod
    def _missing(self) -> Refused:
        """That there is no table, and what brings it back."""

    @abstractmethod
    def _named(self, act: str) -> AbstractContextManager[None]:
        """Within, the library's errors are in klog's words."""

    @abstractmethod
    def _open(self) -> Any | None: ...

    @abstractmethod
    def _last(self, table: Any) -> TableBatch | None: ...

    @abstractmethod
    def _create(self, schema: Any, by: Partitioning | None) -> None: ...

    @abstractmethod
    def _commit(self, table: Any, files: Sequence[AddedFile], schema: Any, batch: TableBatch) -> None:
        """Raises `conflict` where others have committed since the table was read."""

    @abstractmethod
    def _files(self, table: Any) -> Iterable[str]: ...

    @abstractmethod
    def _count(self, table: Any) -> Any: ...

    @abstractmethod
    def _scan(self, table: Any, columns: Sequence[str]) -> Any: ...


def other_partitions(found: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """`Table.misfits` of how the table is divided."""
    both = [", ".join(names) or "no partitions" for names in (found, wanted)]
    return [f"partitions: found {both[0]}, expected {both[1]}: say so by --partition-by"] if both[0] != both[1] else []


def unfit(
    there: Sequence[Column], wanted: Sequence[Column], same: Callable[[Any, Any], bool], *, is_first: bool
) -> list[str]:
    """`Table.misfits` of the columns. ``same``: whether a column of the first type takes the second."""
    by_name = {column.name.lower(): column for column in wanted}
    found = []
    for column in there:
        want = by_name.get(column.name.lower())
        has = f"{column.name}: found {_text(column.type)}"
        if column.is_required:
            found.append(f"{has} that must not be null, expected a column that may: drop its NOT NULL")
        elif want is not None and is_first and want.name in ADDRESS:
            found.append(f"{has}, expected no such column, since klog's rows are known by it: rename it")
        elif want is not None and column.name != want.name:
            found.append(f"{has}, expected the name {want.name}: rename it")
        elif want is not None and not _takes(column.type, want.type, same):
            found.append(f"{has}, expected {_text(want.type)}: rename it, or change its type")
    return found


def _takes(found: Any, wanted: Any, same: Callable[[Any, Any], bool]) -> bool:
    """pyiceberg's types and deltalake's have the same attributes, but for a field's type."""
    if type(found) is type(wanted):
        if fields := getattr(found, "fields", None):
            types = {field.name: _type(field) for field in fields}
            return all(one.name not in types or _takes(types[one.name], _type(one), same) for one in wanted.fields)
        parts = [name for name in ("element_type", "key_type", "value_type") if hasattr(found, name)]
        if parts:
            return all(_takes(getattr(found, name), getattr(wanted, name), same) for name in parts)
    return same(found, wanted)


def _type(field: Any) -> Any:
    return field.field_type if hasattr(field, "field_type") else field.type


def _text(type_: Any) -> str:
    return str(getattr(type_, "type", type_))
