"""The files of a stream's results: Parquet with whatever columns the query has."""

from __future__ import annotations

from klog.errors import CorruptLog
from klog.export.manifest import ExportedFile
from klog.export.stores.store import Store

SUFFIX = ".parquet"


def result_files(store: Store, folder: str, *, thorough: bool = False) -> list[ExportedFile]:
    """The files below a folder with their rows, by path. ``thorough``: read every row, and not only their number.

    CorruptLog for a file that cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = []
    for stored in store.walk(folder):
        if not stored.path.endswith(SUFFIX):
            continue
        try:
            with store.open_input(stored.path) as source, pq.ParquetFile(source) as file:
                rows = file.metadata.num_rows
                if thorough:
                    rows = sum(batch.num_rows for batch in file.iter_batches())
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptLog(f"{store.location(stored.path)} cannot be read: {error}") from None
        found.append(ExportedFile(stored.path.removeprefix(f"{folder}/"), stored.bytes, rows))
    return found
