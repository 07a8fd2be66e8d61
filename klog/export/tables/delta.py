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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from klog.errors import Refused, StorageError
from klog.export.partitioning import NULL_FOLDER, Partitioning
from klog.export.stores.objects import is_without_tls
from klog.export.stores.store import Store
from klog.export.tables.table import AddedFile, Column, Table, TableBatch, other_partitions, unfit

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


class Delta(Table):
    """The table at the root of a store."""

    conflict = CommitFailedError

    def __init__(self, store: Store) -> None:
        self._store = store
        self.location = store.location("")
        self._options = {"allow_http": "true"} if is_without_tls(store.url) else None

    def last_number(self) -> int | None:
        table = self._open()
        if table is None:
            return None
        with self._named("read"):
            return table.transaction_version(APP_ID)

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

    def _commits(self, table: DeltaTable) -> Iterator[tuple[str, Mapping[str, Any]]]:
        return ((f"version {one['version']}", one) for one in table.history())

    def _create(self, schema: Any, by: Partitioning | None) -> None:
        columns = _columns_of(by)
        for name in columns if by is not None and by.is_time else ():
            schema = schema.append(pa.field(name, pa.date32() if name == "dt" else pa.int32()))
        DeltaTable.create(
            self.location, schema, mode="ignore", partition_by=columns or None, storage_options=self._options
        )

    def misfits(self, schema: Any, by: Partitioning | None, *, is_first: bool) -> list[str]:
        table = self._existing()
        with self._named("read"):
            fields, about, protocol = table.schema().fields, table.metadata(), table.protocol()
        found = unfit(
            [Column(one.name, one.type, not one.nullable) for one in fields],
            [Column(one.name, one.type) for one in Schema.from_arrow(schema).fields],
            operator.eq,
            is_first=is_first,
        )
        if is_first:
            found += other_partitions(about.partition_columns, _columns_of(by))
        rules = [name for name in about.configuration if name.startswith("delta.constraints.")]
        rules += [f"{one.name}: {name}" for one in fields for name in one.metadata if name.startswith("delta.")]
        rules += sorted(set(protocol.writer_features or ()) - FEATURES)
        return found + [f"{rule}: found, expected none, since klog does not write by it: remove it" for rule in rules]

    def _commit(self, table: DeltaTable, files: Sequence[AddedFile], schema: Any, batch: TableBatch) -> None:
        now_ms = time.time_ns() // 1_000_000
        columns = table.metadata().partition_columns
        actions = [self._action(file, columns, now_ms) for file in files]
        known = {field.name: field.type for field in table.schema().fields}
        added = [field for field in Schema.from_arrow(schema).fields if known.get(field.name) != field.type]
        if added:
            table.alter.add_columns(added)  # a commit of its own, before the rows'
        properties = CommitProperties(batch.facts, 0, [Transaction(APP_ID, batch.batch, now_ms)])
        table.create_write_transaction(actions, "append", table.schema(), columns or None, commit_properties=properties)
        self._store.sync("_delta_log")

    def folders(self, by: Partitioning | None) -> Sequence[str]:
        return _columns_of(by)

    def _files(self, table: DeltaTable) -> list[str]:
        if "deletionVectors" in (table.protocol().reader_features or ()):
            raise self._deleted_beside()
        return list(table.file_uris())

    def _count(self, table: DeltaTable) -> Any:
        return table.to_pyarrow_dataset().count_rows()

    def _scan(self, table: DeltaTable, columns: Sequence[str]) -> Any:
        return table.to_pyarrow_dataset().scanner(columns=list(columns)).to_batches()

    def _action(self, file: AddedFile, columns: Sequence[str], now_ms: int) -> Any:
        if file.partition is None:
            named = dict(part.split("=", 1) for part in file.path.split("/") if "=" in part)
            values = {name: None if named[name] == NULL_FOLDER else named[name] for name in columns}
        else:
            values = dict(zip(columns, map(_text, file.partition), strict=True))
        return AddAction(file.path, file.bytes, values, now_ms, True, json.dumps({"numRecords": file.messages}))

    def _open(self) -> DeltaTable | None:
        with self._named("open"):
            try:
                return DeltaTable(self.location, storage_options=self._options)
            except TableNotFoundError:
                return None

    def _missing(self) -> Refused:
        return Refused(
            f"{self.location} is no Delta table",
            hint="bring the folder _delta_log back from a backup, or, for a new table, leave --append out",
        )

    @contextmanager
    def _named(self, act: str) -> Iterator[None]:
        """The library's errors in klog's words."""
        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            raise StorageError(f"{self.location}: cannot {act} the Delta table: {error}") from error


def _columns_of(by: Partitioning | None) -> list[str]:
    """By which the table is divided."""
    return [] if by is None else list(FOLDERS.get(by.transform, (by.column,)))


def _text(value: Any) -> str | None:
    """A partition's value as the protocol has it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
