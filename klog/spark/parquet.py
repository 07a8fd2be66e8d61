"""Spark tasks that write Parquet themselves and hand Spark the files' names.

Strategy: a task has its messages as Arrow columns, and Arrow writes Parquet four times as fast as Spark does (which
turns every row into its own form first), so only the scheduling and the retries are Spark's. Each attempt of a task
writes a file with a name of its own; Spark returns what the attempts that counted have yielded, and every other file in
the folder is what a failed one left.

Limits: the tasks' file system is the driver's. Other formats and stores want Spark's own writers.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from klog.spark.options import SourceOptions
from klog.spark.source import KlogReader, TaskPartition

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Of Arrow data: what a task holds in memory, and large enough for readers to skip and to compress well."""

COMPRESSION = "zstd"
"""Half of snappy's bytes for about the same time."""

DICTIONARIES = ["topic", "partition", "timestampType", "headers.list.element.key"]
"""Columns with few values. Keys, values and offsets mostly differ: hashing them all costs more than it saves."""

STATISTICS = ["topic", "partition", "offset", "timestamp"]
"""What readers choose row groups by."""


class ParquetFiles(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """``format("klog-parquet-files")``: reading it writes files to the folder of its option; its rows are the files.

    Options as ``format("klog")``, and ``folder``.
    """

    @classmethod
    def name(cls) -> str:
        return "klog-parquet-files"

    def schema(self) -> str:
        return "file string, messages bigint"

    def reader(self, schema: Any) -> ParquetTasks:
        return ParquetTasks(SourceOptions.parse(self.options), self.options["folder"])


class ParquetTasks(KlogReader):
    """Plans as the reader of messages does; a task writes what that one would have handed to Spark."""

    def __init__(self, options: SourceOptions, folder: str) -> None:
        super().__init__(options)
        self.folder = folder

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if not isinstance(partition, TaskPartition):
            return
        file = f"part-{partition.number:05d}-{uuid.uuid4()}.{COMPRESSION}.parquet"
        messages = write(Path(self.folder, file), super().read(partition))
        if messages:
            yield pa.RecordBatch.from_pydict({"file": [file], "messages": [messages]})


def write(path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Write all batches as one file and return the number of rows; no file where there are none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    group: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            writer = writer or pq.ParquetWriter(
                path,
                batch.schema,
                compression=COMPRESSION,
                use_dictionary=DICTIONARIES,
                write_statistics=STATISTICS,
                write_page_checksum=True,
            )
            group.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if size >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group))
                group, size = [], 0
        if writer is not None and group:
            writer.write_table(pa.Table.from_batches(group))
    finally:
        if writer is not None:
            writer.close()
    return rows
