"""How long one message takes from a producer's hands into a consumer's.

One after the other, or at a rate: then each is timed from when it was due, so that a stall counts for all that should
have been sent in it.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from klog.client.cluster import Cluster
from klog.client.positions import END
from klog.client.resolve import resolve
from klog.client.servers import librdkafka_servers
from klog.config.units import Rate
from klog.errors import KlogError, TimedOut, UsageError
from klog.tools.librdkafka import made, producer_settings
from klog.tools.perf.measurement import Clock, Latencies, Measurement, csv_time

WARM_UP = 20
"""Messages before those that are timed: connections are made, and leaders known."""

MESSAGE_BYTES_MAX = 900_000
"""One message of that size goes through with every setting at its default."""

MARK_BYTES = 8
"""Each message begins with its number."""


@dataclass(frozen=True, slots=True)
class LatencyLoad:
    """What to send; ``rate`` None: the next when the last has come."""

    messages: int
    message_size: int = 100
    partition: int = 0
    acks: Literal["0", "1", "all"] = "all"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    rate: Rate | None = None
    librdkafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Times of ``messages`` from end to end."""

    start_time: datetime
    end_time: datetime
    compression: str
    message_bytes: int
    acks: str
    messages: int
    messages_per_s: float
    average_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None
    max_ms: float | None

    CSV_HEADER: ClassVar[str] = (
        "start.time, end.time, compression, message.size, nMsg, avg.ms, p50.ms, p99.ms, p99.9.ms, max.ms"
    )

    @property
    def csv(self) -> str:
        """A line like 0.8's, which had no header for these."""
        times = (self.average_ms, self.p50_ms, self.p99_ms, self.p99_9_ms, self.max_ms)
        return (
            f"{csv_time(self.start_time)}, {csv_time(self.end_time)}, {self.compression}, {self.message_bytes}, "
            f"{self.messages}, {', '.join('' if one is None else f'{one:.3f}' for one in times)}"
        )


def check_load(load: LatencyLoad) -> None:
    """UsageError where it makes no sense."""
    if not MARK_BYTES <= load.message_size <= MESSAGE_BYTES_MAX:
        raise UsageError(
            f"messages of {load.message_size} bytes: {MARK_BYTES} (the number) to {MESSAGE_BYTES_MAX} are possible"
        )
    if load.rate is not None and load.rate.what == "bytes":
        raise UsageError("expected a rate of messages, such as 500/s", hint="--rate 500/s")


async def latency(cluster: Cluster, topic: str, load: LatencyLoad) -> Measurement[LatencyRow]:
    """Send ``load``, which was checked. UnknownTopicOrPartition; running it raises TimedOut where a message does not
    come within the cluster's time-out.
    """
    node = await cluster.topic(topic)
    node.check([load.partition])
    (end,) = (await resolve(cluster, dict.fromkeys(node.names([load.partition]), END))).values()
    stop = threading.Event()
    probe = _Probe(cluster, topic, load, end, stop)
    clock = Clock()

    def row() -> LatencyRow:
        end_time, seconds = clock.stop()
        times = probe.latencies
        return LatencyRow(
            clock.start_time,
            end_time,
            load.compression,
            load.message_size,
            load.acks,
            times.count,
            round(times.count / seconds, 1),
            times.average_ms,
            times.percentile_ms(50),
            times.percentile_ms(99),
            times.percentile_ms(99.9),
            times.largest_ms,
        )

    return Measurement([probe.run], stop, lambda: probe.latencies.count, row)


class _Probe:
    """Sends and receives in one thread, so that no message waits for another thread's turn."""

    def __init__(self, cluster: Cluster, topic: str, load: LatencyLoad, end: int, stop: threading.Event) -> None:

        self.latencies = Latencies()
        self._topic = topic
        self._load = load
        self._stop = stop
        self._timeout_s = cluster.timeout_s
        self._error: str | None = None
        self._producer = made(
            Producer,
            {
                **producer_settings(cluster.bootstrap, "klog-perf-producer", load.acks, load.compression),
                "linger.ms": 0,
                "on_delivery": self._delivered,
                **load.librdkafka,
            },
        )
        self._consumer = made(
            Consumer,
            {
                **librdkafka_servers(cluster.bootstrap),
                "client.id": "klog-perf-consumer",
                "group.id": "klog-perf",  # asked for, and never used
                "enable.auto.commit": False,
            },
        )
        self._consumer.assign([TopicPartition(topic, load.partition, end)])

    def run(self) -> None:
        try:
            due: dict[int, float] = {}
            first = secrets.randbits(48)  # another one may be measuring the same partition
            for number in range(first, first + WARM_UP):
                self._send(number, due, time.perf_counter())
                self._receive(due)
            self.latencies = Latencies()
            pause_s = 0.0 if self._load.rate is None else 1 / self._load.rate.per_second
            at = time.perf_counter()
            for number in range(first + WARM_UP, first + WARM_UP + self._load.messages):
                if pause_s:
                    self._receive(due, until=at)
                    self._send(number, due, at)
                    at += pause_s
                else:
                    self._send(number, due, time.perf_counter())
                    self._receive(due)
                if self._stop.is_set():
                    return
            self._receive(due)
        finally:
            self._consumer.close()

    def _send(self, number: int, due: dict[int, float], at: float) -> None:
        due[number] = at
        value = number.to_bytes(MARK_BYTES, "big").ljust(self._load.message_size, b"x")
        try:
            self._producer.produce(self._topic, value, partition=self._load.partition)
        except (BufferError, KafkaException) as error:
            raise KlogError(f"a message could not be sent: {error}") from None
        self._producer.poll(0)

    def _receive(self, due: dict[int, float], until: float | None = None) -> None:
        """Until a time, or until all that is ``due`` has come."""
        heard = now = time.perf_counter()
        while not self._stop.is_set() and (due if until is None else now < until):
            wait_s = 0.05 if until is None else min(max(until - now, 0.0), 0.05)
            message = self._consumer.poll(wait_s)
            now = time.perf_counter()
            self._producer.poll(0)
            if self._error is not None:
                raise KlogError(f"a message was not acknowledged: {self._error}")
            if message is None or message.error() is not None:
                if due and now - max(heard, min(due.values())) > self._timeout_s:
                    raise TimedOut(f"a message did not come back within {self._timeout_s:g} s")
                continue
            heard = now
            sent = due.pop(int.from_bytes((message.value() or b"")[:MARK_BYTES], "big"), None)
            if sent is not None:  # not of another client
                self.latencies.add(now - sent)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._error is None:
            self._error = error.str()
