"""Kafka Streams on a klog broker: what it counts is right, and its state comes back from the changelog topics."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.maven import JavaTools
from tests.broker_fixture import RunningBroker
from tests.interop.kit import PATIENCE_S, cleanup_policy
from tests.tools.verbs import make_topic

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long(
        "a JVM that compiles, three times; witness that stays in the default tier: tests/server/test_cleanup_policy.py"
    ),
]

PROGRAM = Path(__file__).parent / "Streams.java"
PARTITIONS = 2
HOUR_MS = 3_600_000
STARTS_WITHIN_S = 2 * PATIENCE_S
MESSAGES = 300
"""Of each of the two halves."""


@pytest.fixture
def tools(framework_tools: JavaTools) -> JavaTools:
    if shutil.which("javac") is None:
        pytest.skip("Kafka Streams: there is no javac, so no program of ours can use its jars")
    return framework_tools


@contextmanager
def program(
    tools: JavaTools, broker: RunningBroker, topic: str, state: Path, *settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """It runs; afterwards it has closed, with all committed. Killed where it does not."""
    process = subprocess.Popen(
        tools.command(str(PROGRAM), broker.bootstrap, topic, str(state), *settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def next_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], STARTS_WITHIN_S)
    assert readable, f"the program said nothing for {STARTS_WITHIN_S:g} s"
    return process.stdout.readline().decode().rstrip()


class Sent:
    """What has been sent, and what Streams should make of it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._first_hour_ms = (time.time_ns() // 1_000_000 // HOUR_MS - 3) * HOUR_MS
        self.table: Counter[str] = Counter()
        self.windows: Counter[str] = Counter()

    def send_half(self) -> None:
        """Messages of two hours, by seven keys, with three values."""
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for number in range(MESSAGES):
            key, value = f"key {number % 7}", f"value {number % 3}"
            window_ms = self._first_hour_ms + (number * 2 // MESSAGES) * HOUR_MS
            producer.produce(self._topic, value, key, timestamp=window_ms + number)
            self.table[key] += 1
            self.windows[f"{value}@{window_ms}"] += 1
        assert producer.flush(PATIENCE_S) == 0


def wait_for_counts(bootstrap: str, topic: str, wanted: Counter[str], *, missing: int = 0) -> None:
    """Read the topic until the last count of each key is the wanted one, but for so many ``missing`` in all."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: Counter[str] = Counter()
    deadline = time.monotonic() + STARTS_WITHIN_S
    try:
        while not found <= wanted or (wanted - found).total() > missing:
            assert time.monotonic() < deadline, f"{topic}: found {found}, wanted {wanted}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            key, value = message.key(), message.value()
            assert message.error() is None and key is not None and value is not None, message.error()
            found[key.decode()] = int(value)
    finally:
        consumer.close()


def test_counts_are_right_and_go_on_in_an_empty_folder(
    broker: RunningBroker, topic: str, tools: JavaTools, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-table", f"{topic}-windows"):
        make_topic(broker.bootstrap, name, PARTITIONS)
    sent = Sent(broker.bootstrap, topic)
    for folder in ("first", "second"):
        # What was sent before is committed as read: the second run can have those counts from a changelog alone.
        sent.send_half()
        with program(tools, broker, topic, tmp_path / folder):
            wait_for_counts(broker.bootstrap, f"{topic}-table", sent.table)
            wait_for_counts(broker.bootstrap, f"{topic}-windows", sent.windows)
        assert any(os.scandir(tmp_path / folder)), "its state was there"

    made = {"table-changelog": "compact", "windows-changelog": "compact,delete", "windows-repartition": "delete"}
    for name, policy in made.items():
        assert cleanup_policy(broker.bootstrap, f"{topic}-{name}") == policy


def test_exactly_once_is_refused_at_once(broker: RunningBroker, topic: str, tools: JavaTools, tmp_path: Path) -> None:
    for name in (topic, f"{topic}-table", f"{topic}-windows"):
        make_topic(broker.bootstrap, name, PARTITIONS)
    with program(tools, broker, topic, tmp_path, "processing.guarantee=exactly_once_v2") as process:
        said = next_line(process)
        while said == "running":
            said = next_line(process)
    assert "TransactionalIdAuthorizationException" in said
