"""``format("klog")``: a topic's messages as Spark rows, read in batches of Arrow; and rows as messages.

The columns and options are those of Spark's Kafka connector (`klog.spark.options`). What is read is decided once, on
the driver; a task reads its ranges exactly: fewer messages than the broker counted there is an error, never a short
answer. Spark pickles source, reader and tasks, so connections are made where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from klog.client.raw_fetch import RawCluster
from klog.errors import KlogError
from klog.spark import options as source_options
from klog.spark.options import SourceOptions, columns_of
from klog.spark.planning import plan
from klog.spark.sink import KlogStreamWriter, KlogWriter
from klog.spark.sink_options import SINK_NAMES, SinkOptions
from klog.spark.stream import KlogStreamReader
from klog.spark.tasks import TaskPartition, TaskReader, as_rows, check_pyarrow, until_left

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KlogDataSource", "KlogReader", "TaskPartition"]

_DDL = {
    "key": "key binary",
    "value": "value binary",
    "topic": "topic string",
    "partition": "partition int",
    "offset": "offset bigint",
    "timestamp": "timestamp timestamp",
    "timestampType": "timestampType int",
    "headers": "headers array<struct<key: string, value: binary>>",
}

_NAMES = (
    *source_options.BATCH_NAMES,
    *source_options.STREAM_NAMES,
    *source_options.NO_USE_NAMES,
    *SINK_NAMES,
)


class KlogDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """The entry point that Spark finds by name."""

    @classmethod
    def name(cls) -> str:
        return "klog"

    def schema(self) -> str:
        check_pyarrow()
        source_options.check_names(self.options, _NAMES)
        return ", ".join(_DDL[column] for column in columns_of(self.options))

    def reader(self, schema: Any) -> KlogReader:
        return KlogReader(SourceOptions.parse(self.options))

    def streamReader(self, schema: Any) -> KlogStreamReader | RefusedStream:
        try:
            return KlogStreamReader(SourceOptions.parse(self.options, streaming=True))
        except KlogError as error:  # raised here, it is lost: Spark's runner then fails over a reader that it has not
            return RefusedStream(error)

    def writer(self, schema: Any, overwrite: bool) -> KlogWriter:
        found = KlogWriter(self._sink(schema), overwrite)
        with RawCluster(
            found.options.bootstrap
        ):  # each try of a task would wait minutes for brokers that are not there
            return found

    def streamWriter(self, schema: Any, overwrite: bool) -> KlogStreamWriter:
        return KlogStreamWriter(self._sink(schema))

    def _sink(self, schema: Any) -> SinkOptions:
        check_pyarrow()
        source_options.check_names(self.options, _NAMES)
        return SinkOptions.parse(self.options, schema)


class RefusedStream(DataSourceStreamReader):  # type: ignore[misc]
    """In place of a reader whose options are wrong: says so as soon as the query asks it anything."""

    def __init__(self, error: KlogError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        raise self._error

    def getDefaultReadLimit(self) -> Any:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        raise self._error

    def read(self, partition: Any) -> Iterator[Any]:
        raise self._error


class KlogReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[TaskPartition]:
        return [TaskPartition(number, task) for number, task in enumerate(plan(self.options))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return until_left(as_rows(TaskReader(self.options).read(partition)))
