"""The loads of the paper's experiment (section 5): messages of 200 bytes, in and out, by one client and one partition.

A load ends when so many messages have gone through, or when its time is over; it tells its course. What
counts in a producer's is acknowledged (with ``acks=0``: sent).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from klog.client.servers import librdkafka_servers
from klog.errors import KlogError, TimedOut

VALUE_BYTES = 200
VALUE = b"v" * VALUE_BYTES

SAMPLE_S = 0.1
"""Between two points of a course."""

CALL_MESSAGES = 1000
"""Handed to librdkafka, or taken from it, in one call: so that Python is not what limits it."""

QUEUE_MESSAGES = 300_000
LOOK_EVERY = 100
"""Messages of `klog.Producer` and `klog.Consumer` between two looks at the clock."""

WAIT_S = 0.05
FIRST_TIMEOUT_S = 30.0


class Point(NamedTuple):
    """So many messages had gone through, so long after the load began."""

    seconds: float
    messages: int


class Bounds(NamedTuple):
    """How far a load goes: ``messages``, ``limit_s`` seconds at most."""

    messages: int
    limit_s: float


class Course:
    """What a load has done by now. One thread writes it."""

    def __init__(self, bounds: Bounds) -> None:
        self.points: list[Point] = [Point(0.0, 0)]
        self._bounds = bounds
        self._began: float | None = None

    def begin(self) -> None:
        """The clock runs from here on: connections are open, and a first message has gone through."""
        self._began = time.perf_counter()

    @property
    def last(self) -> Point:
        return self.points[-1]

    def goes_on(self, messages: int) -> bool:
        """Note how far it is; whether there is anything left to do."""
        seconds = self._seconds()
        if seconds - self.last.seconds >= SAMPLE_S:
            self.points.append(Point(seconds, messages))
        return messages < self._bounds.messages and seconds < self._bounds.limit_s

    def end(self, messages: int) -> None:
        """All that went through has done so by now."""
        self.points.append(Point(self._seconds(), messages))

    def _seconds(self) -> float:
        """0 until the first message."""
        return 0.0 if self._began is None else time.perf_counter() - self._began


def produce_by_librdkafka(
    bootstrap: str,
    topic: str,
    bounds: Bounds,
    *,
    batch: int,
    settings: Mapping[str, object],
    values: Sequence[bytes] = (VALUE,),
) -> Course:
    """Send ``values`` in turn by confluent-kafka's producer, ``batch`` messages in a request at most.

    KlogError where one is refused.

    At the end of its time what is still queued is taken back, so that a slow broker is not waited for.
    """
    from confluent_kafka import KafkaError, Producer

    failures: list[Any] = []
    purged = 0

    def undelivered(error: Any, message: Any) -> None:
        nonlocal purged
        if error.code() == KafkaError._PURGE_QUEUE:
            purged += 1
        else:
            failures.append(error)

    producer = Producer(
        {
            **librdkafka_servers(bootstrap),
            "client.id": "klog-paper",
            "linger.ms": 5,
            "batch.num.messages": batch,
            "queue.buffering.max.messages": QUEUE_MESSAGES,
            "queue.buffering.max.kbytes": 512 * 1024,
            "log_level": 0,
            "delivery.report.only.error": True,
            "on_delivery": undelivered,
            **settings,
        }
    )
    hand_over = _batches(producer, topic, values)
    course = Course(bounds)
    hand_over(1)
    deadline = time.perf_counter() + FIRST_TIMEOUT_S
    while producer.flush(WAIT_S):
        if time.perf_counter() > deadline:
            raise TimedOut(f"{topic}: the first message was not acknowledged within {FIRST_TIMEOUT_S:g} s")
    course.begin()
    sent = 0
    while course.goes_on(sent - len(producer)) and sent < bounds.messages and not failures:
        queued = hand_over(min(CALL_MESSAGES, bounds.messages - sent))
        sent += queued
        if queued < CALL_MESSAGES:  # the queue is full: librdkafka gets the time
            producer.poll(0.001)
    while course.goes_on(sent - len(producer)) and len(producer):
        producer.flush(WAIT_S)
    producer.purge(in_queue=True, in_flight=False, blocking=False)
    while producer.flush(WAIT_S):
        course.goes_on(sent - len(producer) - purged)
    if failures:
        raise KlogError(f"{topic}: {len(failures)} messages were not acknowledged: {failures[0]}")
    course.end(sent - purged - len(failures))
    return course


def _batches(producer: Any, topic: str, values: Sequence[bytes]) -> Callable[[int], int]:
    """A function that hands over so many messages, CALL_MESSAGES at most, and says how many found room."""
    call = [{"value": values[number % len(values)], "partition": 0} for number in range(CALL_MESSAGES)]

    def together(count: int) -> int:
        try:
            return int(producer.produce_batch(topic, call if count == CALL_MESSAGES else call[:count]))
        except BufferError:
            return 0

    def each(count: int) -> int:
        for number, message in enumerate(call[:count]):
            try:
                producer.produce(topic, **message)
            except BufferError:
                return number
        return count

    return together if hasattr(producer, "produce_batch") else each  # older confluent-kafka has none


def consume_by_librdkafka(
    bootstrap: str, topic: str, bounds: Bounds, *, settings: Mapping[str, object] | None = None
) -> Course:
    """Read partition 0 from its start by confluent-kafka's consumer. KlogError for what it reports."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            **librdkafka_servers(bootstrap),
            "client.id": "klog-paper",
            "group.id": "klog-paper",  # asked for, and never used
            "enable.auto.commit": False,
            "log_level": 0,
            **(settings or {}),
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        course = Course(bounds)
        read, begun_by = 0, time.perf_counter() + FIRST_TIMEOUT_S
        while course.goes_on(read):
            messages = consumer.consume(CALL_MESSAGES, WAIT_S)
            if not messages and not read and time.perf_counter() > begun_by:
                break
            if messages and messages[-1].error() is not None:
                raise KlogError(f"{topic}: {messages[-1].error()}")
            if not read and messages:
                course.begin()
            read += sum(len(message.value()) == VALUE_BYTES for message in messages)
        course.end(min(read, bounds.messages))
        return course
    finally:
        consumer.close()


def produce_by_klog(bootstrap: str, topic: str, bounds: Bounds, *, batch: int, acks: str = "all") -> Course:
    """Send by `klog.Producer`, the paper's: asynchronous, ``batch`` messages in a request at most."""
    import klog

    producer = klog.Producer(
        bootstrap_servers=bootstrap, producer_type="async", batch_num_messages=batch, linger_ms=5, acks=acks
    )
    try:
        producer.send(topic, VALUE, partition=0)
        producer.flush(FIRST_TIMEOUT_S)
        course = Course(bounds)
        course.begin()
        sent, last = 0, None
        while course.goes_on(sent - len(producer)) and sent < bounds.messages:
            for _ in range(min(LOOK_EVERY, bounds.messages - sent)):
                last = producer.send(topic, VALUE, partition=0)
                sent += 1
        while len(producer):
            with suppress(TimedOut):
                producer.flush(WAIT_S)
            course.goes_on(sent - len(producer))
        if last is not None and last.done():
            last.result()
        course.end(sent - len(producer))
        return course
    finally:
        with suppress(TimedOut):
            producer.close(FIRST_TIMEOUT_S)


def consume_by_klog(zookeeper: str, group: str, topic: str, bounds: Bounds) -> Course:
    """Read the topic from its start by one stream of `klog.Consumer`, as a group that is new."""
    import klog

    wait_ms = int(1000 * WAIT_S)
    with klog.Consumer(zookeeper, group, auto_offset_reset="smallest", consumer_timeout_ms=wait_ms) as consumer:
        (stream,) = consumer.create_message_streams(topic)
        course = Course(bounds)
        read, begun_by = 0, time.perf_counter() + FIRST_TIMEOUT_S
        while course.goes_on(read):
            try:
                for message in stream:
                    if not read:
                        course.begin()
                    read += len(message.payload()) == VALUE_BYTES
                    if not read % LOOK_EVERY and not course.goes_on(read):
                        break
            except klog.ConsumerTimeout:
                if not read and time.perf_counter() > begun_by:
                    break
        course.end(min(read, bounds.messages))
        return course
