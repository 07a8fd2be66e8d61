"""`klog replay` and `klog mirror --once`: a process each, from its start to its end, over messages of 200 bytes.

What has arrived is counted: a copy that is not whole has no rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bench.commands import CommandFailed, klog_rows, klog_seconds
from bench.groups import TOPIC_TIMEOUT_S, topic_of
from bench.klog_system import Klog
from bench.produce import fill
from bench.workloads import FILL_MESSAGES

PARTITIONS = 4
VALUE_BYTES = 200

_numbers = count(1)


def bootstrap_of(system: Klog) -> str:
    return f"127.0.0.1:{system.port}"


@contextmanager
def filled(system: Klog, messages: int) -> Iterator[tuple[str, int]]:
    """A topic over PARTITIONS partitions, and how many messages it has."""
    with topic_of(bootstrap_of(system), PARTITIONS) as topic:
        share = messages * VALUE_BYTES // PARTITIONS
        each = [fill(system.port, topic, FILL_MESSAGES, VALUE_BYTES, share, one) for one in range(PARTITIONS)]
        yield topic, sum(each)


def replay(system: Klog, topic: str, messages: int) -> dict[str, float]:
    """Into a topic that the command makes, of the same cluster."""
    into = f"{topic}-replayed-{next(_numbers)}"
    try:
        seconds = klog_seconds(system.folder, "replay", topic, into, "-B", bootstrap_of(system))
        return _rate(system, into, messages, seconds)
    finally:
        _delete(system, into)


def mirror(source: Klog, target: Klog, topic: str, messages: int) -> dict[str, float]:
    """Into another cluster, as it is with nothing mirrored yet."""
    addresses = ("--source", bootstrap_of(source), "--target", bootstrap_of(target))
    try:
        group = f"mirror-{next(_numbers)}"
        seconds = klog_seconds(source.folder, "mirror", *addresses, "--topic", topic, "--group", group, "--once")
        return _rate(target, topic, messages, seconds)
    finally:
        _delete(target, topic)


def _rate(system: Klog, topic: str, messages: int, seconds: float) -> dict[str, float]:
    """What has arrived is asked for: offsets are no counters here."""
    rows = klog_rows(system.folder, "topic", "describe", topic, "-B", bootstrap_of(system))
    arrived = sum(row["messages"] for row in rows)
    if arrived != messages:
        raise CommandFailed(f"{topic}: {arrived} of {messages} messages have arrived")
    return {"messages_per_s": messages / seconds}


def _delete(system: Klog, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_of(system), "log_level": 0})
    with suppress(KafkaException):
        admin.delete_topics([topic], operation_timeout=TOPIC_TIMEOUT_S)[topic].result(TOPIC_TIMEOUT_S)
