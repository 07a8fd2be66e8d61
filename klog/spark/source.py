"""``format("klog")``: a topic's messages as Spark rows, read in batches of Arrow.

The columns and options are those of Spark's Kafka connector (`klog.spark.options`). What is read is decided once, on
the driver; a task reads its ranges exactly: fewer messages than the broker counted there is an error, never a short
answer. Spark pickles source, reader and tasks, so connections are made where they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from klog.client.raw_fetch import EARLIEST, Range, RawCluster
from klog.errors import CorruptLog, OffsetOutOfRange
from klog.names import TopicPartition
from klog.spark.options import SourceOptions, columns_of
from klog.spark.planning import Task, plan

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_A_BATCH = 20_000
"""Handed to Spark at once: more makes it no faster, and a bound keeps the JVM's memory small."""

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


class KlogDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """The entry point that Spark finds by name."""

    @classmethod
    def name(cls) -> str:
        return "klog"

    def schema(self) -> str:
        return ", ".join(_DDL[column] for column in columns_of(self.options))

    def reader(self, schema: Any) -> KlogReader:
        return KlogReader(SourceOptions.parse(self.options))


class TaskPartition(InputPartition):  # type: ignore[misc]
    """A task as Spark carries it, and its place among them."""

    def __init__(self, number: int, task: Task) -> None:
        self.number = number
        self.task = task


class KlogReader(DataSourceReader):  # type: ignore[misc]
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[TaskPartition]:
        return [TaskPartition(number, task) for number, task in enumerate(plan(self.options))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TaskPartition):  # an empty plan reaches the tasks as one partition of nothing
            return
        task = partition.task
        with RawCluster(self.options.bootstrap) as cluster:
            for wanted, messages in zip(task.ranges, task.messages, strict=True):
                yield from self._read_range(cluster, wanted, messages)

    def _read_range(self, cluster: RawCluster, wanted: Range, messages: int | None) -> Iterator[pa.RecordBatch]:
        from klog.spark.columns import decode

        read = 0
        try:
            for records in cluster.fetch(wanted):
                for batch in decode(records, wanted, self.options.columns):
                    read += batch.num_rows
                    for at in range(0, batch.num_rows, ROWS_A_BATCH):
                        yield batch.slice(at, ROWS_A_BATCH)
        except OffsetOutOfRange:
            if self.options.fail_on_data_loss:
                raise
            one = TopicPartition(wanted.topic, wanted.partition)
            start = cluster.offsets({one: EARLIEST})[one].offset
            if wanted.from_offset < start < wanted.to_offset:  # what is left of it; its count is nobody's promise
                yield from self._read_range(cluster, wanted._replace(from_offset=start), None)
            return
        if messages is not None and read != messages:
            raise CorruptLog(f"{wanted}: the broker counts {messages} messages, {read} were read")
