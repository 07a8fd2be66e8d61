"""Writing rows to ``format("klog")``: each task sends its rows by an idempotent producer of its own.

At least once: a task that fails is run again and sends its rows again, and what the failed attempt had sent stays. Not
less: a task ends when every row of it is acknowledged (acks=all unless told otherwise), and what was acknowledged is
counted, a partition at a time, in the message that its commit carries to the driver. There the counts are added up,
logged, and held against the rows that the tasks had.

A task's memory is bounded by the producer's buffer and one Arrow batch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from klog.client.send_errors import open_producer, undelivered, untaken
from klog.errors import KlogError, SendFailed, UsageError
from klog.names import TopicPartition
from klog.spark.short_errors import short_errors
from klog.spark.sink_options import SinkOptions
from klog.spark.tasks import Versions, check_worker

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

POLL_EVERY = 1000
"""Messages handed over between two looks at what was acknowledged."""
ROOM_WAIT_S = 0.1


class SentMessages(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed here
    """Of one task: how many rows it had, and how many messages each partition has acknowledged."""

    def __init__(self, rows: int, messages: dict[TopicPartition, int]) -> None:
        self.rows = rows
        self.messages = messages


class _Sending:
    """Of any query: `write` in the tasks, the rest beside the driver. ``batchId``: of a streaming one."""

    def __init__(self, options: SinkOptions) -> None:
        open_producer(options.producer)  # InvalidConfig before any row
        self.options = options
        self.versions = Versions.here()

    @short_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        check_worker(self.versions)
        return send(self.options, iterator)

    @short_errors()
    def commit(self, messages: Sequence[SentMessages | None], batchId: int | None = None) -> None:
        what = "the query" if batchId is None else f"batch {batchId}"
        sent = totals(messages)
        rows = sum(one.rows for one in messages if one is not None)
        if sent.total() != rows:
            raise SendFailed(f"{what} had {rows} rows, {sent.total()} messages were acknowledged", {})
        log.info("%s: %d messages sent: %s", what, rows, ", ".join(f"{one} {sent[one]}" for one in sorted(sent)))

    def abort(self, messages: Sequence[SentMessages | None], batchId: int | None = None) -> None:
        what = "the query" if batchId is None else f"batch {batchId}"
        sent = totals(messages)
        if sent:
            said = ", ".join(f"{one} {sent[one]}" for one in sorted(sent))
            log.warning("%s failed; what its other tasks had sent stays in the log: %s", what, said)


class KlogWriter(_Sending, DataSourceArrowWriter):  # type: ignore[misc]
    """A batch query's."""


class KlogStreamWriter(_Sending, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """A streaming query's. Every output mode appends, as with the connector."""


def totals(messages: Sequence[SentMessages | None]) -> Counter[TopicPartition]:
    """What the tasks that did not fail have sent."""
    found: Counter[TopicPartition] = Counter()
    for one in messages:
        if one is not None:
            found.update(one.messages)
    return found


def send(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> SentMessages:
    """Send every row; the counts when all are acknowledged.

    Raises what a message was refused for, in klog's words; UsageError for a row without a topic.
    """
    from confluent_kafka import KafkaException

    producer = open_producer(options.producer)
    acknowledged: dict[tuple[str, int], int] = {}
    refused: list[KlogError] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            place = message.topic(), message.partition()
            acknowledged[place] = acknowledged.get(place, 0) + 1
        elif not refused:
            refused.append(undelivered(error, message.topic(), message))

    def wait(seconds: float) -> int:
        """How many are on their way still; raises what one was refused for."""
        left: int = producer.flush(seconds) if seconds else producer.poll(0)
        if refused:
            raise refused[0]
        return left

    rows = 0
    produce = producer.produce  # a row is a few microseconds here: nothing is looked up twice
    try:
        for batch in batches:
            for topic, value, key, partition, headers in _rows(options, batch):
                if topic is None:
                    raise UsageError(f'row {rows} of a task has no topic: its column "topic" is null')
                while True:
                    try:
                        if headers:
                            produce(topic, value, key, partition, delivered, headers=headers)
                        else:
                            produce(topic, value, key, partition, delivered)
                        break
                    except BufferError:
                        producer.poll(ROOM_WAIT_S)
                        wait(0)
                rows += 1
                if rows % POLL_EVERY == 0:
                    wait(0)
        while wait(ROOM_WAIT_S):  # each message is settled within message.timeout.ms
            pass
    except KafkaException as error:
        raise untaken(error.args[0], topic, len(value or b"") + len(key or b""), options.producer) from None
    finally:
        producer.purge()  # what is not on its way yet, after an error; else nothing is left
        producer.flush(ROOM_WAIT_S)
    return SentMessages(rows, {TopicPartition(*place): count for place, count in acknowledged.items()})


def _rows(options: SinkOptions, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """(topic, value, key, partition, headers) of each row; text as UTF-8, -1 for the partitioner's choice."""
    import pyarrow as pa

    rows = batch.num_rows

    def column(name: str) -> Any:
        return batch.column(batch.schema.get_field_index(name))

    def in_bytes(name: str) -> list[bytes | None]:
        found: list[bytes | None] = column(name).cast(pa.binary()).to_pylist()
        return found

    has = options.columns
    headers: list[Any] = column("headers").to_pylist() if "headers" in has else []
    return zip(
        [options.topic] * rows if options.topic is not None else column("topic").to_pylist(),
        in_bytes("value"),
        in_bytes("key") if "key" in has else [None] * rows,
        column("partition").fill_null(-1).to_pylist() if "partition" in has else [-1] * rows,
        [one and [(each["key"], each["value"]) for each in one] for one in headers] if headers else [None] * rows,
        strict=True,
    )
