"""What the pipeline's part of the bench reads: messages that differ as real ones do, and a producer that keeps a pace.

Values are 200 bytes of JSON with a random half, keys 8 bytes: a format that compresses, or finds what comes again, has
as much to do as with real ones.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

VALUE_BYTES = 200
KINDS = 20_000
"""Messages that differ; then they come again, so far apart that nothing finds it."""
CALL_MESSAGES = 1000
TICK_S = 0.01
FLUSH_S = 120.0


class LoadFailed(Exception):
    """Messages were refused, or not acknowledged in time: there is nothing to measure."""


def some_messages(count: int, partition: int, seed: int = 7) -> list[dict[str, Any]]:
    """Arguments of a call of librdkafka's."""
    draw = random.Random(seed)
    return [{"key": b"%08d" % number, "value": _value(number, draw), "partition": partition} for number in range(count)]


def _value(number: int, draw: random.Random) -> bytes:
    text = json.dumps({"user": draw.randrange(10**6), "page": f"/item/{number % 1000}", "ms": number % 5000, "id": ""})
    return (text[:-2] + draw.randbytes((VALUE_BYTES - len(text)) // 2 + 1).hex())[: VALUE_BYTES - 2].encode() + b'"}'


def fill(bootstrap: str, topic: str, messages: int, partitions: int, values: Sequence[bytes] = ()) -> int:
    """So many messages, evenly over the partitions, all acknowledged; how many they are.

    ``values``: these again and again, else such as `some_messages` makes.
    """
    producer = _producer(bootstrap, linger_ms=20)
    for partition in range(partitions):
        kinds = some_messages(min(KINDS, messages // partitions), partition, seed=partition)
        if values:
            kinds = [{"key": b"%08d" % at, "value": one, "partition": partition} for at, one in enumerate(values)]
        calls = [kinds[at : at + CALL_MESSAGES] for at in range(0, len(kinds), CALL_MESSAGES)]
        sent = turn = 0
        while sent < messages // partitions:
            sent += _send(producer, topic, calls[turn % len(calls)][: messages // partitions - sent])
            turn += 1
    _flush(producer, topic)
    return messages // partitions * partitions


def _producer(bootstrap: str, linger_ms: float) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 500_000,
            "log_level": 4,
        }
    )


def _send(producer: Producer, topic: str, messages: Sequence[dict[str, Any]]) -> int:
    """How many found room; they all do in the end."""
    todo = list(messages)
    while todo:
        producer.produce_batch(topic, todo)
        todo = [{name: one[name] for name in ("key", "value", "partition")} for one in todo if "_error" in one]
        producer.poll(0.01 if todo else 0)
    return len(messages)


def _flush(producer: Producer, topic: str) -> None:
    if left := producer.flush(FLUSH_S):
        raise LoadFailed(f"{topic}: {left} messages were not acknowledged within {FLUSH_S:g} s")


class Paced(threading.Thread):
    """Produces so many messages a second for so long, a part of them every hundredth of a second."""

    def __init__(self, bootstrap: str, topic: str, messages_per_s: int, seconds: float, partitions: int) -> None:
        super().__init__(name="paced producer", daemon=True)
        self._servers = bootstrap
        self._topic = topic
        self._tick_messages = max(1, round(messages_per_s * TICK_S))
        self._ticks = round(seconds / TICK_S)
        self._partitions = partitions
        self.sent = 0
        self.began_ms = 0
        self.late_s = 0.0
        """How far this thread itself fell behind its pace, at most."""
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.failure = error

    def _run(self) -> None:
        producer = _producer(self._servers, linger_ms=5)
        calls = [some_messages(self._tick_messages, partition) for partition in range(self._partitions)]
        began = time.monotonic()
        self.began_ms = time.time_ns() // 1_000_000
        for tick in range(self._ticks):
            due = began + tick * TICK_S
            if (ahead := due - time.monotonic()) > 0:
                time.sleep(ahead)
            self.late_s = max(self.late_s, -ahead)
            self.sent += _send(producer, self._topic, calls[tick % self._partitions])
        _flush(producer, self._topic)
