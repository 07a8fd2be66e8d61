"""How fast messages go in: what was acknowledged between the first call and the last answer.

Topics must be there: what a broker makes by itself would be measured with its making.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from confluent_kafka import KafkaException, Producer

from klog.client.cluster import Cluster
from klog.client.producer_settings import MESSAGE_BYTES_MAX
from klog.config.units import Rate
from klog.errors import UsageError
from klog.names import counted
from klog.render.columns import MayFail
from klog.tools.librdkafka import made, producer_settings
from klog.tools.perf.measurement import GRACE_S, MIB, Clock, Latencies, Measurement, csv_time
from klog.tools.sender import Pace

POOL_BYTES = 1 << 16
"""Letters of which messages are cut, so that no two are alike and compression has something to do."""


CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Kafka's numbers, which 0.8's lines show."""


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    """What to send. ``message_size`` bytes of value, or with ``vary`` 1 to that many; ``initial_id`` numbers them."""

    messages: int
    message_size: int = 100
    vary: bool = False
    batch_messages: int | None = 200
    threads: int = 1
    acks: Literal["0", "1", "all"] = "all"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    rate: Rate | None = None
    initial_id: int | None = None
    librdkafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducedRow(MayFail):
    """Messages and bytes that were acknowledged; times from a message's handing over to its acknowledgement."""

    start_time: datetime
    end_time: datetime
    compression: str
    message_bytes: int
    batch_messages: int | None
    threads: int
    acks: str
    messages: int
    bytes: int
    mib_per_s: float
    messages_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None

    CSV_HEADER: ClassVar[str] = (
        "start.time, end.time, compression, message.size, batch.size, total.data.sent.in.MB, MB.sec, "
        "total.data.sent.in.nMsg, nMsg.sec"
    )

    @property
    def csv(self) -> str:
        return (
            f"{csv_time(self.start_time)}, {csv_time(self.end_time)}, {CODECS[self.compression]}, "
            f"{self.message_bytes}, {self.batch_messages or 0}, {self.bytes / MIB:.2f}, {self.mib_per_s:.4f}, "
            f"{self.messages}, {self.messages_per_s:.4f}"
        )


def check_load(load: ProduceLoad) -> None:
    """UsageError where it makes no sense."""
    if not 1 <= load.message_size <= MESSAGE_BYTES_MAX:
        raise UsageError(f"messages of {load.message_size} bytes: between 1 and {MESSAGE_BYTES_MAX} are possible")
    if load.rate is not None and load.rate.what == "bytes" and load.vary:
        raise UsageError("a rate in bytes needs messages of one size", hint="--rate 500/s counts messages")


async def produce(
    cluster: Cluster,
    topics: Sequence[str],
    load: ProduceLoad,
) -> Measurement[ProducedRow]:
    """Send ``load``, which was checked, to the topics in turn. UnknownTopicOrPartition."""
    for topic in topics:
        await cluster.topic(topic)
    stop = threading.Event()
    senders = [_Sender(cluster, topics, load, number, stop) for number in range(load.threads)]
    clock = Clock()

    def row() -> ProducedRow:
        end, seconds = clock.stop()
        times = Latencies(*(one.latencies for one in senders))
        messages, size = sum(one.messages for one in senders), sum(one.bytes for one in senders)
        failed = sum(one.failed for one in senders)
        first_error = next((one.first_error for one in senders if one.first_error), None)
        return ProducedRow(
            clock.start_time,
            end,
            load.compression,
            load.message_size,
            load.batch_messages,
            load.threads,
            load.acks,
            messages,
            size,
            round(size / MIB / seconds, 3),
            round(messages / seconds, 1),
            times.percentile_ms(50),
            times.percentile_ms(99),
            times.percentile_ms(99.9),
            error="FAILED" if failed else None,
            message=f"{counted(failed, 'message')} not acknowledged: {first_error}" if failed else None,
        )

    return Measurement([one.run for one in senders], stop, lambda: sum(one.messages for one in senders), row)


class _Sender:
    """One thread's producer and what became of its messages."""

    def __init__(
        self, cluster: Cluster, topics: Sequence[str], load: ProduceLoad, number: int, stop: threading.Event
    ) -> None:

        self.latencies = Latencies()
        self.messages = self.bytes = self.failed = 0
        self.first_error: str | None = None
        self._topics = topics
        self._load = load
        self._stop = stop
        self._first, end = (load.messages * at // load.threads for at in (number, number + 1))
        self._count = end - self._first
        settings: dict[str, Any] = {
            **producer_settings(cluster.bootstrap, f"klog-perf-{number}", load.acks, load.compression),
            "message.timeout.ms": round(max(30.0, 3 * cluster.timeout_s) * 1000),
            "on_delivery": self._delivered,
        }
        if load.batch_messages is not None:
            settings["batch.num.messages"] = load.batch_messages
        self._producer = made(Producer, {**settings, **load.librdkafka})

    def run(self) -> None:
        load, producer, topics = self._load, self._producer, self._topics
        spread = random.Random(self._first)
        pool = bytes(spread.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=POOL_BYTES))
        pool *= load.message_size // POOL_BYTES + 2
        pace = Pace(load.rate, senders=load.threads) if load.rate is not None else None
        for number in range(self._first, self._first + self._count):
            size = spread.randint(1, load.message_size) if load.vary else load.message_size
            at = number * 37 % POOL_BYTES
            value = pool[at : at + size]
            if load.initial_id is not None:
                value = (b"MessageID:%d:" % (load.initial_id + number) + value)[:size]
            if pace is not None:
                pace.wait(size, producer.poll, self._stop)
            if self._stop.is_set():
                break
            self._send(topics[number % len(topics)], value)
            if number % 500 == 0:
                producer.poll(0)
        while not self._stop.is_set() and producer.flush(0.1):
            pass
        if self._stop.is_set():
            producer.purge(in_queue=True, in_flight=False, blocking=False)
            producer.flush(GRACE_S / 2)

    def _send(self, topic: str, value: bytes) -> None:
        while not self._stop.is_set():
            try:
                self._producer.produce(topic, value)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                self._failed(error.args[0])
                return
            else:
                return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.messages += 1
            self.bytes += len(message)
            self.latencies.add(message.latency())
        elif not self._stop.is_set():
            self._failed(error)

    def _failed(self, error: Any) -> None:
        self.failed += 1
        if self.first_error is None:
            self.first_error = error.str()
