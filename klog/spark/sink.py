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

from klog.client.send_errors import error_from
from klog.errors import KlogError, SendFailed, UsageError
from klog.names import TopicPartition
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


class KlogWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """A batch query's; `write` in the tasks, the rest beside the driver."""

    def __init__(self, options: SinkOptions, overwrite: bool) -> None:
        if overwrite:
            raise UsageError("a log is appended to, nothing in it is overwritten", hint='write .mode("append")')
        self.options = options
        self.versions = Versions.here()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        check_worker(self.versions)
        return send(self.options, iterator)

    def commit(self, messages: Sequence[SentMessages | None]) -> None:
        _settle(messages, "the query")

    def abort(self, messages: Sequence[SentMessages | None]) -> None:
        _regret(messages, "the query")


class KlogStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """A streaming query's. Every output mode appends, as with the connector."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.versions = Versions.here()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        check_worker(self.versions)
        return send(self.options, iterator)

    def commit(self, messages: Sequence[SentMessages | None], batchId: int) -> None:
        _settle(messages, f"batch {batchId}")

    def abort(self, messages: Sequence[SentMessages | None], batchId: int) -> None:
        _regret(messages, f"batch {batchId}")


def totals(messages: Sequence[SentMessages | None]) -> Counter[TopicPartition]:
    """What the tasks that did not fail have sent."""
    found: Counter[TopicPartition] = Counter()
    for one in messages:
        if one is not None:
            found.update(one.messages)
    return found


def _settle(messages: Sequence[SentMessages | None], what: str) -> None:
    sent = totals(messages)
    rows = sum(one.rows for one in messages if one is not None)
    if sent.total() != rows:
        raise SendFailed(f"{what} had {rows} rows, {sent.total()} messages were acknowledged", {})
    log.info("%s: %d messages sent: %s", what, rows, ", ".join(f"{one} {sent[one]}" for one in sorted(sent)))


def _regret(messages: Sequence[SentMessages | None], what: str) -> None:
    sent = totals(messages)
    if sent:
        said = ", ".join(f"{one} {sent[one]}" for one in sorted(sent))
        log.warning("%s failed; what its other tasks had sent stays in the log: %s", what, said)


def send(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> SentMessages:
    """Send every row; the counts when all are acknowledged.

    Raises what a message was refused for, in klog's words; UsageError for a row without a topic.
    """
    from confluent_kafka import Producer

    sending = _Sending(Producer({**options.producer, "logger": _quiet()}))
    try:
        for batch in batches:
            for row in _rows(options, batch):
                sending.hand_over(*row)
        return sending.finish()
    finally:
        sending.close()


class _Sending:
    """The rows of one task on their way."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._rows = 0
        self._acknowledged: Counter[tuple[str, int]] = Counter()
        self._error: KlogError | None = None

    def hand_over(self, topic: str | None, value: Any, key: Any, partition: int | None, headers: Any) -> None:
        if topic is None:
            raise UsageError(f'row {self._rows} of a task has no topic: its column "topic" is null')
        extra = {} if not headers else {"headers": headers}
        where = -1 if partition is None else partition
        while True:
            try:
                self._producer.produce(topic, value, key, where, on_delivery=self._delivered, **extra)
                break
            except BufferError:
                self._producer.poll(ROOM_WAIT_S)
                self._check()
            except Exception as error:
                raise _translated(error, f"a message to {topic}") from None
        self._rows += 1
        if self._rows % POLL_EVERY == 0:
            self._producer.poll(0)
            self._check()

    def finish(self) -> SentMessages:
        while self._producer.flush(ROOM_WAIT_S):  # each message is settled within message.timeout.ms
            self._check()
        self._check()
        counts = {TopicPartition(topic, number): count for (topic, number), count in self._acknowledged.items()}
        return SentMessages(self._rows, counts)

    def close(self) -> None:
        """What is not on its way yet, after an error, is dropped; after `finish` there is nothing left."""
        self._producer.purge()
        self._producer.flush(ROOM_WAIT_S)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self._acknowledged[message.topic(), message.partition()] += 1
        elif self._error is None:
            where = message.topic() if message.partition() < 0 else f"{message.topic()}-{message.partition()}"
            self._error = error_from(error, f"a message to {where}")

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


def _rows(options: SinkOptions, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """(topic, value, key, partition, headers) of each row; text as UTF-8."""
    import pyarrow as pa

    rows = batch.num_rows
    found: dict[str, list[Any]] = {}
    for name in options.columns:
        if name == "topic" and options.topic is not None:
            continue
        column = batch.column(batch.schema.get_field_index(name))
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = column if name == "topic" else column.cast(pa.binary())
        found[name] = column.to_pylist()
    nothing = [None] * rows
    headers: list[Any] = [
        None if row is None else [(one["key"], one["value"]) for one in row] for row in found.get("headers", nothing)
    ]
    return zip(
        [options.topic] * rows if options.topic is not None else found["topic"],
        found["value"],
        found.get("key", nothing),
        found.get("partition", nothing),
        headers,
        strict=True,
    )


def _translated(error: Exception, what: str) -> Exception:
    from confluent_kafka import KafkaException

    return error_from(error.args[0], what) if isinstance(error, KafkaException) else error


def _quiet() -> logging.Logger:
    """What librdkafka says on its own would stand in Spark's logs for each hiccup that it mends itself."""
    logger = logging.getLogger("klog.spark.librdkafka")
    logger.setLevel(logging.CRITICAL)
    return logger
