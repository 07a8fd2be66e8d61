"""An Iceberg table, by pyiceberg.

Format
    A batch is one commit of two changes: a snapshot that adds the files, with ``klog.batch``, ``klog.run`` and
    ``klog.manifest-sha256`` in its summary, and the same three as properties of the table, which say what the last
    batch was when old snapshots have expired.

Catalogue
    Without another one, a table has a catalogue of its own: SQLite, in ``ROOT/_klog/catalog.db``. Others (REST, Hive,
    SQL) are named by their address; pyiceberg's own settings (``~/.pyiceberg.yaml``, ``PYICEBERG_CATALOG__KLOG__*``)
    add what they need besides, such as credentials. Any other text is the name of a catalogue in those settings.

Rules
    * A commit requires the snapshot that was read before it. pyiceberg would repeat a failed commit on top of whatever
      was committed meanwhile, a batch of the same number too; so it is kept from that, and what is there is read again.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, ResolveError
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import (
    PyArrowFile,
    PyArrowFileIO,
    _pyarrow_to_schema_without_ids,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import promote
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, IcebergType, StringType
from pyiceberg.utils.config import Config
from sqlalchemy.exc import SQLAlchemyError

from klog.errors import Refused, StorageError, UsageError
from klog.export.partitioning import Partitioning
from klog.export.stores.objects import s3_endpoint
from klog.export.stores.store import Store, scheme_of
from klog.export.tables.table import AddedFile, Column, Table, TableBatch, other_partitions, unfit
from klog.storage.filesystem import OsFileSystem

CATALOG: Final = "klog"
"""The name by which pyiceberg's configuration knows the catalogue."""
NAMESPACE: Final = "klog"
CATALOG_FILE: Final = "_klog/catalog.db"
_RETRIES: Final = "commit.retry.num-retries"


class Iceberg(Table):
    """The table at the root of a store. ``catalog``: its address; None: a file in the root."""

    conflict = CommitFailedException

    def __init__(self, store: Store, name: str, catalog: str | None) -> None:
        local = scheme_of(store.url) == "file"
        if catalog is None and not local:
            raise UsageError(
                f"{store.url}: an Iceberg table there needs a catalogue",
                hint="--catalog URI, such as that of a REST catalogue, or sqlite:////path/of/a/file",
            )
        self._store = store
        place = store.location("").rstrip("/")
        self.location = f"file://{place}" if local else place.replace("s3a://", "s3://", 1)
        self._address = catalog or f"sqlite:///{store.location(CATALOG_FILE)}"
        self._name = tuple(name.split("."))
        self._opened: Catalog | None = None

    def _last(self, table: IcebergTable) -> TableBatch | None:
        return TableBatch.of(table.properties)

    def _commits(self, table: IcebergTable) -> Iterator[tuple[str, Mapping[str, Any]]]:
        return (
            (f"snapshot {one.snapshot_id}", {} if one.summary is None else one.summary.additional_properties)
            for one in table.metadata.snapshots
        )

    def _create(self, schema: Any, by: Partitioning | None) -> None:
        self._catalog().create_namespace_if_not_exists(self._name[:-1])
        making = self._catalog().create_table_transaction(
            self._name, schema, self.location, properties={"format-version": "2"}
        )
        with making:
            if by is not None:
                with making.update_spec() as spec:
                    spec.add_field(by.column, by.as_iceberg(), by.label)

    def misfits(self, schema: Any, by: Partitioning | None, *, is_first: bool) -> list[str]:
        table = self._existing()
        place = table.location().rstrip("/").replace("s3a://", "s3://", 1)
        if self.location not in (place, f"file://{place}"):
            raise Refused(f"the table {'.'.join(self._name)} does not lie at {self.location}", hint=f"--to {place}")
        there = table.schema()
        found = unfit(
            [Column(one.name, one.field_type, one.required) for one in there.fields],
            [Column(one.name, one.field_type) for one in _pyarrow_to_schema_without_ids(schema).fields],
            _takes,
            is_first=is_first,
        )
        parts = [f"{one.transform}({there.find_column_name(one.source_id)})" for one in table.spec().fields]
        wanted = [] if by is None else [f"{by.as_iceberg()}({by.column})"]
        return found + (other_partitions(parts, wanted) if is_first else [])

    def _commit(self, table: IcebergTable, files: Sequence[AddedFile], schema: Any, batch: TableBatch) -> None:
        table.metadata.properties[_RETRIES] = "0"  # of this copy alone
        with table.transaction() as adding:
            adding.set_properties(batch.facts)
            with adding.update_schema() as wider:
                wider.union_by_name(schema)
            if adding.table_metadata.name_mapping() is None:
                mapping = adding.table_metadata.schema().name_mapping.model_dump_json()
                adding.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
            # Also without files: of two runs that commit this batch one must fail.
            with adding.update_snapshot(batch.facts).fast_append() as rows:
                for file in files:
                    path = f"{self.location}/{file.path}"
                    rows.append_data_file(_data_file(table, adding.table_metadata, path, file))

    def _files(self, table: IcebergTable) -> Iterator[str]:
        for task in table.scan().plan_files():
            if task.delete_files:
                raise self._deleted_beside()
            yield task.file.file_path

    def _count(self, table: IcebergTable) -> Any:
        return table.scan().count()

    def _scan(self, table: IcebergTable, columns: Sequence[str]) -> Any:
        return table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()

    def _catalog(self) -> Catalog:
        if self._opened is None:
            name, more = CATALOG, {"py-io-impl": f"{__name__}.DurableFileIO"}
            if ":" not in self._address:
                name = self._address
            else:
                more |= {"uri": self._address, "warehouse": self.location}
                if not self._address.startswith(("http:", "https:", "thrift:")):
                    more["type"] = "sql"
            endpoint = s3_endpoint(self._store.url)
            if endpoint is not None and "s3.endpoint" not in (Config().get_catalog_config(name) or {}):
                more["s3.endpoint"] = endpoint  # of the variables that all others go by; pyiceberg has its own alone
            with self._named("open the catalogue of"):
                self._opened = load_catalog(name, **more)
        return self._opened

    def _open(self) -> IcebergTable | None:
        if self._address.endswith(CATALOG_FILE) and CATALOG_FILE.rpartition("/")[2] not in self._store.names("_klog"):
            return None  # to look for a table would make the file
        with self._named("open"):
            try:
                return self._catalog().load_table(self._name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def _missing(self) -> Refused:
        return Refused(
            f"the catalogue {self._address} has no table {'.'.join(self._name)}",
            hint="register the table there again (its metadata is in the root's folder metadata), or, for a new "
            "one, leave --append out",
        )

    @contextmanager
    def _named(self, act: str) -> Iterator[None]:
        """The libraries' errors in klog's words."""
        try:
            yield
        except Exception as error:
            is_pyicebergs = type(error).__module__.partition(".")[0] == "pyiceberg"
            if not is_pyicebergs and not isinstance(error, SQLAlchemyError | OSError | ValueError | TypeError):
                raise
            raise StorageError(f"{self.location}: cannot {act} the Iceberg table: {error}") from error


def _takes(found: IcebergType, wanted: IcebergType) -> bool:
    """Whether a column takes the values, or may become wide enough for them."""
    if found == wanted:
        return True
    if {found, wanted} == {BinaryType(), StringType()}:
        return False  # pyiceberg reads one as the other
    for narrow, wide in ((found, wanted), (wanted, found)):
        with suppress(ResolveError):
            promote(narrow, wide)
            return True
    return False


def _data_file(table: IcebergTable, metadata: TableMetadata, path: str, file: AddedFile) -> DataFile:
    """As pyiceberg's own for ``add_files``, which cannot know the partition of a hash."""
    with table.io.new_input(path).open() as source:
        found = pq.read_metadata(source)
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        found, compute_statistics_plan(schema, metadata.properties), parquet_path_to_id_mapping(schema)
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(metadata.spec(), schema) if file.partition is None else Record(*file.partition),
        file_size_in_bytes=file.bytes,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


# --- Files on a local disk --------------------------------------------------------------------------------------------


class DurableFileIO(PyArrowFileIO):
    """As pyiceberg's own; a local file that was closed outlives a power cut, and so does its name: a catalogue must not
    name metadata that a power cut takes away."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _DurableFile(location, path, self.fs_by_scheme(scheme, netloc))


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        return _DurableStream(io.FileIO(self._path, "w" if overwrite else "x"))


class _DurableStream(io.BufferedWriter):
    """What is written to a file, flushed when it is closed."""

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        files = OsFileSystem()
        files.open(self.name).sync()
        files.sync_folder(str(Path(self.name).parent))
