"""A consumer that fetches and throws away: it reads a batch header or two of each answer to count its messages and find
the next offset; the kernel drops the rest. So the broker is the limit, not the client.
"""

from __future__ import annotations

import threading
import time

from bench import wire
from bench.doors import Door
from bench.produce import Load

FETCH_BYTES = 1 << 20
"""max.partition.fetch.bytes, the stock clients' default."""


class ConsumeFailed(Exception):
    """A consumer did not get every message once."""


def consume(
    port: int | Door, topic: str, messages: int, fetch_bytes: int = FETCH_BYTES, timeout_s: float = 120.0
) -> int:
    """Reads `messages` messages of partition 0 from its start, one fetch at a time; the bytes of its answers."""
    received = seen = offset = 0
    deadline = time.monotonic() + timeout_s
    with wire.Connection(port) as connection:
        while seen < messages:
            connection.send(connection.fetch_frame(topic, 0, offset, fetch_bytes))
            got = connection.skim_fetch_answer(topic)
            received += got.answer_bytes
            if got.next_offset is not None:
                offset = got.next_offset
                seen += got.messages
            elif time.monotonic() > deadline:
                raise ConsumeFailed(f"{topic}: {seen} of {messages} messages after {timeout_s} s")
    if seen != messages:
        raise ConsumeFailed(f"{topic}: {seen} messages, not {messages}")
    return received


def consume_together(port: int | Door, topic: str, messages: int, consumers: int, passes: int) -> Load:
    """The same messages by several consumers at once, a thread each, from the start again with each pass."""
    received: list[int] = []
    failures: list[Exception] = []

    def one() -> None:
        try:
            for _ in range(passes):
                received.append(consume(port, topic, messages))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(consumers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - start
    if failures:
        raise failures[0]
    return Load(messages * consumers * passes, sum(received), elapsed)
