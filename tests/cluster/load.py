"""Load on a cluster, and the judgement of what became of it.

`Load` is one stock producer (librdkafka) with idempotence and acks=all, as a person would set it, that keeps sending
numbered messages to every partition of a topic. `judge` reads the topic from start to end and compares: what was
acknowledged is there, once, at the offset that the acknowledgement named, and in the order in which it was sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.until import until

WAIT_S = 40.0
PER_BATCH = 10
PAUSE_S = 0.025
"""Between two hands full: some 200 messages a second, which leaves a busy machine room for what is tested."""


class Load:
    """A producer in a thread. `acked`: for each partition (number, offset) in the order of their acknowledgement.

    `acked_somewhere` has the messages whose offset the producer does not know. An old leader writes a batch, its
    followers fetch it, and it stops leading before it may acknowledge: NOT_LEADER_OR_FOLLOWER. librdkafka sends this
    batch to the old leader once more, and the one behind it, after new metadata, to the new leader, which has the first
    batch and acknowledges the second. So librdkafka tells of both as delivered, and has no offset of the first.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int = 1, *, pause_s: float = PAUSE_S, **settings: object
    ) -> None:
        self.topic = topic
        self._pause_s = pause_s
        self.acked_somewhere: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        self.partitions = partitions
        self.acked: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(partitions)}
        self.failed: list[str] = []
        """Messages that the producer gave up: none, when it may retry."""
        self.sent = 0
        self._last_ack = {partition: time.monotonic() for partition in range(partitions)}
        self._longest = dict.fromkeys(range(partitions), 0.0)
        self._stop = threading.Event()
        self._died: BaseException | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._send()
        except BaseException as error:
            self._died = error

    def check_alive(self) -> None:
        """AssertionError with its own cause where the load has died: who waits for it waits in vain."""
        if self._died is not None:
            raise AssertionError(f"the load has died: {self._died!r}") from self._died

    def _send(self) -> None:
        while not self._stop.is_set():
            for _ in range(PER_BATCH):
                try:
                    self._producer.produce(
                        self.topic, self.value(self.sent), partition=self.sent % self.partitions, callback=self._told
                    )
                except BufferError:
                    break
                self.sent += 1
            self._producer.poll(self._pause_s)
            self._stop.wait(self._pause_s)

    @staticmethod
    def value(number: int) -> bytes:
        return b"%012d" % number

    def _told(self, error: KafkaError | None, message: Message) -> None:
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None and partition is not None
        if error is not None:
            self.failed.append(f"{value!r}: {error.str()}")
            return
        now = time.monotonic()
        self._longest[partition] = max(self._longest[partition], now - self._last_ack[partition])
        self._last_ack[partition] = now
        if offset is None:
            self.acked_somewhere[partition].append(int(value))
        else:
            self.acked[partition].append((int(value), offset))

    def count(self, partition: int | None = None) -> int:
        if partition is None:
            return sum(map(self.count, self.acked))
        return len(self.acked[partition]) + len(self.acked_somewhere[partition])

    def wait_for_more(self, more: int, partition: int | None = None, timeout_s: float = WAIT_S) -> None:
        """Until so many more have been acknowledged, in that partition or in all of them together."""
        wanted = self.count(partition) + more

        def has_more() -> bool:
            self.check_alive()
            return self.count(partition) >= wanted

        until(has_more, lambda: f"{wanted} of {self.count(partition)}; given up: {self.failed[:3]}", timeout_s)

    def forget_gaps(self) -> None:
        """The longest time without an acknowledgement counts from now on."""
        now = time.monotonic()
        self._last_ack = dict.fromkeys(self._last_ack, now)
        self._longest = dict.fromkeys(self._longest, 0.0)

    def longest_gap_s(self, partition: int | None = None) -> float:
        """The longest time without an acknowledgement in a partition, or in any."""
        now = time.monotonic()
        gaps = {one: max(self._longest[one], now - self._last_ack[one]) for one in self._longest}
        return gaps[partition] if partition is not None else max(gaps.values())

    def stop(self) -> None:
        """Send no more, and wait until every message is acknowledged or given up."""
        self._stop.set()
        self._thread.join()
        self.check_alive()
        left = self._producer.flush(WAIT_S)
        assert left == 0, f"{left} messages were neither acknowledged nor given up"

    def abandon(self) -> None:
        """Send no more, and wait for nothing."""
        self._stop.set()
        self._thread.join()
        self._producer.purge()


@contextmanager
def load(bootstrap: str, topic: str, partitions: int = 1, **settings: Any) -> Iterator[Load]:
    """A load that runs; stopped at the end, whatever happens."""
    running = Load(bootstrap, topic, partitions, **settings)
    try:
        running.wait_for_more(10 * partitions)
        running.forget_gaps()
        yield running
    except BaseException:
        running.abandon()
        raise
    running.stop()


def produce(bootstrap: str, topic: str, values: list[bytes], partition: int = 0, **settings: object) -> list[int]:
    """The offsets of these messages; AssertionError when one was given up."""
    offsets, errors = try_produce(bootstrap, topic, values, partition, **settings)
    assert not errors, errors[:3]
    return offsets


def try_produce(
    bootstrap: str, topic: str, values: list[bytes], partition: int = 0, **settings: object
) -> tuple[list[int], list[KafkaError]]:
    """The offsets of those that were acknowledged, and the errors of those that were given up."""
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            errors.append(error)
        elif offset is not None:
            offsets.append(offset)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.num.messages": 100,
            "message.timeout.ms": 30_000,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **settings,
        }
    )
    for value in values:
        producer.produce(topic, value, partition=partition, callback=told)
    assert producer.flush(WAIT_S) == 0
    return offsets, errors


def read(
    bootstrap: str, topic: str, partitions: int | None = 1, timeout_s: float = WAIT_S, **settings: object
) -> dict[int, list[tuple[int, bytes]]]:
    """partition -> (offset, value) of every committed message, from the start to the end that there is now.

    ``partitions``: the first so many; None: all.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **settings,
        }
    )
    deadline = time.monotonic() + timeout_s
    try:
        if partitions is None:
            partitions = len(consumer.list_topics(topic, timeout_s).topics[topic].partitions)
        found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(partitions)}
        wanted = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)]
        ends = {}
        for one in wanted:
            low, high = _ends(consumer, one, deadline)
            if high > low:
                ends[one.partition] = high
        consumer.assign([one for one in wanted if one.partition in ends])
        while any(not found[partition] or found[partition][-1][0] + 1 < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, (
                f"{topic}: ends {ends}, read up to "
                f"{ {partition: found[partition][-1][0] if found[partition] else None for partition in ends} }"
            )
            message = consumer.poll(0.2)
            if message is None:
                continue
            assert message.error() is None, message.error()
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and value is not None
            found[partition].append((offset, value))
    finally:
        consumer.close()
    return found


def _ends(consumer: Consumer, wanted: TopicPartition, deadline: float) -> tuple[int, int]:
    """Asked again when a leader that was just elected cannot tell yet (rule R8), or the one that was asked is dead.

    librdkafka keeps asking the leader that it has heard of first: only new Metadata make it ask another.
    """
    while True:
        try:
            ends = consumer.get_watermark_offsets(wanted, timeout=2.0, cached=False)
            assert ends is not None, f"{wanted.topic}-{wanted.partition}: no answer"
            return ends
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            consumer.list_topics(wanted.topic, timeout=5.0)


def judge(done: Load, bootstrap: str, **settings: object) -> None:
    """AssertionError for a message that was given up, or was acknowledged and is not there alone where it was said.

    A message that was sent and never acknowledged may be there or not.
    """
    assert done.failed == []
    found = read(bootstrap, done.topic, done.partitions, **settings)
    for partition, told in done.acked.items():
        there = found[partition]
        values = [value for _, value in there]
        assert values == sorted(set(values)), f"{done.topic}-{partition}: doubled, or not in the order they were sent"
        offsets = [offset for offset, _ in there]
        assert offsets == sorted(set(offsets)), f"{done.topic}-{partition}: offsets do not increase"
        at = dict(there)
        lost: list[tuple[int, int | None]] = [
            (number, offset) for number, offset in told if at.get(offset) != done.value(number)
        ]
        lost += [(number, None) for number in done.acked_somewhere[partition] if done.value(number) not in at.values()]
        assert not lost, f"{done.topic}-{partition}: {len(lost)} of {len(told)} acknowledged are gone: {lost[:5]}"
