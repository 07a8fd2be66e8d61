"""kill -9 of a real broker under load: nothing that was acknowledged is lost, and nothing is there twice.

Goal: what a producer with idempotence and acks=all was told is written is read back after any number of kills, once,
in the order in which it was sent. Method: one librdkafka producer keeps sending numbered messages to three partitions
while the broker is killed and started again at seeded moments; then everything is read and compared.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.broker_fixture import RunningBroker
from tests.chance import seed_of
from tests.until import until

KILLS = int(os.environ.get("KLOG_TEST_KILLS", "5"))
PARTITIONS = 3


class Load:
    """A producer in a thread. `acked` has, for each partition, the numbers in the order of their acknowledgement."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acked: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
        self.failed: list[str] = []
        self.sent = 0
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "compression.type": "lz4",
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(50):
                number = self.sent
                try:
                    self._producer.produce(
                        self._topic, b"%012d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
                    )
                except BufferError:  # the broker is down for longer than the queue has room
                    break
                self.sent += 1
            self._producer.poll(0.005)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        if error is not None:
            self.failed.append(f"{value!r}: {error.str()}")
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acked[partition].append((int(value), offset))

    def count(self) -> int:
        return sum(map(len, self.acked.values()))

    def wait_for_more(self, more: int, timeout_s: float = 30.0) -> None:
        """Until so many more have been acknowledged."""
        wanted = self.count() + more
        until(lambda: self.count() >= wanted, lambda: f"{self.count()} acknowledged, {wanted} wanted", timeout_s)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def read_all(bootstrap: str, topic: str) -> dict[int, list[tuple[int, int]]]:
    """(number, offset) of every message, in the log's order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    found: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
    left = set(found)
    deadline = time.monotonic() + 60
    while left:
        messages = consumer.consume(1000, timeout=0.2)  # it waits for all thousand, or for so long
        assert time.monotonic() < deadline, "the end did not come"
        for message in messages:
            error = message.error()
            if error is None:
                found[message.partition()].append((int(message.value()), message.offset()))  # type: ignore[index,arg-type]
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error.str()
                left.discard(message.partition())  # type: ignore[arg-type]
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_again_and_again_under_load(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    chance = random.Random(seed_of("killed under load"))
    # Small segments and few batches between checkpoints, so that kills fall on rolls and checkpoints too.
    broker = make_broker(
        num__partitions=str(PARTITIONS),
        log__segment__bytes="30000",
        log__flush__offset__checkpoint__interval__ms="200",
    ).start()
    load = Load(broker.bootstrap, topic)
    try:
        for _ in range(KILLS):
            load.wait_for_more(chance.randrange(1, 2000))
            time.sleep(chance.random() * 0.02)
            broker.kill()
            broker.start()
        load.wait_for_more(100)
    finally:
        load.finish()
    assert not load.failed
    found = read_all(broker.bootstrap, topic)
    for partition, acked in load.acked.items():
        numbers = [number for number, _ in found[partition]]
        assert numbers == sorted(set(numbers)), f"partition {partition}: doubled or out of order"
        missing = set(acked) - set(found[partition])
        assert not missing, f"partition {partition}: acknowledged and lost, or elsewhere: {sorted(missing)[:5]}"
    assert sum(map(len, found.values())) == load.sent
