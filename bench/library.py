"""klog's own library, `klog.Producer` and `klog.Consumer` with their default settings, in this process.

Messages are of 200 bytes, to one partition. What is sent counts when it is acknowledged.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import Literal

import klog
from bench.produce import Load, ProduceFailed

VALUE = b"v" * 200
LOOK_EVERY = 100
"""Sends between two looks at the clock."""


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
