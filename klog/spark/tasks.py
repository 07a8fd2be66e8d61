"""What a task does: read its ranges exactly, as Arrow columns. The same for batch and streaming queries.

A task's memory is bounded by its batches, not by its ranges: one fetch that is decoded, one that is on its way.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from klog.client.positions import EARLIEST
from klog.client.raw_fetch import RETRY_PAUSE_S, Range, RawCluster
from klog.errors import CannotConnect, CorruptLog, HostError, OffsetOutOfRange, Refused, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.spark.options import SourceOptions
from klog.spark.planning import Task
from klog.spark.short_errors import short_errors
from klog.spark.stream_offsets import is_recreated

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_A_BATCH = 20_000
"""Handed to Spark at once: more makes it no faster, and a bound keeps the JVM's memory small."""

PYARROW_MIN = (18,)
"""As klog's own requirements say."""


class Versions(NamedTuple):
    """Of one Python process; what was planned under others may be read otherwise here."""

    klog: str
    pyspark: str
    python: str

    @classmethod
    def here(cls) -> Versions:
        import pyspark

        from klog import __version__

        return cls(__version__, pyspark.__version__, ".".join(platform.python_version_tuple()[:2]))


class TaskPartition(InputPartition):  # type: ignore[misc]  # pyspark is not typed here
    """A task as Spark carries it, its place among them, and the versions of those who planned it."""

    def __init__(self, number: int, task: Task) -> None:
        self.number = number
        self.task = task
        self.versions = Versions.here()


def check_worker(planned: Versions) -> None:
    """HostError where this process cannot do what a driver of these versions has planned. Before any data."""
    check_pyarrow()
    here = Versions.here()
    if here != planned:
        differing = ", ".join(
            f"{name} {found} where the driver has {wanted}"
            for name, found, wanted in zip(Versions._fields, here, planned, strict=True)
            if found != wanted
        )
        raise HostError(
            f"the worker on {socket.gethostname()} ({sys.executable}) has {differing}",
            hint="install the same on all machines, or ship one environment: spark.archives and PYSPARK_PYTHON",
        )


def check_pyarrow() -> None:
    """HostError where pyarrow is not there, cannot be loaded, or is too old."""
    where = f"{sys.executable} on {socket.gethostname()}"
    try:
        import pyarrow
    except ImportError as error:
        raise HostError(
            f'format("klog") needs pyarrow, which {where} cannot load: {error}',
            hint="pip install 'pyarrow>=18' there, or point PYSPARK_PYTHON at a Python that has it",
        ) from None
    if tuple(int(part) for part in pyarrow.__version__.split(".")[:1]) < PYARROW_MIN:
        raise HostError(
            f'format("klog") needs pyarrow 18 or later; {where} has {pyarrow.__version__}',
            hint="pip install 'pyarrow>=18' there",
        )


def as_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As queries see them: without any header a message's ``headers`` are null, as those of Spark's Kafka connector."""
    import pyarrow.compute as pc

    for batch in batches:
        at = batch.schema.get_field_index("headers")
        if at >= 0:
            headers = batch.column(at)
            shown = pc.if_else(pc.equal(pc.list_value_length(headers), 0), None, headers)
            batch = batch.set_column(at, batch.schema.field(at), shown)
        yield batch


def until_left(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, without an error when Spark has read enough (``show``, ``limit``) and closes the pipe.

    That normally ends its worker process, which would print a BrokenPipeError with a traceback on the user's screen.
    """
    try:
        yield from batches
    except GeneratorExit as leaving:
        told: BaseException | None = leaving
        while told is not None and not isinstance(told, BrokenPipeError | ConnectionResetError):
            told = told.__context__
        if told is not None:
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        raise


def shortened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; errors of klog's on the way show no frames."""
    with short_errors():
        yield from batches


@dataclass(frozen=True)
class TaskReader:
    """Pickled into every task."""

    options: SourceOptions

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The messages of a TaskPartition; none for any other, as an empty plan reaches the tasks as one of nothing."""
        if not isinstance(partition, TaskPartition):
            return
        check_worker(partition.versions)
        task = partition.task
        with self._connected() as cluster:
            anew = self._made_anew(cluster, task)
            for wanted, messages in zip(task.ranges, task.messages, strict=True):
                if wanted.topic not in anew:
                    yield from self._read_range(cluster, wanted, messages)

    def _connected(self) -> RawCluster:
        """Brokers that restart are waited for: Spark would run the task again at once, and three more times."""
        deadline = time.monotonic() + self.options.task_timeout_s
        while True:
            try:
                return self.options.connect(in_task=True)
            except CannotConnect:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_PAUSE_S)

    def _made_anew(self, cluster: RawCluster, task: Task) -> set[str]:
        """The topics that are not those that were planned; Refused where that is an error."""
        facts = cluster.describe([topic for topic, _ in task.topic_ids]) if task.topic_ids else {}
        found = set()
        for topic, planned in task.topic_ids:
            there = facts[topic].topic_id if topic in facts else None
            if not is_recreated(planned, there):
                continue
            if self.options.fail_on_data_loss:
                raise Refused(
                    f"topic {topic} was deleted and re-created before it was read: it was {planned} and is {there}"
                )
            found.add(topic)
        return found

    def _read_range(self, cluster: RawCluster, wanted: Range, messages: int | None) -> Iterator[pa.RecordBatch]:
        from klog.spark.columns import decode

        read = 0
        try:
            for records in cluster.fetch(wanted):
                for batch in decode(records, wanted, self.options.columns, batch_bytes=self.options.batch_bytes):
                    read += batch.num_rows
                    for at in range(0, batch.num_rows, ROWS_A_BATCH):
                        yield batch.slice(at, ROWS_A_BATCH)
        except OffsetOutOfRange:
            if self.options.fail_on_data_loss:
                raise
            one = TopicPartition(wanted.topic, wanted.partition)
            start = cluster.offsets({one: EARLIEST})[one].offset
            if wanted.from_offset < start < wanted.to_offset:  # the rest of it, whose count is unknown
                yield from self._read_range(cluster, wanted._replace(from_offset=start), None)
            return
        except UnknownTopicOrPartition:
            if self.options.fail_on_data_loss or wanted.topic in cluster.describe([wanted.topic]):
                raise
            return
        if messages is not None and read != messages:
            raise CorruptLog(f"{wanted}: the broker counts {messages} messages, {read} were read")
