"""How an export that is a table commits its batches: in the table, and then in the root.

The manifest of a batch that may be committed lies in ``_klog/manifests``, and in ``_klog/commits`` once the table has
the batch. The table's own commit counts, since that is what readers see; it names the batch, the run, and the manifest
by its hash. A process killed between the two leaves a table that is one batch ahead; the next one that looks at the
root finds the manifest of that run and writes the commit.

The table's own tools may merge its files, sort them, and let its old snapshots expire: what the root's manifests say of
offsets and counts still holds for the rows, and `klog export verify` compares those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from klog.errors import Refused, UsageError
from klog.export.batch_writer import is_undecodable
from klog.export.manifest import ExportedFile, ExportIdentity, Manifest, sha256
from klog.export.partitioning import Partitioning
from klog.export.stores.store import Store
from klog.export.tables.table import AddedFile, Table, TableBatch
from klog.protocol.schema_errors import InvalidSchema

MANIFESTS: Final = "_klog/manifests"


def commit_path(batch: int) -> str:
    return f"_klog/commits/{batch:010d}.json"


class TableCommits:
    """The commits of one root."""

    def __init__(self, store: Store, identity: ExportIdentity) -> None:
        self._store = store
        self._by = None if identity.partition_by is None else Partitioning.parse(identity.partition_by)
        self.shown = open_table(store, identity)
        """The table as its readers see it."""
        self.has_others = bool((identity.table or {}).get("append"))
        """Whether others made the table, whose rows without an address are theirs."""

    def commit(self, batch: int, run: str, folder: str, data: bytes) -> bool:
        """Commit a flushed batch. False where the table has a batch of that number, of another run."""
        manifest = Manifest.from_json(data, manifest_path(run))
        files = [
            AddedFile(path := f"{folder}/{one.path}", one.bytes, one.messages, self._partition(path))
            for one in shown_files(manifest)
        ]
        schema = self._schema(files[0].path) if files else schema_of(manifest.decode)
        if not self.has_others:
            self.shown.create(schema, self._by)
        self._check_fit(schema)
        if not self.shown.append(files, schema, TableBatch(batch, run, sha256(data))):
            return False
        self.record(batch, run, data)
        return True

    def check_others(self, decode: dict[str, Any] | None) -> None:
        """Refused where a table that others made is missing, or cannot take klog's rows."""
        hint = None
        if decode is not None and decode.get("form") == "json":  # one odd message in the sample is enough
            hint = "change it so, or give --read-as: a file with an Avro schema that has the table's types"
        self._check_fit(schema_of(decode), hint, is_first=self.shown.last_number() is None)

    def _check_fit(self, schema: Any, hint: str | None = None, *, is_first: bool = False) -> None:
        found = self.shown.misfits(schema, self._by, is_first=is_first)
        if found:
            raise Refused(
                f"{self._store.url}: the table does not fit. {'; '.join(found)}",
                hint=hint or "change it so, or export to another place",
            )

    def record(self, batch: int, run: str, data: bytes) -> None:
        """Write the root's commit of a batch that the table has."""
        self._store.create(commit_path(batch), data)
        self._store.remove(manifest_path(run))

    def settle(self) -> None:
        """Write the commit of a batch that the table has and the root does not know of yet.

        Refused where the table has less than the root knows of, or something else.
        """
        known = self._store.names("_klog/commits")  # first: what the table gets meanwhile is no batch that it lacks
        last = self.shown.last_number()
        newest = int(known[-1].removesuffix(".json")) if known else -1
        if last is None or last < newest:
            if last is not None or any(self._shows(name) for name in known):
                there = "no batch" if last is None else f"batch {last} as the last one"
                raise Refused(
                    f"{self._store.url}: the export has committed batch {newest}, and its table has {there}",
                    hint="bring the table's metadata back from a backup, or export to another place",
                )
            return
        if last == newest:
            return
        found = self.shown.last()
        assert found is not None, "a batch has left the table"
        data = self._store.read(manifest_path(found.run))
        if data is None or sha256(data) != found.sha256:
            if self._store.read(commit_path(found.batch)) is not None:
                return  # another process has written it meanwhile
            raise Refused(
                f"{self._store.location(manifest_path(found.run))} is missing or was changed: "
                f"it is the manifest of batch {found.batch}, which the table has",
                hint="bring the file back from a backup",
            )
        self.record(found.batch, found.run, data)

    def has(self, batch: int, run: str) -> bool:
        """Whether the table has this batch, and from this run."""
        last = self.shown.last_number()
        if last is None or last < batch:
            return False
        data = self._store.read(commit_path(batch))
        if data is not None:
            return Manifest.from_json(data, self._store.location(commit_path(batch))).run == run
        found = self.shown.last()
        return found is not None and found.run == run

    @property
    def folders(self) -> tuple[str, ...]:
        """The columns whose values folders name, NAME=VALUE, and files may lack."""
        return tuple(self.shown.folders(self._by))

    def _shows(self, name: str) -> bool:
        """Whether this commit of the root has rows for the table."""
        path = f"_klog/commits/{name}"
        return bool(shown_files(Manifest.from_json(self._store.read(path) or b"", self._store.location(path))))

    def _partition(self, path: str) -> tuple[Any] | None:
        """What the rows of a file have in common; its first one says it."""
        if self._by is None or self._by.is_time:
            return None
        import pyarrow.parquet as pq

        with self._store.open_input(path) as file:
            rows = next(pq.ParquetFile(file).iter_batches(1, columns=[self._by.column]))
        column = rows.column(0)
        return (self._by.function(column.type)(column[0].as_py()),)

    def _schema(self, path: str) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self._store.open_input(path) as file:
            found = pq.read_schema(file).remove_metadata()
        return pa.schema([field.with_nullable(True) for field in found])  # a count of Spark's is never null, and may be


def schema_of(decode: dict[str, Any] | None) -> Any:
    """Of rows that are not there yet, or of a batch without one, whose messages may all be undecodable. A table without
    columns could not be asked which batches it has."""
    from klog.export.message_columns import SCHEMA

    if decode is None:
        return SCHEMA
    from klog.schemas.decoding.decoder import Decoding

    return Decoding.from_json(decode).typed_schema(SCHEMA)


def grown(
    decode: dict[str, Any] | None, met: Iterable[int], text_of: Callable[[int], str], *, types_stay: bool = False
) -> dict[str, Any] | None:
    """The decoding that has columns for what schemas ``met`` write; ``decode`` itself where it has, or is fixed.

    A schema that no column can follow changes nothing: its messages that cannot be read as the columns are undecodable.

    ``types_stay``: the table's columns cannot become wider ones, and only get company.
    """
    if decode is None or not decode.get("grows"):
        return decode
    from klog.schemas.widening import widened

    reader = before = decode["reader"]
    for schema_id in sorted(met):
        with suppress(InvalidSchema):
            reader = widened(reader, text_of(schema_id), types_stay=types_stay)
    if reader == before:
        return decode
    wider = {**decode, "reader": reader, "reader_id": -1}
    schema_of(wider)  # InvalidSchema where it has no columns
    return wider


def added_columns(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[str]:
    """The names of columns that are new in the second decoding, or of another type."""
    known = list(schema_of(before))
    return [field.name for field in schema_of(after) if field not in known]


def shown_files(manifest: Manifest) -> list[ExportedFile]:
    """A batch's files that are the table's: all but those of messages that could not be decoded."""
    return [one for one in manifest.files if not is_undecodable(one.path)]


def manifest_path(run: str) -> str:
    return f"{MANIFESTS}/{run}.json"


def open_table(store: Store, identity: ExportIdentity) -> Table:
    """UsageError where the package that it needs is not installed."""
    try:
        if identity.commit == "delta":
            from klog.export.tables.delta import Delta

            return Delta(store)
        from klog.export.tables.iceberg import Iceberg
    except ImportError as error:
        raise UsageError(
            f"{store.url} is a table of {identity.commit}, which needs the package {error.name}",
            hint="pip install 'klog[tables]'",
        ) from None
    about = {"name": "", "catalog": None, **(identity.table or {})}
    return Iceberg(store, about["name"] or "", about["catalog"])
