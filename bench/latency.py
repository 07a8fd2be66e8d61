"""One message at a time through librdkafka: how long until its acknowledgement, and until a consumer has it."""

from __future__ import annotations

import time
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

WARM_UP_MESSAGES = 200
WAIT_S = 30.0


class Latency(NamedTuple):
    """Milliseconds: the median, and what 99 of 100 stay below."""

    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, seconds: list[float]) -> Latency:
        ordered = sorted(seconds)
        return cls(1000 * ordered[len(ordered) // 2], 1000 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)])


class LatencyFailed(Exception):
    """A message was not acknowledged, or did not arrive."""


def _producer(port: int) -> Producer:
    return Producer({"bootstrap.servers": f"127.0.0.1:{port}", "acks": "all", "linger.ms": 0})


def produce_to_ack(port: int, topic: str, messages: int, value_bytes: int = 200) -> Latency:
    """acks=all, nothing else under way: each message is sent when the one before it is acknowledged."""
    producer = _producer(port)
    value = b"v" * value_bytes
    acknowledged: list[object] = []
    taken: list[float] = []
    for number in range(WARM_UP_MESSAGES + messages):
        acknowledged.clear()
        start = time.perf_counter()
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: acknowledged.append(error))
        while not acknowledged:
            if not producer.poll(WAIT_S):
                raise LatencyFailed(f"{topic}: a message was not acknowledged within {WAIT_S} s")
        if acknowledged[0] is not None:
            raise LatencyFailed(f"{topic}: {acknowledged[0]}")
        if number >= WARM_UP_MESSAGES:
            taken.append(time.perf_counter() - start)
    return Latency.of(taken)


def produce_to_consumer(port: int, topic: str, messages: int, value_bytes: int = 200) -> Latency:
    """acks=all; each message is sent when the one before it has come out of a consumer that waits at the end.

    The topic is empty before, or the consumer would first see what is old.
    """
    producer = _producer(port)
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    value = b"v" * value_bytes
    taken: list[float] = []
    for number in range(WARM_UP_MESSAGES + messages):
        start = time.perf_counter()
        producer.produce(topic, value, partition=0)
        message = consumer.poll(WAIT_S)
        if message is None or message.error() is not None:
            raise LatencyFailed(f"{topic}: {'nothing came' if message is None else message.error()}")
        if number >= WARM_UP_MESSAGES:
            taken.append(time.perf_counter() - start)
        producer.poll(0)
    consumer.close()
    producer.flush(WAIT_S)
    return Latency.of(taken)
