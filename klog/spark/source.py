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
from klog.errors import KlogError, UsageError
from klog.spark.option_table import unknown, warn_of, without_effect
from klog.spark.options import SourceOptions, columns_of
from klog.spark.planning import plan
from klog.spark.short_errors import short_errors
from klog.spark.sink import KlogStreamWriter, KlogWriter
from klog.spark.sink_options import SinkOptions
from klog.spark.stream import KlogStreamReader
from klog.spark.tasks import TaskPartition, check_pyarrow, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KlogDataSource", "KlogReader", "TaskPartition"]


class KlogDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """The entry point that Spark finds by name."""

    @classmethod
    def name(cls) -> str:
        return "klog"

    @short_errors()
    def schema(self) -> Any:
        check_pyarrow()
        self._check_view()
        import pyarrow as pa
        from pyspark.sql.pandas.types import from_arrow_schema

        from klog.export.message_columns import SCHEMA

        return from_arrow_schema(pa.schema([SCHEMA.field(column) for column in columns_of(self.options)]))

    @short_errors()
    def reader(self, schema: Any) -> KlogReader:
        return KlogReader(self._source(schema, streaming=False), without_effect(self.options, streaming=False))

    def streamReader(self, schema: Any) -> KlogStreamReader | RefusedStream:
        try:
            return KlogStreamReader(self._source(schema, streaming=True), without_effect(self.options, streaming=True))
        except KlogError as error:  # raised here, it is lost: Spark's runner then fails over a reader that it has not
            return RefusedStream(error)

    @short_errors()
    def writer(self, schema: Any, overwrite: bool) -> KlogWriter:
        if overwrite:
            raise UsageError("a log is appended to, nothing in it is overwritten", hint='write .mode("append")')
        found = KlogWriter(self._sink(schema))
        with RawCluster(
            found.options.bootstrap
        ):  # each try of a task would wait minutes for brokers that are not there
            return found

    @short_errors()
    def streamWriter(self, schema: Any, overwrite: bool) -> KlogStreamWriter:
        return KlogStreamWriter(self._sink(schema))

    def _source(self, schema: Any, *, streaming: bool) -> SourceOptions:
        """Checked here too: Spark does not ask for a schema where the query has named one."""
        check_pyarrow()
        self._check_view()
        options = SourceOptions.parse(self.options, streaming=streaming)
        if [field.name for field in schema.fields] != list(options.columns):
            raise UsageError(
                f'format("klog") has the columns {", ".join(options.columns)}, and takes no other schema',
                hint='leave out .schema(...); the option "columns" chooses some of them, includeHeaders adds headers',
            )
        return options

    def _sink(self, schema: Any) -> SinkOptions:
        check_pyarrow()
        self._check_view()
        warn_of(unknown(self.options))
        return SinkOptions.parse(self.options, schema)

    def _check_view(self) -> None:
        if "provider" in self.options:
            raise UsageError(
                "a table of Spark's catalog cannot be of this format: Spark does not hand its options to the planner",
                hint="CREATE TEMPORARY VIEW ... USING klog OPTIONS (...)",
            )


class RefusedStream(DataSourceStreamReader):  # type: ignore[misc]
    """In place of a reader whose options are wrong: says so as soon as the query asks it anything."""

    def __init__(self, error: KlogError) -> None:
        self._error = error

    @short_errors()
    def latestOffset(self, *_: Any) -> Any:
        raise self._error

    initialOffset = getDefaultReadLimit = partitions = read = latestOffset


class KlogReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: SourceOptions, without_effect: Sequence[str] = ()) -> None:
        self.options = options
        self._without_effect = without_effect

    @short_errors()
    def partitions(self) -> Sequence[TaskPartition]:
        warn_of(self._without_effect)
        return [TaskPartition(number, task) for number, task in enumerate(plan(self.options))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_rows(self.options, partition)
