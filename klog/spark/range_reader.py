"""Reading the ranges of a task exactly, as Arrow columns; it needs no Spark.

The memory is bounded by batches, not by ranges: one fetch that is decoded, one that is on its way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from klog.client.positions import EARLIEST
from klog.client.raw_fetch import RETRY_PAUSE_S, Range, RawCluster
from klog.errors import CannotConnect, CorruptLog, OffsetOutOfRange, Refused, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.spark.options import SourceOptions
from klog.spark.planning import Task
from klog.spark.stream_offsets import is_recreated

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_A_BATCH = 20_000
"""Handed to Spark at once: more makes it no faster, and a bound keeps the JVM's memory small."""


def read_task(options: SourceOptions, task: Task) -> Iterator[pa.RecordBatch]:
    """The messages of a task, as they lie in the log: without headers an empty list."""
    with _connected(options) as cluster:
        anew = _made_anew(cluster, options, task)
        for wanted, messages in zip(task.ranges, task.messages, strict=True):
            if wanted.topic not in anew:
                yield from _read_range(cluster, options, wanted, messages)


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


def _connected(options: SourceOptions) -> RawCluster:
    """Brokers that restart are waited for: Spark would run the task again at once, and three more times."""
    deadline = time.monotonic() + options.task_timeout_s
    while True:
        try:
            return options.connect(in_task=True)
        except CannotConnect:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_PAUSE_S)


def _made_anew(cluster: RawCluster, options: SourceOptions, task: Task) -> set[str]:
    """The topics that are not those that were planned; Refused where that is an error."""
    facts = cluster.describe([topic for topic, _ in task.topic_ids]) if task.topic_ids else {}
    found = set()
    for topic, planned in task.topic_ids:
        there = facts[topic].topic_id if topic in facts else None
        if not is_recreated(planned, there):
            continue
        if options.fail_on_data_loss:
            raise Refused(
                f"topic {topic} was deleted and re-created before it was read: it was {planned} and is {there}"
            )
        found.add(topic)
    return found


def _read_range(
    cluster: RawCluster, options: SourceOptions, wanted: Range, messages: int | None
) -> Iterator[pa.RecordBatch]:
    from klog.spark.columns import decode

    read = 0
    try:
        for records in cluster.fetch(wanted):
            for batch in decode(records, wanted, options.columns, batch_bytes=options.batch_bytes):
                read += batch.num_rows
                for at in range(0, batch.num_rows, ROWS_A_BATCH):
                    yield batch.slice(at, ROWS_A_BATCH)
    except OffsetOutOfRange:
        if options.fail_on_data_loss:
            raise
        one = TopicPartition(wanted.topic, wanted.partition)
        start = cluster.offsets({one: EARLIEST})[one]
        if wanted.from_offset < start < wanted.to_offset:  # the rest of it, whose count is unknown
            yield from _read_range(cluster, options, wanted._replace(from_offset=start), None)
        return
    except UnknownTopicOrPartition:
        if options.fail_on_data_loss or wanted.topic in cluster.describe([wanted.topic]):
            raise
        return
    if messages is not None and read != messages:
        raise CorruptLog(f"{wanted}: the broker counts {messages} messages, {read} were read")
