"""What a task of Spark's is, in batch and streaming queries: its ranges, read where the versions are the driver's."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from klog.errors import HostError
from klog.spark.options import SourceOptions
from klog.spark.planning import Task
from klog.spark.range_reader import as_rows, read_task
from klog.spark.short_errors import short_errors

if TYPE_CHECKING:
    import pyarrow as pa

PYARROW_MIN = (18,)
"""As klog's own requirements say."""


class Versions(NamedTuple):
    """Of one Python process, without Spark's and Python's patches; what was planned under others may be read otherwise
    here."""

    klog: str
    pyspark: str
    python: str

    @classmethod
    def here(cls) -> Versions:
        import pyspark

        from klog import __version__

        spark, python = pyspark.__version__.split(".")[:2], platform.python_version_tuple()[:2]
        return cls(__version__, ".".join(spark), ".".join(python))


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


def read_partition(options: SourceOptions, partition: Any) -> Iterator[pa.RecordBatch]:
    """The messages of a TaskPartition as they lie in the log: without headers an empty list.

    None for any other partition, as an empty plan reaches the tasks as one of nothing.
    """
    if not isinstance(partition, TaskPartition):
        return
    check_worker(partition.versions)
    yield from read_task(options, partition.task)


def read_rows(options: SourceOptions, partition: Any) -> Iterator[pa.RecordBatch]:
    """The same as queries see them; errors of klog's show no frames."""
    with short_errors():
        yield from until_left(as_rows(read_partition(options, partition)))
