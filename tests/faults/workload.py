"""Stock clients under load, and the history of what they did: idempotent producers, consumers of assigned partitions.

Every producer sends values of its own (``p2-17``) to all partitions in turn, with acks=all; every consumer reads all
partitions from their start on. `Workload.stop_sending` and `read_to_the_end` are the last catching up.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.faults.history import Assigned, Begun, End, Ended, Event, Polled, Shown

PRODUCERS = 3
CONSUMERS = 2
RATE_S = 100
"""Messages a producer sends a second: the machine is to have time for its faults."""
TICK_S = 0.02
DELIVERY_S = 300.0
"""How long a producer tries a message: longer than any fault. One whose batch is on the way when its time is up makes
librdkafka go on under a new epoch, and what it had sent before is then there twice."""
FLUSH_S = 75.0
"""How long it is waited for at the end; what is not settled then is unknown."""
CATCH_UP_S = 60.0
VALUE_BYTES = 200

_QUICK = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "socket.keepalive.enable": True,
    "topic.metadata.refresh.interval.ms": 5000,
    # By default a client waits a minute for the answer of a broker that hangs, whoever leads meanwhile.
    "socket.timeout.ms": 1500,
    "api.version.request.timeout.ms": 1500,
}
"""As clients are set that are to notice a failover at once; all else is the client's default."""


@dataclass
class Record:
    """The history as it comes about. Thread-safe."""

    events: list[Event] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    """What clients said that is no event of the history: errors, by their text."""
    began: float = field(default_factory=time.monotonic)

    def now(self) -> float:
        return time.monotonic() - self.began

    def add(self, event: Event) -> None:
        self.events.append(event)  # one bytecode of a list: threads do not tear it

    def note(self, who: str, error: KafkaError | KafkaException) -> None:
        cause = error.args[0] if isinstance(error, KafkaException) else error
        name = cause.name() if isinstance(cause, KafkaError) else repr(cause)
        self.notes[f"{who} {name}"] += 1


class Workload:
    """Sends and reads until told otherwise. One topic."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        security: Mapping[str, str] | None = None,
    ) -> None:
        """``security``: librdkafka's settings by which the clients log in."""
        self.record = Record()
        self._servers = {"bootstrap.servers": bootstrap, **(security or {})}
        self.topic = topic
        self.partitions = partitions
        self._sending, self._reading = threading.Event(), threading.Event()
        self._sending.set()
        self._reading.set()
        self._producers = [self._thread(self._produce, f"p{n}") for n in range(1, PRODUCERS + 1)]
        self._consumers = [self._thread(self._consume, f"c{n}") for n in range(1, CONSUMERS + 1)]
        self._consumers.append(self._thread(self._watch, "w1"))
        self.fatal: list[str] = []
        """Errors after which a producer could not go on."""

    def start(self) -> None:
        for thread in (*self._producers, *self._consumers):
            thread.start()

    def await_acks(self, count: int, timeout_s: float = 30.0) -> None:
        """Until so many messages have been acknowledged. TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while self.acked() < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.acked()} messages were acknowledged in {timeout_s:g} s: {self.record.notes}")
            time.sleep(0.02)

    def acked(self) -> int:
        return sum(isinstance(event, Ended) and event.outcome == "ok" for event in list(self.record.events))

    def stop_sending(self) -> None:
        """Returns when every message is acknowledged, refused or out of time."""
        self._sending.clear()
        for thread in self._producers:
            thread.join()

    def stop_reading(self) -> None:
        self._reading.clear()
        for thread in self._consumers:
            thread.join()

    def read_to_the_end(self, timeout_s: float = CATCH_UP_S) -> bool:
        """A new consumer reads everything from the start to the ends shown; whether it got there in time."""
        consumer = self._consumer("final")
        left: dict[int, int] = {}
        deadline = time.monotonic() + timeout_s
        try:
            for partition in range(self.partitions):
                end = self._end(consumer, partition, deadline)
                if end is None:
                    return False
                self.record.add(End(self.record.now(), partition, end))
                left[partition] = end
            while time.monotonic() < deadline:
                self._poll(consumer, "final", final=True)
                for standing in consumer.position([TopicPartition(self.topic, partition) for partition in left]):
                    if standing.offset >= left[standing.partition] or left[standing.partition] == 0:
                        del left[standing.partition]
                if not left:
                    return True
            self.record.notes[f"final never reached the end of {sorted(left)}"] += 1
            return False
        finally:
            consumer.close()

    def _end(self, consumer: Consumer, partition: int, deadline: float) -> int | None:
        while time.monotonic() < deadline:
            try:
                shown = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=5)
            except KafkaException as error:
                self.record.note("final", error)
                time.sleep(0.2)
                continue
            if shown is not None:
                return int(shown[1])
        return None

    # --- Producers ----------------------------------------------------------------------------------------------

    def _produce(self, by: str) -> None:
        producer = Producer(
            {
                **_QUICK,
                **self._servers,
                "client.id": by,
                "enable.idempotence": True,
                "acks": "all",
                "request.timeout.ms": 1000,
                "linger.ms": 5,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "message.timeout.ms": int(DELIVERY_S * 1000),
            }
        )
        record, number, due = self.record, 0, time.monotonic()
        while self._sending.is_set():
            while due <= time.monotonic() and self._sending.is_set():
                self._send(producer, by, number)
                number += 1
                due += 1 / RATE_S
            producer.poll(TICK_S)
        left = producer.flush(FLUSH_S)
        if left:
            record.notes[f"{by} left {left} messages unsettled"] += 1

    def _send(self, producer: Producer, by: str, number: int) -> None:
        record, partition = self.record, number % self.partitions
        value = f"{by}-{number}"

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                record.add(Ended(record.now(), by, number, "ok", -1 if offset is None else offset))
                return
            record.note(by, error)
            record.add(Ended(record.now(), by, number, "info", error=error.name()))

        record.add(Begun(record.now(), by, number, partition, value))
        try:
            producer.produce(self.topic, value.encode().ljust(VALUE_BYTES), partition=partition, on_delivery=delivered)
        except (KafkaException, BufferError) as error:  # never left this process
            if isinstance(error, KafkaException):
                record.note(by, error)
                if error.args[0].fatal() and by not in self.fatal:
                    self.fatal.append(f"{by}: {error.args[0].str()}")
                    self._sending.wait(TICK_S)
            record.add(Ended(record.now(), by, number, "fail", error=type(error).__name__))

    # --- Consumers ----------------------------------------------------------------------------------------------

    def _consumer(self, by: str) -> Consumer:
        consumer = Consumer(
            {
                **_QUICK,
                **self._servers,
                "client.id": by,
                "group.id": f"faults-{by}",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                # A position that is out of range is a loss: going back to the start shows it to the checker.
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "fetch.error.backoff.ms": 50,
            }
        )
        consumer.assign([TopicPartition(self.topic, one, OFFSET_BEGINNING) for one in range(self.partitions)])
        for partition in range(self.partitions):
            self.record.add(Assigned(self.record.now(), by, partition, 0))
        return consumer

    def _consume(self, by: str) -> None:
        consumer = self._consumer(by)
        while self._reading.is_set():
            for partition in self._poll(consumer, by, final=False):
                shown = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), cached=True)
                if shown is not None and shown[1] >= 0:
                    self.record.add(Shown(self.record.now(), by, partition, shown[1]))
        consumer.close()

    def _poll(self, consumer: Consumer, by: str, *, final: bool) -> list[int]:
        """One poll, in the history; which partitions it brought something of."""
        found: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for message in consumer.consume(1000, timeout=0.1):
            error = message.error()
            if error is not None:
                self.record.note(by, error)
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            found[partition].append((offset, value.decode(errors="replace").rstrip()))
        for partition, records in found.items():
            self.record.add(Polled(self.record.now(), by, partition, tuple(records), final))
        return list(found)

    def _watch(self, by: str) -> None:
        """Asks for the ends again and again: what a consumer is told by ListOffsets."""
        consumer = self._consumer(by)
        consumer.pause([TopicPartition(self.topic, one) for one in range(self.partitions)])
        partition = 0
        while self._reading.is_set():
            partition = (partition + 1) % self.partitions
            try:
                shown = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=1)
            except KafkaException:  # no leader, or none that is certain of its end (rule R8): asked again
                shown = None
            if shown is not None:
                self.record.add(Shown(self.record.now(), by, partition, shown[1]))
            consumer.poll(0.1)
        consumer.close()

    def _thread(self, act: Callable[[str], None], by: str) -> threading.Thread:
        return threading.Thread(target=act, args=(by,), name=by, daemon=True)
