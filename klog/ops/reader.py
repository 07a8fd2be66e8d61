"""The thread that reads: from librdkafka's queue to a stream of bytes.

Strategy: one wait for a message, then whatever else is there, in runs of up to ten thousand that are written by one
call: a message that comes alone is shown at once, and a backlog passes at librdkafka's pace. A Reader belongs to the
thread that runs `run`.
"""

from __future__ import annotations

import heapq
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Assigned

from klog.errors import KlogError, TimedOut, UnknownTopicOrPartition, UsageError
from klog.names import TopicPartition
from klog.ops.formats import compile_format, headers_of, timestamp_of
from klog.ops.jsonl import Content, to_line
from klog.ops.sender import silent_logger

if TYPE_CHECKING:
    from klog.ops.tail import Span, TailOptions, TailSummary

RUN_MESSAGES = 10_000
WAIT_S = 0.1
"""How long one wait for a message lasts: the time in which a stop is noticed."""

DELETION_MS = 5000
"""How long a topic may be missing from the brokers' answers before it is taken for deleted."""

MERGE_BUFFER_MESSAGES = 20_000
"""What one partition may be ahead of the others while messages are put in the order of time."""

_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)

Message = Any
"""confluent-kafka's, which has no types."""


class Shower:
    """From messages to the bytes that show them, as the options say."""

    def __init__(self, options: TailOptions) -> None:
        """Raises UsageError for a format or a regular expression that is none."""
        self._grep = None
        if options.grep is not None:
            try:
                self._grep = re.compile(options.grep.encode())
            except re.error as error:
                raise UsageError(f"--grep {options.grep!r} is no regular expression: {error}") from None
        if options.format is not None:
            self._show: Callable[[list[Message]], bytes] = _formatted(compile_format(options.format))
        elif options.output == "jsonl":
            self._show = _json_lines
        else:
            self._show = _values

    def wanted(self, messages: list[Message]) -> list[Message]:
        """Those whose value has what is searched for."""
        if self._grep is None:
            return messages
        search = self._grep.search
        return [message for message in messages if search(message.value() or b"")]

    def show(self, messages: list[Message]) -> bytes:
        return self._show(messages)


class Reader:
    """Reads spans of partitions and writes what they hold."""

    def __init__(
        self,
        bootstrap: str,
        spans: Mapping[TopicPartition, Span],
        options: TailOptions,
        sink: BinaryIO,
        *,
        follow: bool,
        earlier: int | None,
        stop: threading.Event,
        note: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        """``follow``: go on behind the ends of the spans. Raises UsageError for options that make no sense."""
        self._shower = Shower(options)
        self._options = options
        self._spans = spans
        self._sink = sink
        self._follow = follow
        self._earlier = earlier
        self._stop = stop
        self._note = note
        self._timeout_s = timeout_s
        self._ends: dict[tuple[str, int], int] = {}
        self._open: set[tuple[str, int]] = set()
        """Partitions whose end was not reached yet."""
        self._messages = 0
        self._bytes = 0
        self._trouble: str | None = None
        self._gone: str | None = None
        try:
            self._consumer = Consumer(self._settings(bootstrap))
        except KafkaException as error:
            raise UsageError(f"librdkafka refuses its settings: {error.args[0].str()}") from None

    def _settings(self, bootstrap: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": bootstrap,
            "client.id": "klog-tail",
            "group.id": "klog-tail",  # asked for, and never used: partitions are assigned, nothing is committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # a jump over what retention removed is to be told
            "allow.auto.create.topics": False,
            "topic.metadata.propagation.max.ms": DELETION_MS,
            "enable.partition.eof": True,
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": 64 * 1024,
            "fetch.queue.backoff.ms": 5,  # by default a full queue stops fetching for a second: 5 x slower
            "fetch.message.max.bytes": 4 * 1024 * 1024,
            "error_cb": self._on_error,
            "logger": silent_logger(),
            **self._options.librdkafka,
        }

    def run(self) -> TailSummary:
        """Until the ends, the count or the stop; what was shown. BrokenPipeError where nobody reads any more.

        Raises TimedOut where nothing comes although the end was not reached.
        """
        from klog.ops.tail import TailSummary

        try:
            if any(span.end is not None for span in self._spans.values()):
                self._read_to_the_ends()
            if self._follow and not self._is_done:
                self._read_on()
        finally:
            self._consumer.close()
        return TailSummary(self._messages, self._bytes, self._earlier)

    @property
    def _is_done(self) -> bool:
        """Whether someone said stop, or enough was shown."""
        count = self._options.count
        return self._stop.is_set() or (count is not None and self._messages >= count)

    # --- What is there ---

    def _read_to_the_ends(self) -> None:
        wanted = {(one.topic, one.partition): span for one, span in self._spans.items() if not span.is_empty}
        self._ends = {key: span.end for key, span in wanted.items() if span.end is not None}
        self._open = set(self._ends)
        self._assign({key: span.begin for key, span in wanted.items()})
        if self._options.last is not None:
            self._show_last(self._options.last)
        elif self._options.merge_by_time:
            self._show_merged()
        else:
            while self._open and not self._is_done:
                self._write(self._next_run())

    def _show_last(self, count: int) -> None:
        """The ``count`` messages with the largest timestamps, in their order."""
        newest: list[tuple[int, str, int, int, Message]] = []
        seen = 0
        while self._open and not self._stop.is_set():
            for message in self._next_run():
                seen += 1
                heapq.heappush(newest, _by_time(message))
                if len(newest) > count:
                    heapq.heappop(newest)
        if self._stop.is_set():
            return
        if self._earlier is not None:
            self._earlier += seen - len(newest)
            if self._earlier:
                self._note(f"{self._earlier} earlier: -o start")
        self._write([row[-1] for row in sorted(newest)])

    def _show_merged(self) -> None:
        """All messages in the order of time: of what the partitions have next, the earliest."""
        waiting: dict[tuple[str, int], deque[Message]] = {key: deque() for key in self._open}
        paused: set[tuple[str, int]] = set()
        while not self._is_done and (self._open or any(waiting.values())):
            for message in self._next_run() if self._open else ():
                waiting[message.topic(), message.partition()].append(message)
            for key, buffer in waiting.items():
                if len(buffer) > MERGE_BUFFER_MESSAGES and key not in paused:
                    self._consumer.pause([Assigned(*key)])
                    paused.add(key)
            heads = [_by_time(buffer[0]) for buffer in waiting.values() if buffer]
            heapq.heapify(heads)
            ordered = []
            while heads and all(waiting[key] for key in self._open):
                message = heapq.heappop(heads)[-1]
                buffer = waiting[message.topic(), message.partition()]
                ordered.append(buffer.popleft())
                if buffer:
                    heapq.heappush(heads, _by_time(buffer[0]))
            self._write(ordered)
            starved = [key for key in paused if len(waiting[key]) < MERGE_BUFFER_MESSAGES // 2]
            if starved:
                self._consumer.resume([Assigned(*key) for key in starved])
                paused.difference_update(starved)

    # --- What comes ---

    def _read_on(self) -> None:
        self._ends = {}
        self._assign(
            {
                (one.topic, one.partition): span.begin if span.end is None else max(span.begin, span.end)
                for one, span in self._spans.items()
            }
        )
        while not self._is_done:
            self._write(self._next_run())

    # --- librdkafka ---

    def _assign(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self._assigned = offsets
        self._consumer.assign([Assigned(topic, partition, offset) for (topic, partition), offset in offsets.items()])
        self._last_heard = time.monotonic()

    def _next_run(self) -> list[Message]:
        """What has come, without what lies behind the ends; empty after a while of nothing."""
        first = self._consumer.poll(WAIT_S)
        if self._gone is not None:
            raise UnknownTopicOrPartition(f"the topic was deleted: {self._gone}")
        if first is None:
            waited_s = time.monotonic() - self._last_heard
            if self._open and waited_s > self._timeout_s:
                missing = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(self._open)[:5])
                raise TimedOut(
                    f"nothing came for {self._timeout_s:g} s, and the end of {missing} was not reached"
                    + (f" ({self._trouble})" if self._trouble else "")
                )
            return []
        self._last_heard = time.monotonic()
        run = [first, *self._consumer.consume(RUN_MESSAGES - 1, 0)]
        ends = self._ends
        if not ends:
            return [message for message in run if message.error() is None or self._heard(message)]
        kept = []
        for message in run:
            if message.error() is not None:
                self._heard(message)
                continue
            key = (message.topic(), message.partition())
            left = ends.get(key, 0) - message.offset()
            if left > 0:
                kept.append(message)
            if left <= 1:
                self._open.discard(key)
        return kept

    def _heard(self, message: Message) -> bool:
        """Deal with what is no message; always False."""
        error, key = message.error(), (message.topic(), message.partition())
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            # Also where the last messages before the end are gone or were never shown to consumers.
            if message.offset() >= self._ends.get(key, 0):
                self._open.discard(key)
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._note(f"{key[0]}-{key[1]}: retention has removed what came next; going on at the log's start")
            self._go_on_at_the_start(*key)
        elif code in _GONE:
            self._gone = f"{key[0]}-{key[1]}: {error.str()}"
        elif not error.retriable():
            raise KlogError(f"{key[0]}-{key[1]}: {error.str()}")
        return False

    def _go_on_at_the_start(self, topic: str, partition: int) -> None:
        """Assign all partitions anew, this one at its start: a partition in error takes no seek."""
        assigned = self._consumer.position(self._consumer.assignment())
        for one in assigned:
            if (one.topic, one.partition) == (topic, partition):
                one.offset = OFFSET_BEGINNING
            elif one.offset < 0:  # nothing was read of it yet
                one.offset = self._assigned[one.topic, one.partition]
        self._consumer.assign(assigned)

    def _on_error(self, error: KafkaError) -> None:
        """What librdkafka says of its connections; it goes on trying by itself. Each sentence is told once."""
        text = error.str()
        if error.code() in _GONE:
            self._gone = text
            return
        if text != self._trouble:
            self._trouble = text
            self._note(f"{text} (trying again)")

    # --- The sink ---

    def _write(self, messages: list[Message]) -> None:
        wanted = self._shower.wanted(messages)
        if self._options.count is not None:
            wanted = wanted[: self._options.count - self._messages]
        if not wanted:
            return
        shown = self._shower.show(wanted)
        self._sink.write(shown)
        self._sink.flush()
        self._messages += len(wanted)
        self._bytes += len(shown)


def _by_time(message: Message) -> tuple[int, str, int, int, Message]:
    """Ordered by time, then by place: no two are equal, so the message itself is never compared."""
    return timestamp_of(message) or 0, message.topic(), message.partition(), message.offset(), message


def _values(messages: list[Message]) -> bytes:
    """A newline after each; null is an empty line."""
    values = [message.value() or b"" for message in messages]
    values.append(b"")
    return b"\n".join(values)


def _json_lines(messages: list[Message]) -> bytes:
    lines = []
    for message in messages:
        content = Content(message.key(), message.value(), headers_of(message), timestamp_of(message))
        lines.append(to_line(message.topic(), message.partition(), message.offset(), content))
    lines.append("")
    return "\n".join(lines).encode()


def _formatted(show: Callable[[Message], bytes]) -> Callable[[list[Message]], bytes]:
    return lambda messages: b"".join(map(show, messages))
