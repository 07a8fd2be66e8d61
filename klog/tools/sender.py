"""The thread that sends: input through librdkafka's queue, and every message's fate counted.

A Sender belongs to the thread that runs `send_all`; its counters may be read from another one at any time, and are
exact once that has returned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO

from confluent_kafka import KafkaError, KafkaException, Producer

from klog.client.audit import Auditor, with_stamp
from klog.client.audit_publisher import AuditPublisher, settle_delivery
from klog.client.producer_settings import audit_settings, bound_messages
from klog.client.send_errors import undelivered, untaken
from klog.config.units import Rate
from klog.errors import KlogError, MessageTooLarge, UsageError
from klog.render.jsonl import Content
from klog.tools.deliveries import Deliveries, Line, LineRange, PartitionReceipt, Rejects, Several, plain, ranges
from klog.tools.input_messages import line_reader, lines, wholes
from klog.tools.librdkafka import made, producer_settings
from klog.tools.options import ProduceOptions

RECONNECT_MS_MAX = 1000
"""A broker that is back is found so soon; librdkafka's own bound is 10 s."""

HOLD_S = 0.1
"""Between looks whether what has stalled goes on."""

HEAD_START_S = 0.01

LINGER_MS = 5
"""librdkafka's default."""

POLL_EVERY = 500
"""Messages between looks at what was acknowledged."""


class Sender:
    def __init__(
        self, bootstrap: str, topic: str, options: ProduceOptions, *, timeout_s: float, rejects: Rejects | None = None
    ) -> None:
        """What is given up goes to ``rejects``, else its lines are named by `given_up`.

        Raises UsageError for a setting that librdkafka does not take, or flags that contradict each other.
        """
        self._topic = topic
        self._options = options
        self._read = line_reader(options)
        if options.input != "lines" and options.delimiter != b"\n":
            raise UsageError(f"-D is for lines, not for -i {options.input}")
        self.partitions: dict[int, PartitionReceipt] = {}
        self.read = 0
        self.failed = 0
        self.first_error: str | None = None
        self.timed_out: set[int | None] = set()
        """Partitions that took messages neither at once nor later; None: before one was chosen."""
        self.too_large = False
        """Messages were rejected for their size."""
        self.stopped_at: Line | None = None
        """The first line that was read and not handed over, where it was stopped."""
        self.deliveries = Deliveries(self._settled, self._given_up)
        self._lost: list[Line] = []
        self._rejects = rejects
        self._pace = Pace(options.rate) if options.rate else None
        self._stop = threading.Event()
        settings = self._librdkafka = self._settings(bootstrap, timeout_s)
        audit = audit_settings(settings, bool(options.audit))
        self._producer = made(Producer, settings)
        self._auditor = Auditor(audit) if audit else None
        self._publisher = AuditPublisher(self._producer, self._auditor, settings) if self._auditor else None

    @property
    def acknowledged(self) -> int:
        return sum(one.messages for one in list(self.partitions.values()))

    @property
    def unanswered(self) -> int:
        return self.read - self.failed - self.acknowledged

    @property
    def given_up(self) -> list[LineRange]:
        """Lines of which no message is in the log and none in the file of rejects, as far as it is known."""
        return ranges(self._lost)

    @property
    def under_way(self) -> list[LineRange]:
        """Lines of which some may be in the log, without an acknowledgement."""
        return ranges(self.deliveries.open_lines())

    def _settings(self, bootstrap: str, timeout_s: float) -> dict[str, Any]:
        options = self._options
        give_up_ms = 0 if options.give_up_after_s is None else max(1, round(options.give_up_after_s * 1000))
        settings: dict[str, Any] = {
            **producer_settings(bootstrap, "klog-produce", options.acks, options.compression),
            "message.timeout.ms": give_up_ms,  # 0: never
            "request.timeout.ms": round(max(timeout_s, 1.0) * 1000),
            "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
        }
        if 0 < give_up_ms <= LINGER_MS:
            settings["linger.ms"] = 0  # librdkafka wants it to be smaller
        if options.batch_messages is not None:
            settings["batch.num.messages"] = options.batch_messages
        settings.update(options.librdkafka)
        bound_messages(settings)
        return settings

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
            is_quick = options.input != "raw" and not (self._pace or options.audit)
            for source in sources:
                if is_quick and self._read is None:
                    self._send_lines(source)
                elif is_quick:
                    self._send_contents(source)
                else:
                    self._send_one_by_one(source)
            self._flush()
        except (KlogError, OSError) as error:
            self.too_large |= isinstance(error, MessageTooLarge)
            self._fail(str(error))
            self._flush()
        except KafkaException as error:
            # No idempotent producer goes on after this one, as where the user may not write: what waits is unsent.
            self._fail(f"the producer failed: {error.args[0].str()}")
            self._producer.purge()
            self._producer.poll(0)
            self.deliveries.look()
        finally:
            if stop.is_set():
                self._give_up()

    def _flush(self) -> None:
        """Wait until all of it is answered, and publish the audit's counts."""
        while not self._stop.is_set() and self._producer.flush(0.1):
            self.deliveries.look()
        self.deliveries.look()
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

    def _runs(self, source: BinaryIO) -> Iterator[tuple[int, list[bytes]]]:
        """At most `POLL_EVERY` lines, or a whole input, behind the number of the first; until it is time to stop."""
        idle, number = self._idle, 1
        is_whole = self._options.input == "raw"
        for run in wholes(source, idle) if is_whole else lines(source, idle, self._options.delimiter):
            for at in range(0, len(run), POLL_EVERY):
                some = run[at : at + POLL_EVERY]
                yield number + at, some
                if idle():
                    self.stopped_at = self.stopped_at or Line(_name(source), number + at + len(some))
                    return
            number += len(run)

    def _send_lines(self, source: BinaryIO) -> None:
        """The common case, a line is a value: nothing is done for a line but handing it over (half the CPU)."""
        produce, topic, name = self._producer.produce, self._topic, _name(source)
        partition = -1 if self._options.partition is None else self._options.partition
        for number, run in self._runs(source):
            chunk = self.deliveries.chunk(name, number, run)
            answered = chunk.answered
            for place, line in enumerate(run):
                try:
                    produce(topic, line, None, partition, answered)
                except (BufferError, KafkaException):
                    self._send(Line(name, number + place), plain(line), chunk, answered)
                else:
                    self.read += 1

    def _send_contents(self, source: BinaryIO) -> None:
        """The same with keys, headers, nulls and times."""
        produce, topic, name = self._producer.produce, self._topic, _name(source)
        partition = -1 if self._options.partition is None else self._options.partition
        for number, run in self._runs(source):
            rows = self._rows(name, number, run)
            chunk = self.deliveries.contents(name, rows)
            for place, (at, content) in enumerate(rows):
                answered = partial(chunk.answered, place)
                to = partition if content.partition is None else content.partition
                try:
                    produce(topic, content.value, content.key, to, answered, **_more_of(content))
                except (BufferError, KafkaException):
                    self._send(Line(name, at), content, chunk, answered)
                else:
                    self.read += 1

    def _send_one_by_one(self, source: BinaryIO) -> None:
        """Where each message has its time or its stamp, or is a whole input."""
        name = _name(source)
        for number, run in self._runs(source):
            for row in self._rows(name, number, run):
                alone = self.deliveries.contents(name, [row])
                self._send(Line(name, row[0]), row[1], alone, partial(alone.answered, 0))
                if self._stop.is_set():
                    self.stopped_at = self.stopped_at or Line(name, row[0] + 1)
                    return

    def _rows(self, name: str, number: int, run: list[bytes]) -> list[tuple[int, Content]]:
        """The messages of lines from ``number`` on; an invalid line fails by itself, and the next goes on."""
        read, skips_blanks, rows = self._read or plain, self._options.input == "jsonl", []
        for at, line in enumerate(run, number):
            if skips_blanks and not line.strip():
                continue
            try:
                rows.append((at, read(line)))
            except UsageError as error:
                self._lost.append(Line(name, at))
                self._fail(f"{name}, line {at}: {error.message}")
        return rows

    def _send(self, line: Line, content: Content, several: Several, answered: Callable[[Any, Any], None]) -> None:
        """One message, as soon as there is room for it. ``several``: the lines that it is one of."""
        extra, window = _more_of(content), None
        partition = self._options.partition if content.partition is None else content.partition
        if partition is not None:
            extra["partition"] = partition
        if self._auditor is not None:
            extra["timestamp"], stamp, window = self._auditor.stamp(self._topic, content.timestamp_ms)
            extra["headers"] = with_stamp(content.headers, stamp)
            answered = partial(settle_delivery, self._auditor, window, answered)
        if self._pace is not None:
            self._pace.wait(len(content.value or b"") + len(content.key or b""), self._producer.poll, self._stop)
        while not self._stop.is_set():
            try:
                self._producer.produce(self._topic, content.value, content.key, on_delivery=answered, **extra)
            except BufferError:
                self._producer.poll(HOLD_S)
                self.deliveries.look()
            except KafkaException as error:
                self._unsent(several, window)
                self._given_up(line, content, error.args[0])
                if error.args[0].fatal():
                    raise KlogError(f"the producer failed: {error.args[0].str()}") from None
                where = self._topic if content.partition is None else f"{self._topic}-{content.partition}"
                size = len(content.value or b"") + len(content.key or b"")
                refusal = untaken(error.args[0], where, size, self._librdkafka)
                self.too_large |= isinstance(refusal, MessageTooLarge)
                self._fail(refusal.message)
                return
            else:
                self.read += 1
                return
        self._unsent(several, window)
        self.stopped_at = self.stopped_at or line

    def _unsent(self, several: Several, window: Any) -> None:
        several.drop()
        if self._auditor is not None:
            self._auditor.settle(window, KlogError("not sent"))

    def _idle(self) -> bool:
        """While no input comes: hear what was acknowledged; True when it is time to stop."""
        self._producer.poll(0)
        if self._publisher is not None:
            self._publisher.tick()
        self._hold()
        return self._stop.is_set()

    def _hold(self) -> None:
        """Where nothing becomes of what was handed over, leave the rest of the input where it is meanwhile."""
        while self.deliveries.look() and not self._stop.is_set():
            self._producer.poll(HOLD_S)
            if self._publisher is not None:
                self._publisher.tick()

    def _fail(self, reason: str) -> None:
        self.read += 1
        self.failed += 1
        if self.first_error is None:
            self.first_error = reason

    def _given_up(self, line: Line, content: Content, error: Any) -> None:
        if self._rejects is None:
            self._lost.append(line)
            return
        is_unsent = error.code() == KafkaError._PURGE_QUEUE
        try:
            self._rejects.write(self._topic, line, content, "interrupted" if is_unsent else error.str())
        except OSError as failure:
            self._lost.append(line)
            if self.first_error is None:
                self.first_error = f"{self._rejects.path}: {failure.strerror or failure}"

    def _settled(self, error: Any, message: Any) -> bool:
        """Count a message whose fate is known; False where it is given up."""
        if error is not None:
            if error.code() == KafkaError._PURGE_QUEUE:
                self.read -= 1  # interrupted before it was sent: as if it had not been read
                return False
            self.failed += 1
            if error.code() == KafkaError._MSG_TIMED_OUT:
                self.timed_out.add(message.partition())
            self.too_large |= error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            if self.first_error is None:
                self.first_error = undelivered(error, self._topic, message).message
            return False
        partition, offset = message.partition(), message.offset()
        count = self.partitions.get(partition)
        if count is None:
            count = self.partitions[partition] = PartitionReceipt(self._topic, partition)
        count.messages += 1
        count.bytes += len(message)  # the value's
        if self._read is not None:
            count.bytes += len(message.key() or b"")
        if offset is not None and offset >= 0:
            if count.first_offset is None:
                count.first_offset = offset
            count.last_offset = offset
        return True


def _more_of(content: Content) -> dict[str, Any]:
    """What confluent-kafka takes by name, where there is any."""
    more: dict[str, Any] = {}
    if content.headers:
        more["headers"] = content.headers
    if content.timestamp_ms is not None:
        more["timestamp"] = content.timestamp_ms
    return more


def _name(source: BinaryIO) -> str:
    """What an input is called: a file's name, or stdin."""
    name = str(getattr(source, "name", "input"))
    return "stdin" if name == "<stdin>" else name


class Pace:
    """Holds a rate: each message has its due time, and what was missed is made up for at most a second."""

    def __init__(self, rate: Rate, *, senders: int = 1) -> None:
        """``senders``: share it, each in a thread."""
        self._seconds_each = senders / rate.per_second
        self._counts_bytes = rate.what == "bytes"
        self._due = time.monotonic()

    def wait(self, size: int, pause: Callable[[float], object], stop: threading.Event) -> None:
        now = time.monotonic()
        self._due = max(self._due, now - 1.0)
        while now < self._due and not stop.is_set():
            pause(min(self._due - now, 0.1))
            now = time.monotonic()
        self._due += self._seconds_each * (size if self._counts_bytes else 1)
