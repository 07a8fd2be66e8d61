"""The thread that sends: input through librdkafka's queue, and every message's fate counted.

A Sender belongs to the thread that runs `send_all`; its counters may be read from another one at any time, and are
exact once that has returned.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from confluent_kafka import KafkaError, KafkaException, Producer

from klog.client.audit import Auditor, with_stamp
from klog.client.audit_publisher import AuditPublisher
from klog.client.producer_settings import audit_settings
from klog.client.send_errors import error_from, may_be_in_the_log
from klog.errors import KlogError, UsageError
from klog.ops.input_messages import Splitter, lines, wholes
from klog.ops.jsonl import Content, from_line

if TYPE_CHECKING:
    from klog.ops.produce_options import ProduceOptions

QUEUE_MESSAGES_MAX = 100_000
QUEUE_KILOBYTES_MAX = 64 * 1024
"""What may wait to be sent: enough for a second at full speed, small beside the memory of any machine."""

DELIVERY_TIMEOUT_S = 30.0
"""The least time a message is tried for: a broker may restart under it. The command's time-out may lengthen it."""

HEAD_START_S = 0.01

POLL_EVERY = 500
"""Messages between looks at what was acknowledged."""


class PartitionCount:
    """What one partition has acknowledged."""

    __slots__ = ("bytes", "first_offset", "last_offset", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.first_offset = -1
        self.last_offset = -1


class Sender:
    """Sends to one topic."""

    def __init__(self, bootstrap: str, topic: str, options: ProduceOptions, *, timeout_s: float) -> None:
        """Raises UsageError for a setting that librdkafka does not take, or flags that contradict each other."""
        self._topic = topic
        self._options = options
        self._splitter = Splitter(
            key=options.key,
            key_delimiter=options.key_delimiter,
            headers=options.headers,
            null=options.empty_is_null,
        )
        if options.input == "jsonl" and not self._splitter.is_plain:
            raise UsageError("-k, -K, -H and -Z are for lines and files; a JSON line says all of it itself")
        self.partitions: dict[int, PartitionCount] = {}
        self.read = 0
        self.failed = 0
        self.first_error: str | None = None
        self.timed_out: set[int] = set()
        """Partitions that took messages neither at once nor later."""
        self._pace = _Pace(options.rate.per_second, options.rate.what == "bytes") if options.rate else None
        self._has_keys = options.input == "jsonl" or options.key is not None or options.key_delimiter is not None
        self._stop = threading.Event()
        settings = self._settings(bootstrap, timeout_s)
        audit = audit_settings(settings, options.audit)
        try:
            self._producer = Producer(settings)
        except KafkaException as error:
            raise UsageError(f"librdkafka refuses its settings: {error.args[0].str()}") from None
        self._auditor = Auditor(audit) if audit else None
        self._publisher = AuditPublisher(self._producer, self._auditor, settings) if self._auditor else None

    @property
    def acknowledged(self) -> int:
        return sum(one.messages for one in list(self.partitions.values()))

    @property
    def unanswered(self) -> int:
        """Handed over, and nobody has said what became of them."""
        return self.read - self.failed - self.acknowledged

    def _settings(self, bootstrap: str, timeout_s: float) -> dict[str, Any]:
        options = self._options
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": "klog-produce",
            "enable.idempotence": options.acks == "all",
            "acks": options.acks,
            "partitioner": "murmur2_random",
            "compression.type": options.compression,
            "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
            "queue.buffering.max.kbytes": QUEUE_KILOBYTES_MAX,
            "message.max.bytes": 1_000_000_000,  # what is too large is for the broker to say
            "message.timeout.ms": round(max(DELIVERY_TIMEOUT_S, 3 * timeout_s) * 1000),
            "request.timeout.ms": round(max(timeout_s, 1.0) * 1000),
            "on_delivery": self._delivered,
            "logger": silent_logger(),
        }
        if options.batch_messages is not None:
            settings["batch.num.messages"] = options.batch_messages
        return {**settings, **options.librdkafka}

    def send_all(self, sources: Iterable[BinaryIO], stop: threading.Event) -> None:
        """Send what ``sources`` hold and wait until all of it is answered, or until ``stop`` is set.

        Input that cannot be read, or a producer that can go on no longer, is a failure that ends the sending; what was
        handed over before is waited for all the same.
        """
        self._stop = stop
        # librdkafka asks for its producer id once when it starts, then every 500 ms. A message that is handed over in
        # the first milliseconds disturbs the first attempt (seen with 2.16: 55 ms to the first ack with this, 505
        # without), so it gets a moment for itself.
        self._producer.poll(HEAD_START_S)
        try:
            options = self._options
            plain = options.input == "lines" and self._splitter.is_plain and not (self._pace or options.audit)
            for source in sources:
                if plain:
                    self._send_lines(source)
                else:
                    self._send_messages(source)
            self._flush()
        except (KlogError, OSError) as error:
            self._fail(str(error))
            self._flush()
        finally:
            if stop.is_set():
                self._give_up()

    def _flush(self) -> None:
        """Wait until all of it is answered, and publish the audit's counts."""
        while not self._stop.is_set() and self._producer.flush(0.1):
            pass
        if self._publisher is not None and not self._stop.is_set():
            self._publisher.close()
            while not self._stop.is_set() and self._producer.flush(0.1):
                pass

    def _give_up(self) -> None:
        """Drop what was not sent yet; what is under way gets a moment to be answered."""
        self._producer.purge(in_queue=True, in_flight=False, blocking=False)
        if self._publisher is not None:
            self._producer.poll(0.05)
            self._publisher.close()
        self._producer.flush(0.3)

    def _send_lines(self, source: BinaryIO) -> None:
        """The common case, a line is a value: nothing is done for a line but handing it over (half the CPU)."""
        produce, topic = self._producer.produce, self._topic
        partition = -1 if self._options.partition is None else self._options.partition
        for run in lines(source, self._idle):
            for at in range(0, len(run), POLL_EVERY):
                if self._stop.is_set():
                    return
                for line in run[at : at + POLL_EVERY]:
                    try:
                        produce(topic, line, None, partition)
                    except (BufferError, KafkaException):
                        self._send(Content(None, line, [], None))
                    else:
                        self.read += 1
                self._producer.poll(0)

    def _send_messages(self, source: BinaryIO) -> None:
        for message in self._messages(source):
            if self._stop.is_set():
                return
            self._send(message)
            if self.read % POLL_EVERY == 0:
                self._idle()

    def _messages(self, source: BinaryIO) -> Iterator[Content]:
        """The messages of one source; a line that is none is a failure of its own, and the next goes on."""
        split: Callable[[bytes], Content] = from_line if self._options.input == "jsonl" else self._splitter
        runs = wholes(source, self._idle) if self._options.input == "raw" else lines(source, self._idle)
        name = getattr(source, "name", "input")
        number = 0
        for run in runs:
            for line in run:
                number += 1
                if self._options.input == "jsonl" and not line.strip():
                    continue
                try:
                    content = split(line)
                except UsageError as error:
                    self._fail(f"{name}, line {number}: {error.message}")
                    continue
                yield content

    def _send(self, content: Content) -> None:
        extra: dict[str, Any] = {}
        if self._options.partition is not None:
            extra["partition"] = self._options.partition
        if content.headers:
            extra["headers"] = content.headers
        if content.timestamp_ms is not None:
            extra["timestamp"] = content.timestamp_ms
        unsent = self._stamp(self._auditor, content, extra) if self._auditor is not None else None
        if self._pace is not None:
            self._pace.wait(len(content.value or b"") + len(content.key or b""), self._producer.poll, self._stop)
        while not self._stop.is_set():
            try:
                self._producer.produce(self._topic, content.value, content.key, **extra)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                if unsent is not None:
                    unsent()
                if error.args[0].fatal():
                    raise KlogError(f"the producer cannot go on: {error.args[0].str()}") from None
                self._fail(error.args[0].str())
                return
            else:
                self.read += 1
                return
        if unsent is not None:
            unsent()

    def _stamp(self, auditor: Auditor, content: Content, extra: dict[str, Any]) -> Callable[[], None]:
        """Host and time into a header; the message counts in the audit when its fate is known.

        Gives back what is to be called where the message is not handed over after all.
        """
        extra["timestamp"], stamp, window = auditor.stamp(self._topic, content.timestamp_ms)
        extra["headers"] = with_stamp(content.headers, stamp)

        def delivered(error: Any, message: Any) -> None:
            failed = None if error is None else error_from(error, self._topic)
            auditor.settle(window, failed, maybe=error is not None and may_be_in_the_log(error))
            self._delivered(error, message)

        extra["on_delivery"] = delivered
        return lambda: auditor.settle(window, KlogError("not sent"))

    def _idle(self) -> bool:
        """While no input comes: hear what was acknowledged; True when it is time to stop."""
        self._producer.poll(0)
        if self._publisher is not None:
            self._publisher.tick()
        return self._stop.is_set()

    def _fail(self, reason: str) -> None:
        self.read += 1
        self.failed += 1
        if self.first_error is None:
            self.first_error = reason

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            if error.code() == KafkaError._PURGE_QUEUE:
                self.read -= 1  # interrupted before it was sent: as if it had not been read
                return
            self.failed += 1
            if error.code() == KafkaError._MSG_TIMED_OUT:
                self.timed_out.add(message.partition())
            if self.first_error is None:
                self.first_error = f"{self._topic}-{message.partition()}: {error.str()}"
            return
        partition, offset = message.partition(), message.offset()
        count = self.partitions.get(partition)
        if count is None:
            count = self.partitions[partition] = PartitionCount()
        count.messages += 1
        count.bytes += len(message)  # the value's
        if self._has_keys:
            count.bytes += len(message.key() or b"")
        if offset is not None and offset >= 0:
            if count.first_offset < 0:
                count.first_offset = offset
            count.last_offset = offset


class _Pace:
    """Holds a rate: each message has its due time, and nobody waits for what was missed for longer than a second."""

    def __init__(self, per_second: float, counts_bytes: bool) -> None:
        self._seconds_each = 1 / per_second
        self._counts_bytes = counts_bytes
        self._due = time.monotonic()

    def wait(self, size: int, pause: Callable[[float], object], stop: threading.Event) -> None:
        now = time.monotonic()
        self._due = max(self._due, now - 1.0)
        while now < self._due and not stop.is_set():
            pause(min(self._due - now, 0.1))
            now = time.monotonic()
        self._due += self._seconds_each * (size if self._counts_bytes else 1)


def silent_logger() -> logging.Logger:
    """librdkafka's own log lines go to the log ``klog.librdkafka``, which says nothing unless someone listens."""
    logger = logging.getLogger("klog.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
