"""A steady load on a cluster while something happens to it: how long was the longest wait for an acknowledgement?

librdkafka's idempotent producer with acks=all, a few thousand messages a second over some partitions, in a thread of
its own. Its patience is set short: what is measured is the cluster, not how long a client sleeps between two tries.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

QUICK = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 2,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 500,
    "delivery.timeout.ms": 120_000,
    "log_level": 0,
}
PAUSE_S = 0.001
SETTLE_S = 0.5
"""What was under way when something happened is acknowledged within this time, or shows as a wait."""


def await_ack(bootstrap: str, topic: str, timeout_s: float) -> None:
    """Until a message to the topic's partition 0 is acknowledged by all; TimeoutError."""
    timeout_ms = int(timeout_s * 1000)
    # A topic that is not made while brokers are missing may be unknown for long.
    patience = {"delivery.timeout.ms": timeout_ms, "topic.metadata.propagation.max.ms": timeout_ms}
    producer = Producer({"bootstrap.servers": bootstrap, **QUICK, **patience})
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"first", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(timeout_s)
    if not errors or errors[0] is not None:  # a KafkaError is not to be compared with None: its C code cannot
        raise TimeoutError(f"{topic}: nothing acknowledged within {timeout_s:.0f} s: {errors or 'no answer'}")


@dataclass
class Outcome:
    """Seconds between two acknowledgements of one partition, at most; what was acknowledged, and what was refused."""

    acknowledged: int = 0
    failed: list[str] = field(default_factory=list)
    longest_wait_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def worst_s(self) -> float:
        return max(self.longest_wait_s.values(), default=0.0)


class SteadyLoad:
    """A context manager: the load ends with it. `mark` begins the measurement, once the load runs evenly; `finish`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, pause_s: float = 0.0) -> None:
        """`pause_s`: after a message to each partition, besides waiting for an acknowledgement or a millisecond."""
        self._producer = Producer({"bootstrap.servers": bootstrap, **QUICK})
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._last_s: dict[int, float] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady load", daemon=True)
        self.outcome = Outcome()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def _end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _start(self) -> None:
        """Returns when every partition has acknowledged something."""
        self._thread.start()
        deadline = time.monotonic() + 60
        while len(self._last_s) < self._partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._topic}: {len(self._last_s)} of {self._partitions} partitions acknowledge")
            time.sleep(0.01)

    def mark(self) -> None:
        self.outcome.longest_wait_s.clear()

    def await_all_again(self, timeout_s: float) -> None:
        """Until every partition has acknowledged something that it was sent after now."""
        since_s = time.monotonic()
        deadline = since_s + timeout_s
        while any(self._last_s[one] <= since_s + SETTLE_S for one in range(self._partitions)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._topic}: not every partition acknowledges after {timeout_s:.0f} s")
            time.sleep(0.01)

    def finish(self, timeout_s: float = 60.0) -> Outcome:
        """Stop sending, wait for what is under way."""
        self._end()
        left = self._producer.flush(timeout_s)
        if left:
            self.outcome.failed.append(f"{left} messages were not acknowledged within {timeout_s:.0f} s")
        return self.outcome

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            for partition in range(self._partitions):
                try:
                    self._producer.produce(
                        self._topic, b"%020d" % number, partition=partition, on_delivery=self._delivered
                    )
                    number += 1
                except BufferError:
                    self._producer.poll(0.01)
            self._producer.poll(PAUSE_S)
            self._ending.wait(self._pause_s)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        now = time.monotonic()
        partition = message.partition()
        if error is not None:
            self.outcome.failed.append(str(error))
            return
        assert partition is not None
        self.outcome.acknowledged += 1
        last_s = self._last_s.get(partition)
        if last_s is not None:
            waits = self.outcome.longest_wait_s
            waits[partition] = max(waits[partition], now - last_s)
        self._last_s[partition] = now
