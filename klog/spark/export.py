"""`klog export run` with Spark, or processes of this machine, as what reads and writes: started only when there is
something to export."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from klog.errors import HostError, StorageError, UsageError
from klog.export import run as export_run
from klog.export.batch_writer import BatchWriter, WriteJob, WriteResult
from klog.export.rows import ExportedRange
from klog.export.stores import open_store
from klog.export.stores.store import Store
from klog.spark.decoding import Decode
from klog.spark.running import hadoop, jvm
from klog.spark.running.session import SparkTarget
from klog.spark.short_errors import klog_errors, translated

JVM_ENDS_S = 2.0
"""How long a JVM that no longer answers may take to be gone."""

hadoop.register_stores()


def run_export(
    bootstrap: str,
    topics: Sequence[str],
    root: str,
    *,
    decode: Decode | None = None,
    where: SparkTarget | None = None,
    writer: str | None = None,
    unsafe_single_writer: bool = False,
    **options: Any,
) -> list[ExportedRange]:
    """Export what is new of ``topics`` to ``root``; the rows, none where nothing is new. Blocks.

    ``options`` and errors as `klog.export.run.run`; ``where`` is this machine's cores if None; ``writer``
    one of WRITERS, Spark's own if None and the root lies where tasks cannot write, else the direct one.
    """
    if writer is not None and writer not in WRITERS:
        raise UsageError(f"--writer {writer}: there are {', '.join(WRITERS)}")
    where = where or SparkTarget()
    jvm.forget_dead()  # a store may live in it too
    hadoop.use_settings(where.settings)
    store = open_store(root, unsafe_single_writer=unsafe_single_writer)
    name = _writer_for(store, writer)
    if name == "spark":
        from klog.spark.frames import check_division

        check_division(options.get("partition_by"))
    plan = None if decode is None else decode.plan
    return export_run.run(bootstrap, topics, store, WRITERS[name](where), decode=plan, **options)


def warm_up(root: str, where: SparkTarget, writer: str | None = None, *, unsafe_single_writer: bool = False) -> None:
    """Start what `run_export` with these arguments would start at its first message. Blocks."""
    store = open_store(root, unsafe_single_writer=unsafe_single_writer)
    WRITERS[_writer_for(store, writer)](where).ready(None)


def _writer_for(store: Store, asked: str | None) -> str:
    """Its name among WRITERS. UsageError if the one that was asked for cannot write there."""
    if asked is None:
        return "direct" if store.opens_anywhere else "spark"
    if asked != "spark" and not store.opens_anywhere:
        raise UsageError(f"only Spark's own writers can write to {store.url}", hint="leave --writer and --engine out")
    return asked


class _OnSpark:
    def __init__(self, where: SparkTarget | None = None) -> None:
        self._where = where or SparkTarget()
        self.spark: Any = None
        """The context or the session, once it is there."""

    @property
    def fraction(self) -> float | None:
        """Of the tasks of the running stages, those that have ended; None where none runs, or on a Connect server."""
        context = getattr(self.spark, "_sc", self.spark if hasattr(self.spark, "statusTracker") else None)
        if context is None:
            return None
        tracker = context.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        tasks = sum(info.numTasks for info in infos if info is not None)
        return sum(info.numCompletedTasks for info in infos if info is not None) / tasks if tasks else None


class DirectWriter(_OnSpark):
    """A Spark job whose tasks write the files. Spark is started at the first write and left running."""

    @property
    def engine(self) -> str:
        import pyarrow
        import pyspark

        return f"spark {pyspark.__version__}, pyarrow {pyarrow.__version__}"

    def ready(self, decode: dict[str, Any] | None) -> None:
        """Start Spark. Errors of `SparkTarget.context` and `SparkTarget.session`."""
        with translating():
            self.spark = self.spark or (self._where.context() if self._where.has_context else self._where.session())

    def write(self, job: WriteJob) -> WriteResult:
        """Raises what a task raised, in klog's words, or StorageError with Spark's."""
        from klog.spark.files import combine_results

        target = replace(job, folder=job.attempts) if job.attempts else job
        try:
            self.ready(job.decode)
            done = self._done(target)
            if job.attempts:
                # From here on an attempt that another was quicker than writes to a folder that has another name.
                job.store.remove(job.folder)
                job.store.make_folder(job.attempts)  # where there is not one message, no task has
                job.store.rename(job.attempts, job.folder)
        finally:
            if job.attempts:
                job.store.remove(job.attempts)
        files, written = combine_results([json.loads(one) for one in done])
        for stored in job.store.walk(job.folder):
            if stored.path.removeprefix(f"{job.folder}/") not in files:
                job.store.remove(stored.path)
        return written

    def _done(self, job: WriteJob) -> list[str]:
        """What each task says that it has done."""
        from klog.spark.files import FileTasks

        tasks = FileTasks(job)
        partitions = tasks.partitions()
        if not partitions:
            return []
        count = len(partitions)
        with translating():
            if self._where.has_context:
                return list(self.spark.parallelize(partitions, count).map(tasks.write).collect())
            numbers = self.spark.range(0, count, 1, count)
            return [row.done for row in numbers.mapInArrow(tasks.by_number(partitions), "done string").collect()]


class SparkWriter(_OnSpark):
    """A Spark job that reads ``format("klog")`` and writes by Spark's own formats: to wherever Spark can write."""

    @property
    def engine(self) -> str:
        import pyspark

        return f"spark {pyspark.__version__}"

    def ready(self, decode: dict[str, Any] | None) -> None:
        """As `DirectWriter.ready`; UsageError where it is to decode."""
        if decode is not None:
            raise UsageError("Spark's own writers cannot decode", hint="--writer direct")
        with translating():
            self.spark = self.spark or self._where.session()

    def write(self, job: WriteJob) -> WriteResult:
        """As `DirectWriter.write`."""
        from klog.spark.files import source_options
        from klog.spark.frames import write_frame

        self.ready(job.decode)
        with translating():
            frame = self.spark.read.format("klog").options(**source_options(job)).load()
            write_frame(frame, job)
        return WriteResult()


class LocalWriter:
    """The tasks of `DirectWriter` in processes of this machine, one per core: no JVM is started.

    A single task runs in this process. A task is not repeated: what it raises ends the run, and the next run goes on.
    """

    def __init__(self, where: SparkTarget | None = None) -> None:
        """UsageError where ``where`` names a master or settings of Spark."""
        if where is not None and (where.master or where.remote or where.settings):
            raise UsageError("--engine local runs on this machine, without Spark", hint="leave --master and --conf out")
        self.fraction: float | None = None
        """How much of the job in hand is done, from 0 to 1."""

    @property
    def engine(self) -> str:
        import pyarrow

        return f"local, pyarrow {pyarrow.__version__}"

    def ready(self, decode: dict[str, Any] | None) -> None:
        """It needs nothing."""

    def write(self, job: WriteJob) -> WriteResult:
        """Raises what a task raised; HostError where a process was killed."""
        from klog.spark.files import FileTasks, combine_results

        tasks = FileTasks(job)
        partitions = tasks.partitions()
        processes = min(len(partitions), os.cpu_count() or 1)
        written = map(tasks.write, partitions) if processes < 2 else _by_processes(tasks, partitions, processes)
        done: list[dict[str, Any]] = []
        for one in written:
            done.append(json.loads(one))
            self.fraction = len(done) / len(partitions)
        return combine_results(done)[1]


def _by_processes(tasks: Any, partitions: Sequence[Any], processes: int) -> Iterator[str]:
    """What `FileTasks.write` says of each partition, as it is done."""
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, spawn, initializer=_end_with_parent)
    try:
        for done in as_completed([pool.submit(tasks.write, one) for one in partitions]):
            yield done.result()
    except BaseException as error:
        for process in list(pool._processes.values()):  # or the others would work on
            process.kill()
        if isinstance(error, BrokenProcessPool | MemoryError):
            raise HostError(
                f"a process that wrote files was killed, or had no memory: {error}",
                hint="is there too little memory? the next run goes on",
            ) from None
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """A process of the pool ends with the one that has started it, however that ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()


WRITERS: dict[str, Callable[[SparkTarget | None], BatchWriter]] = {
    "direct": DirectWriter,
    "spark": SparkWriter,
    "local": LocalWriter,
}
"""By the names of ``--writer``, and of ``--engine``."""


@contextmanager
def translating() -> Iterator[None]:
    """As `klog_errors`, and says what has ended a JVM that no longer answers."""
    from py4j.protocol import Py4JError

    try:
        with klog_errors():
            yield
    except (Py4JError, OSError, EOFError) as error:  # no answer
        ended = jvm.ending(JVM_ENDS_S)
        if ended is not None:
            raise StorageError(f"Spark's JVM {ended}") from error
        if not isinstance(error, Py4JError):
            raise
        raise translated(str(error)) from error
