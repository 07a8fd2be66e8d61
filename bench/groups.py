"""What a member of a group waits for: its first record, the other members when one comes, and when one has died.

The members are `group_member`s. All brokers are asked by the same client with the same settings.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.children import Child, wait_until

PARTITIONS = 6
SESSION_S = 6.0
QUICK_HEARTBEAT_MS = 200
DEFAULT_HEARTBEAT_MS = 3000
"""librdkafka's and Java's default. A member learns of a rebalance by a heartbeat, so this is what others wait for."""
TOPIC_TIMEOUT_S = 60.0

_numbers = count(1)


@contextlib.contextmanager
def topic_of(bootstrap: str, partitions: int, replicas: int = 1) -> Iterator[str]:
    """A fresh topic, deleted afterwards."""
    name = f"bench-consumers-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = NewTopic(name, partitions, replicas)
    admin.create_topics([made], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
    try:
        yield name
    finally:
        again = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        with contextlib.suppress(Exception):  # what was measured stands, whether its topic goes or not
            again.delete_topics([name], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)


class Members:
    """A group of its own over a topic with a message in each partition."""

    def __init__(self, bootstrap: str, folder: Path, heartbeat_ms: int) -> None:
        self._bootstrap = bootstrap
        self._log = folder / "members.log"
        self._heartbeat_ms = heartbeat_ms
        self._group = f"bench-group-{next(_numbers)}"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Members:
        self.topic = self._stack.enter_context(topic_of(self._bootstrap, PARTITIONS))
        producer = Producer({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for partition in range(PARTITIONS):
            producer.produce(self.topic, b"v" * 200, partition=partition)
        producer.flush(TOPIC_TIMEOUT_S)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def member(self) -> Child:
        """Ready to subscribe."""
        module = "bench.group_member"
        arguments = (self._bootstrap, self._group, self.topic, self._heartbeat_ms, int(SESSION_S * 1000))
        child = self._stack.enter_context(Child(module, *arguments, log=self._log))
        child.wait_for("ready")
        return child

    def enter(self, newcomer: Child, *others: Child) -> float:
        """Seconds until it and the others own equally many."""
        newcomer.say("go")
        everyone = (newcomer, *others)
        return self.settled(everyone) - newcomer.wait_for("subscribed").at

    def settled(self, members: tuple[Child, ...], timeout_s: float = 60.0) -> float:
        """When the last of them came to own its share."""
        share = ("owns", str(PARTITIONS // len(members)))

        def all_own() -> bool:
            found = [one.last("owns") for one in members]
            return all(one is not None and one.words == share for one in found)

        wait_until(all_own, f"each of {len(members)} owns {share[1]}", members, timeout_s)
        return max(event.at for one in members if (event := one.last("owns")) is not None)


def comes_and_joins(bootstrap: str, folder: Path, heartbeat_ms: int) -> tuple[float, float]:
    """Seconds from a first member's `subscribe` to its first record; from a second one's until both have settled."""
    with Members(bootstrap, folder, heartbeat_ms) as group:
        first, second = group.member(), group.member()
        first.say("go")
        record = first.wait_for("record")
        first_s = record.at - first.wait_for("subscribed").at
        return first_s, group.enter(second, first)


def dies(bootstrap: str, folder: Path) -> float:
    """Seconds beyond the session's time-out until the other member has everything; below 0 by up to a heartbeat."""
    with Members(bootstrap, folder, QUICK_HEARTBEAT_MS) as group:
        first, second = group.member(), group.member()
        group.enter(first)
        group.enter(second, first)
        time.sleep(2 * QUICK_HEARTBEAT_MS / 1000)  # the session counts from a heartbeat, no more from the join
        killed = second.kill()
        return group.settled((first,)) - killed - SESSION_S
