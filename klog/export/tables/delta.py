"""A Delta table, by delta-rs.

Format
    A batch is one commit: its files as ``add``, ``txn`` with ``appId`` "klog" and the batch's number as ``version``
    (which a checkpoint keeps), and in ``commitInfo`` ``klog.batch``, ``klog.run`` and ``klog.manifest-sha256``.

Rules
    * Two runs that commit the same batch conflict, since both write the ``txn`` of one ``appId``: one of them fails.
"""

from __future__ import annotations

import json
import operator
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from klog.errors import Refused, StorageError, UsageError
from klog.export.partitioning import NULL_FOLDER, Partitioning
from klog.export.stores.objects import is_without_tls
from klog.export.stores.store import Store
from klog.export.tables.table import AddedFile, Column, TableBatch, append_once, unfit

if TYPE_CHECKING:
    from deltalake import DeltaTable

APP_ID: Final = "klog"
NEWEST: Final = 10
"""Among so many commits the last one of klog's is looked for at first, before the whole log."""
FEATURES: Final = {
    *("appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors", "generatedColumns", "invariants"),
    *("timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"),
}
"""Features of a table that ask nothing of who adds files, or nothing where no column and no setting uses them."""
FOLDERS: Final = {"day": ("dt",), "hour": ("dt", "hour")}
"""Partitioning by time -> its columns, which the files lack: their folders name the values."""


class Delta:
    """The table at the root of a store."""

    def __init__(self, store: Store) -> None:
        try:
            import deltalake  # noqa: F401
        except ImportError:
            raise UsageError(
                f"{store.url} is a Delta table, which needs the package deltalake", hint="pip install 'klog[tables]'"
            ) from None
        self._store = store
        self._url = store.location("")
        self._options = {"allow_http": "true"} if is_without_tls(store.url) else None

    def last_number(self) -> int | None:
        table = self._open()
        if table is None:
            return None
        with self._named("read"):
            return table.transaction_version(APP_ID)

    def last(self) -> TableBatch | None:
        table = self._open()
        return None if table is None else self._last(table)

    def _last(self, table: DeltaTable) -> TableBatch | None:
        with self._named("read"):
            version = table.transaction_version(APP_ID)
            if version is None:
                return None
            for limit in (NEWEST, None):
                for commit in table.history(limit):
                    found = TableBatch.of(commit)
                    if found is not None and found.batch == version:
                        return found
        return TableBatch(version, "", "")  # its commit has left the log, long after it was recorded

    def create(self, schema: Any, by: Partitioning | None) -> None:
        import pyarrow as pa
        from deltalake import DeltaTable

        columns = _columns_of(by)
        for name in columns if by is not None and by.is_time else ():
            schema = schema.append(pa.field(name, pa.date32() if name == "dt" else pa.int32()))
        try:
            with self._named("create"):
                DeltaTable.create(
                    self._url, schema, mode="ignore", partition_by=columns or None, storage_options=self._options
                )
        except StorageError:
            if self._open() is None:  # another run may have been quicker
                raise

    def misfits(self, schema: Any, by: Partitioning | None, *, is_first: bool) -> list[str]:
        from deltalake import Schema

        table = self._existing()
        with self._named("read"):
            fields, about, protocol = table.schema().fields, table.metadata(), table.protocol()
        found = unfit(
            [Column(one.name, one.type, not one.nullable) for one in fields],
            [Column(one.name, one.type) for one in Schema.from_arrow(schema).fields],
            operator.eq,
            is_first=is_first,
        )
        if is_first and about.partition_columns != _columns_of(by):
            both = [", ".join(names) or "no partitions" for names in (about.partition_columns, _columns_of(by))]
            found.append(f"partitions: found {both[0]}, expected {both[1]}: say so by --partition-by")
        rules = [name for name in about.configuration if name.startswith("delta.constraints.")]
        rules += [f"{one.name}: {name}" for one in fields for name in one.metadata if name.startswith("delta.")]
        rules += sorted(set(protocol.writer_features or ()) - FEATURES)
        return found + [f"{rule}: found, expected none, since klog does not write by it: remove it" for rule in rules]

    def append(self, files: Sequence[AddedFile], schema: Any, batch: TableBatch) -> bool:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        now_ms = time.time_ns() // 1_000_000
        properties = CommitProperties(batch.facts, 0, [Transaction(APP_ID, batch.batch, now_ms)])

        def look() -> tuple[DeltaTable, TableBatch | None]:
            table = self._existing()
            return table, self._last(table)

        def commit(table: DeltaTable) -> bool:
            with self._named("read"):
                columns = table.metadata().partition_columns
            actions = [self._action(file, columns, now_ms) for file in files]
            try:
                self._grow(table, schema)
                with self._named("commit to"):
                    table.create_write_transaction(
                        actions, "append", table.schema(), columns or None, commit_properties=properties
                    )
            except StorageError as error:
                if isinstance(error.__cause__, CommitFailedError):
                    return False
                raise
            self._store.sync("_delta_log")
            return True

        return append_once(self._url, batch, look, commit)

    def _grow(self, table: DeltaTable, wanted: Any) -> None:
        """Add the columns, and fields of columns, that the table lacks: a commit of its own, before the rows'."""
        from deltalake import Schema

        known = {field.name: field.type for field in table.schema().fields}
        added = [field for field in Schema.from_arrow(wanted).fields if known.get(field.name) != field.type]
        if added:
            with self._named("add columns to"):
                table.alter.add_columns(added)

    def count(self) -> int:
        table = self._open()
        with self._named("read"):
            return 0 if table is None else int(table.to_pyarrow_dataset().count_rows())

    def scan(self, columns: Sequence[str]) -> Iterator[Any]:
        table = self._open()
        if table is None:
            return
        with self._named("read"):
            yield from table.to_pyarrow_dataset().scanner(columns=list(columns)).to_batches()

    def _action(self, file: AddedFile, columns: Sequence[str], now_ms: int) -> Any:
        from deltalake.transaction import AddAction

        if file.partition is None:
            named = dict(part.split("=", 1) for part in file.path.split("/") if "=" in part)
            values = {name: None if named[name] == NULL_FOLDER else named[name] for name in columns}
        else:
            values = dict(zip(columns, map(_text, file.partition), strict=True))
        return AddAction(file.path, file.bytes, values, now_ms, True, json.dumps({"numRecords": file.messages}))

    def _open(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with self._named("open"):
            try:
                return DeltaTable(self._url, storage_options=self._options)
            except TableNotFoundError:
                return None

    def _existing(self) -> DeltaTable:
        table = self._open()
        if table is None:
            raise Refused(
                f"{self._url} is no Delta table",
                hint="bring the folder _delta_log back from a backup, or, for a new table, leave --append out",
            )
        return table

    @contextmanager
    def _named(self, act: str) -> Iterator[None]:
        """The library's errors in klog's words."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            raise StorageError(f"{self._url}: cannot {act} the Delta table: {error}") from error


def _columns_of(by: Partitioning | None) -> list[str]:
    """By which the table is divided."""
    return [] if by is None else list(FOLDERS.get(by.transform, (by.column,)))


def _text(value: Any) -> str | None:
    """A partition's value as the protocol has it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
