"""The producers: librdkafka's, which every system gets alike, and one that sends the same ready-made request again.

librdkafka batches, checks and counts as a real client does, and is often the limit itself. The second does nothing but
send and count, so it shows the broker's own ceiling. Both run for a time, not for a count: a slow system gets less to
do, not longer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import Producer

from bench import wire
from bench.doors import Door

CALL_MESSAGES = 1000
"""Messages handed to librdkafka in one call, so that Python is not the producer's limit."""

DRAIN_TIMEOUT_S = 120.0


class Load(NamedTuple):
    """What went through: messages acknowledged (acks=0: sent), bytes of their values, seconds from first to last."""

    messages: int
    value_bytes: int
    seconds: float


class ProduceFailed(Exception):
    """Messages were refused or not acknowledged in time: there is no figure to report."""


@dataclass(frozen=True)
class Shape:
    """How messages come: `batch` of them in a request at most (None: up to 1 MB), `queue` of them waiting at most."""

    batch: int | None
    acks: str = "all"
    value_bytes: int = 200
    partitions: int = 1
    queue: int = 300_000
    linger_ms: float = 5.0
    extra: dict[str, object] = field(default_factory=dict)

    def settings(self) -> dict[str, object]:
        """librdkafka's settings for this shape; everything else is its default."""
        return {
            "acks": self.acks,
            "linger.ms": self.linger_ms,
            "batch.num.messages": self.batch or 1_000_000,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": self.queue,
            "queue.buffering.max.kbytes": 512 * 1024,
            **self.extra,
        }


def produce(port: int, topic: str, shape: Shape, seconds: float) -> Load:
    """Produces with librdkafka for `seconds`, then waits for what is under way; all of it counts."""
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(error),
            **shape.settings(),
        }
    )
    value = b"v" * shape.value_bytes
    calls = _calls(value, shape)
    producer.produce(topic, value, partition=0)
    if producer.flush(DRAIN_TIMEOUT_S):
        raise ProduceFailed(f"{topic}: the first message was not acknowledged within {DRAIN_TIMEOUT_S} s")
    messages = 0
    start = time.perf_counter()
    deadline = start + seconds
    turn = 0
    while time.perf_counter() < deadline:
        queued = _queue(producer, topic, calls[turn % len(calls)])
        turn += 1
        messages += queued
        if queued < CALL_MESSAGES:  # the queue is full: let librdkafka have the time
            producer.poll(0.001)
    left = producer.flush(DRAIN_TIMEOUT_S)
    elapsed = time.perf_counter() - start
    if failures or left:
        raise ProduceFailed(f"{topic}: {len(failures)} messages refused ({failures[:1]}), {left} not acknowledged")
    return Load(messages, messages * shape.value_bytes, elapsed)


def _calls(value: bytes, shape: Shape) -> list[list[dict[str, object]]]:
    """The arguments of the calls, made once: one for all where there is one partition, else round robin over them."""
    count = max(1, -(-shape.partitions // CALL_MESSAGES))
    return [
        [{"value": value, "partition": (turn * CALL_MESSAGES + i) % shape.partitions} for i in range(CALL_MESSAGES)]
        for turn in range(count)
    ]


def _queue(producer: Producer, topic: str, messages: list[dict[str, object]]) -> int:
    """How many of the messages found room in the queue."""
    try:
        queued: int = producer.produce_batch(topic, messages)
    except BufferError:
        return 0
    return queued


class _Answers:
    """Counts answers that are all of one length, as those to equal requests are, and looks at each error code."""

    def __init__(self, connection: wire.Connection, first: memoryview) -> None:
        self._connection = connection
        self._size = 4 + len(first)
        name_bytes = int.from_bytes(first[8:10], "big")
        self._error_at = 4 + 10 + name_bytes + 4 + 4
        self._pending = bytearray()

    def take(self) -> int:
        """Waits for bytes; how many whole answers they completed."""
        self._pending += self._connection.receive_some()
        count = len(self._pending) // self._size
        whole = count * self._size
        for at in (self._error_at, self._error_at + 1):
            if any(self._pending[at : whole : self._size]):
                raise ProduceFailed("a request was answered with an error")
        del self._pending[:whole]
        return count


def fill(
    port: int | Door, topic: str, batch_messages: int, value_bytes: int, value_bytes_total: int, partition: int = 0
) -> int:
    """Produces equal batches (acks=all, to one partition) until there are so many bytes of values; the messages."""
    batch = wire.build_batch(batch_messages, value_bytes)
    batches = -(-value_bytes_total // (batch_messages * value_bytes))
    with wire.Connection(port) as connection:
        frame = connection.produce_frame(topic, [(partition, batch)])
        window = max(1, (4 << 20) // len(frame))
        for number in range(batches):
            connection.send(frame)
            if number >= window:
                connection.produce_answer()
        for _ in range(min(window, batches)):
            connection.produce_answer()
    return batches * batch_messages


def pump(
    port: int | Door,
    topic: str,
    batch_messages: int,
    value_bytes: int,
    in_flight: int,
    seconds: float,
    partition: int = 0,
) -> Load:
    """Sends one ready-made acks=all request to a partition again and again, at most `in_flight` unanswered."""
    batch = wire.build_batch(batch_messages, value_bytes)
    with wire.Connection(port) as connection:
        frame = connection.produce_frame(topic, [(partition, batch)])
        connection.send(frame)
        answers = _Answers(connection, connection.receive())
        burst_limit = max(1, min(in_flight, (1 << 20) // len(frame)))
        burst = frame * burst_limit
        outstanding = requests = 0
        start = time.perf_counter()
        deadline = start + seconds
        while time.perf_counter() < deadline:
            room = min(in_flight - outstanding, burst_limit)
            if room > 0:
                connection.send(memoryview(burst)[: room * len(frame)])
                outstanding += room
                requests += room
            if outstanding >= in_flight:
                outstanding -= answers.take()
        while outstanding:
            outstanding -= answers.take()
        elapsed = time.perf_counter() - start
    messages = requests * batch_messages
    return Load(messages, messages * value_bytes, elapsed)
