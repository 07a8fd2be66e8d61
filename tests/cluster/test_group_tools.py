"""Kafka's console consumer and ``kcat -G`` in one group on three brokers, while coordinators, leaders and kcat die.

Both print each message with its place, and commit by themselves what they have printed. Method: a producer that numbers
its messages; whatever was acknowledged to it must be printed by somebody at the place that it was told.
"""

from __future__ import annotations

import re
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from klog.coordination import committed
from klog.coordination.zookeeper import ZooKeeper
from tests.cluster.load import Load, load
from tests.cluster.test_groups import coordinator
from tests.cluster_fixture import RunningCluster
from tests.interop.java import tools_of
from tests.interop.kcat import Kcat
from tests.interop.kit import Missing

PARTITIONS = 4
QUICK = {
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": "200",
    "session.timeout.ms": "2000",
    "heartbeat.interval.ms": "200",
    "fetch.max.wait.ms": "100",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "200",
    "retry.backoff.ms": "50",
}
LINE = re.compile(rb"(?:Partition:)?(\d+)\s+(?:Offset:)?(\d+)\s+(\d+)")


class Reader:
    """A consumer's process; `printed`: (partition, offset, number of the message), in order."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.printed: list[tuple[int, int, int]] = []
        self.said: list[bytes] = []
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._read, self._listen)]
        for one in self._threads:
            one.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = LINE.fullmatch(line.strip())
            if found is not None:
                partition, offset, number = found.groups()
                self.printed.append((int(partition), int(offset), int(number)))

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def partitions(self, newer_than: int) -> set[int]:
        """Those of which it has printed a message that was sent after that one."""
        return {partition for partition, _, number in list(self.printed) if number > newer_than}

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(20)
        for one in self._threads:
            one.join()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def reader(command: list[str]) -> Iterator[Reader]:
    one = Reader(command)
    try:
        yield one
    finally:
        one.end()


def kcat(bootstrap: str, group: str, topic: str) -> list[str]:
    try:
        Kcat()
    except Missing as reason:
        pytest.skip(str(reason))
    settings = {**QUICK, "fetch.wait.max.ms": QUICK["fetch.max.wait.ms"]}
    del settings["fetch.max.wait.ms"]  # Java's name for it
    words = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    return ["kcat", "-b", bootstrap, *words, "-q", "-u", "-f", "%p %o %s\\n", "-G", group, topic]


def console_consumer(bootstrap: str, group: str, topic: str) -> list[str]:
    try:
        tools = tools_of("kafka-3.9")
    except Missing as reason:
        pytest.skip(str(reason))
    words = [word for name, value in QUICK.items() for word in ("--consumer-property", f"{name}={value}")]
    shown = ["--property", "print.partition=true", "--property", "print.offset=true"]
    where = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group]
    return tools.command(tools.console_consumer, *where, *words, *shown)


def wait_for_newer(cluster: RunningCluster, done: Load, *readers: Reader) -> None:
    """Until these have printed something of every partition that was sent after now, each of its own."""
    now = done.sent

    def have() -> bool:
        shares = [one.partitions(now) for one in readers]
        return all(shares) and set().union(*shares) == set(range(PARTITIONS))

    cluster.wait_until(have, f"all partitions are read on by {len(readers)} members")


def offsets(cluster: RunningCluster, group: str) -> dict[int, int]:
    with ZooKeeper(cluster.zookeeper) as session:
        session.start()
        return {name.partition: one.offset for name, one in committed.read(session, group).items()}


@pytest.mark.long("Java's console consumer while brokers die")
@pytest.mark.slow
def test_kcat_and_the_console_consumer_share_a_group_while_brokers_and_kcat_die(
    three: RunningCluster, topic: str
) -> None:
    group = f"tools-{secrets.token_hex(4)}"
    three.create(topic, PARTITIONS)
    with (
        load(three.bootstrap, topic, PARTITIONS) as running,
        reader(console_consumer(three.bootstrap, group, topic)) as java,
        reader(kcat(three.bootstrap, group, topic)) as cat,
    ):
        wait_for_newer(three, running, java, cat)
        first = offsets(three, group)

        # The coordinator dies, and with it the leader of some partitions.
        victim = coordinator(three, group)
        three.kill(victim)
        wait_for_newer(three, running, java, cat)
        three.start(victim)
        three.wait_in_sync(topic)
        second = offsets(three, group)
        assert all(second.get(one, -1) >= offset for one, offset in first.items())
        assert sum(second.values()) > sum(first.values()), "commits go on"

        # The leader of a partition dies, whoever coordinates, and kcat with it.
        victim = three.leader_of(topic, 0)
        three.kill(victim)
        cat.end()
        wait_for_newer(three, running, java)
        three.start(victim)
        running.stop()
        acknowledged = {
            (partition, offset, number) for partition, told in running.acked.items() for number, offset in told
        }
        three.wait_until(lambda: acknowledged <= {*java.printed, *cat.printed}, "everything has been printed")
        java.end(signal.SIGTERM)
    assert {*java.printed, *cat.printed} == acknowledged, "nothing but that"
    assert offsets(three, group) == {partition: told[-1][1] + 1 for partition, told in running.acked.items()}
