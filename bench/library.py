"""klog's own library, `klog.Producer` and `klog.Consumer` with their default settings, in this process.

Messages are of 200 bytes, to one partition. What is sent counts when it is acknowledged. Beside them, what the library
is built on can do by itself with the same settings, as their ceiling: confluent-kafka, with a callback a message.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import Literal

from confluent_kafka import Consumer, Producer, TopicPartition

import klog
from bench.consume import ConsumeFailed
from bench.produce import Load, ProduceFailed
from klog.client.consumer_settings import read_settings as consumer_settings
from klog.client.producer_settings import read_settings as producer_settings

VALUE = b"v" * 200
LOOK_EVERY = 100
"""Sends between two looks at the clock."""
ANSWER_S = 30.0


def send(
    port: int, topic: str, seconds: float, how: Literal["sync", "async"], *, set_of: int = 1, threads: int = 1
) -> Load:
    """Sends for so long, each message or set by a `send` of its own, and waits for what is under way."""
    counts: list[int] = []
    failures: list[BaseException] = []
    messages = VALUE if set_of == 1 else [VALUE] * set_of
    with klog.Producer(bootstrap_servers=f"127.0.0.1:{port}", producer_type=how) as producer:
        producer.send(topic, VALUE)
        producer.flush()

        def run() -> None:
            sent = 0
            last = None
            try:
                while time.perf_counter() < deadline:
                    for _ in range(LOOK_EVERY if how == "async" else 1):
                        last = producer.send(topic, messages)
                        sent += set_of
                producer.flush()
                if last is not None:
                    last.result()
            except BaseException as error:
                failures.append(error)
            counts.append(sent)

        senders = [threading.Thread(target=run) for _ in range(threads)]
        start = time.perf_counter()
        deadline = start + seconds
        for one in senders:
            one.start()
        for one in senders:
            one.join()
        elapsed = time.perf_counter() - start
    if failures:
        raise ProduceFailed(f"{topic}: {failures[0]!r}")
    return Load(sum(counts), sum(counts) * len(VALUE), elapsed)


def send_alone(port: int, topic: str, seconds: float) -> Load:
    """confluent-kafka's producer with the settings of an asynchronous `klog.Producer`, and a thread that polls it."""
    given = {"bootstrap_servers": f"127.0.0.1:{port}"}
    producer = Producer(producer_settings(given, is_async=True, audit=False, partitioner=None).librdkafka)
    failures: list[object] = []
    has_ended = threading.Event()
    sent = 0

    def told(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    def poll() -> None:
        while not has_ended.is_set():
            producer.poll(0.1)

    producer.produce(topic, VALUE)
    producer.flush()
    polling = threading.Thread(target=poll)
    polling.start()
    start = time.perf_counter()
    deadline = start + seconds
    while time.perf_counter() < deadline:
        for _ in range(LOOK_EVERY):
            while True:
                try:
                    producer.produce(topic, VALUE, on_delivery=told)
                    break
                except BufferError:
                    time.sleep(0.001)
        sent += LOOK_EVERY
    producer.flush()
    elapsed = time.perf_counter() - start
    has_ended.set()
    polling.join()
    if failures:
        raise ProduceFailed(f"{topic}: {failures[0]}")
    return Load(sent, sent * len(VALUE), elapsed)


def stream(zookeeper: str, topic: str, messages: int) -> Load:
    """One stream of a new group reads so many messages from the start; counted from its first message on."""
    with klog.Consumer(zookeeper, f"bench-{uuid.uuid4().hex}", auto_offset_reset="smallest") as consumer:
        (found,) = consumer.create_message_streams(topic)
        size = len(next(found).payload())
        start = time.perf_counter()
        left = messages - 1
        for message in found:
            size += len(message.payload())
            left -= 1
            if not left:
                break
        return Load(messages - 1, size, time.perf_counter() - start)


def stream_alone(port: int, topic: str, messages: int) -> Load:
    """confluent-kafka's consumer with the settings of a stream takes the values of so many messages, by a thousand."""
    settings = consumer_settings("alone", {"auto_offset_reset": "smallest"}).librdkafka
    consumer = Consumer({**settings, "bootstrap.servers": f"127.0.0.1:{port}"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    size, left = 0, messages - 1
    consumer.consume(1, ANSWER_S)
    start = time.perf_counter()
    while left > 0:
        found = consumer.consume(min(left, 1000), ANSWER_S)
        if not found:
            raise ConsumeFailed(f"{topic}: {left} messages did not come within {ANSWER_S:g} s")
        size += sum(len(one.value()) for one in found)
        left -= len(found)
    elapsed = time.perf_counter() - start
    consumer.close()
    return Load(messages - 1, size, elapsed)
