"""The tasks of `klog export run` that write files themselves, instead of handing rows to Spark.

Strategy: a task has its messages as Arrow columns, and Arrow writes files four times as fast as Spark does (which turns
every row into its own form first), so only the scheduling and the retries are Spark's. This process plans, and the
tasks run in a context, in a query (a Connect server takes queries alone), or in processes of this machine. Each attempt
of a task writes files with names of its own, and what it says about them is its only result; Spark returns the results
of the attempts that counted. Every other file is what an attempt left that failed, or that another was quicker than.

Limits: the tasks reach the store as the driver does. Other stores want Spark's own writers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from klog.client.servers import properties_of
from klog.export.batch_writer import UNDECODABLE, WriteJob, WriteResult
from klog.names import TopicPartition
from klog.spark.options import SourceOptions
from klog.spark.planning import plan
from klog.spark.short_errors import short_errors
from klog.spark.tasks import TaskPartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa


def source_options(job: WriteJob) -> dict[str, str]:
    """What ``format("klog")`` reads for this job."""
    connecting = {f"kafka.{name}": value for name, value in properties_of(job.bootstrap).items()}
    return {**connecting, "ranges": json.dumps(job.ranges), "includeHeaders": "true"}


class FileTasks:
    """The tasks of a job, to be planned here and run elsewhere."""

    def __init__(self, job: WriteJob) -> None:
        self.job = job
        self.options = SourceOptions.parse(source_options(job))

    def partitions(self) -> list[TaskPartition]:
        return [TaskPartition(number, task) for number, task in enumerate(plan(self.options))]

    @short_errors()
    def write(self, partition: TaskPartition) -> str:
        """Write the files of one task; what it has done, as JSON for `combine_results`."""
        from klog.spark.decoding import decoder_of

        decoder = None if self.job.decode is None else decoder_of(self.job.decode, self.options.bootstrap)
        name = f"part-{partition.number:05d}-{uuid.uuid4()}"
        return json.dumps(write(self.job, read_partition(self.options, partition), name, decoder))

    def by_number(
        self, partitions: Sequence[TaskPartition]
    ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """For ``mapInArrow``: from rows that are the numbers of partitions to what is done."""

        def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            for batch in batches:
                done = [self.write(partitions[number]) for number in batch.column(0).to_pylist()]
                yield pa.RecordBatch.from_pydict({"done": done})

        return written


def write(job: WriteJob, batches: Iterator[pa.RecordBatch], name: str, decoder: Any = None) -> dict[str, Any]:
    """Write all batches; what was done, for `combine_results`. Without a batch there is no file."""
    from klog.export.checksum import add, checksums
    from klog.export.files.folder import FolderWriter

    writer = FolderWriter(job.store, job.folder, job.layout, name)
    sums: dict[TopicPartition, int] = {}
    schema_ids: set[int] = set()
    try:
        for batch in batches:
            if job.checksum:
                add(sums, checksums(batch))
            if decoder is None:
                writer.write(batch)
                continue
            typed, undecodable = decoder.split(batch)
            if typed.num_rows:
                schema_ids.update(typed.column("schema_id").unique().drop_null().to_pylist())
                writer.write(typed)
            if undecodable is not None and undecodable.num_rows:
                writer.write(undecodable, UNDECODABLE)
        files = writer.close()
    except BaseException:
        writer.abandon()
        raise
    return {
        "files": files,
        "checksums": [[*one, value] for one, value in sums.items()] if job.checksum else None,
        "schema_ids": [*schema_ids],
        "met": [] if decoder is None else [*decoder.met],
        "left_out": [] if decoder is None else _left_out(decoder, schema_ids),
    }


def _left_out(decoder: Any, schema_ids: set[int]) -> list[tuple[int, list[str]]]:
    """Of the messages that have rows; those of JSON have no schema's id."""
    return [(id_, paths) for id_, paths in decoder.left_out.items() if paths and (id_ < 0 or id_ in schema_ids)]


def combine_results(done: list[dict[str, Any]]) -> tuple[set[str], WriteResult]:
    """(the files that count, relative to the folder; what is known of their messages)."""
    from klog.export.checksum import add

    sums: dict[TopicPartition, int] = {}
    for one in done:
        if one["checksums"] is not None:
            add(sums, {TopicPartition(topic, partition): value for topic, partition, value in one["checksums"]})
    files = {path for one in done for path, _ in one["files"]}
    left_out: dict[int, dict[str, None]] = {}
    for id_, paths in (pair for one in done for pair in one["left_out"]):
        left_out.setdefault(id_, {}).update(dict.fromkeys(paths))
    ids, met = (frozenset(id_ for one in done for id_ in one[name]) for name in ("schema_ids", "met"))
    return files, WriteResult(sums or None, ids, {id_: tuple(paths) for id_, paths in left_out.items()}, met)
