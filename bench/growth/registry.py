"""Curves of what ZooKeeper, or Kafka's own log of the cluster, has to carry: groups that commit, and topics."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Iterable, Sequence
from functools import partial

from confluent_kafka.admin import NewTopic

from bench import wire
from bench.commands import klog_seconds
from bench.growth.growing import (
    IDLE_S,
    SECONDS,
    Figures,
    Points,
    admin_at,
    make_topic,
    make_topics,
    new_name,
    on_one_broker,
    timed,
)
from bench.klog_system import Klog
from bench.one_log import Log, bootstrap_of
from bench.processes import cpu_seconds, resident_bytes
from bench.raw_member import coordinator_of

OFFSET_COMMIT, VERSION = 8, 7
"""The newest version without varints; KIP-896 left it in Kafka 4."""
CONNECTIONS = 16
IN_FLIGHT = 8
"""Commits of one connection that are sent before the first is answered."""
TOPICS_TOGETHER = 100
COORDINATOR_PATIENCE_S = 60.0
_NOT_YET = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""


@on_one_broker
def groups(system: Log, values: Sequence[int]) -> Points:
    """Groups without members, each with an offset of one partition: each commits a first time, then all in turn."""
    bootstrap = bootstrap_of(system)
    topic = make_topic(bootstrap)
    asyncio.run(coordinator_of(bootstrap, "groups-0"))
    with contextlib.ExitStack() as stack:
        load = _Commits(
            [stack.enter_context(wire.Connection(system.port)) for _ in range(CONNECTIONS)], topic, offset=1
        )
        there = 0
        for wanted in values:
            first_s = timed(partial(load.commit, range(there, wanted)))
            made_per_s = (wanted - there) / first_s
            there = wanted
            cpu, sent, began = cpu_seconds(system.broker_pids()), 0, time.perf_counter()
            while time.perf_counter() - began < SECONDS:
                sent += load.commit(one % wanted for one in range(sent, sent + CONNECTIONS * IN_FLIGHT))
            took_s = time.perf_counter() - began
            figures: Figures = {
                "commits_per_s": sent / took_s,
                "first_per_s": made_per_s,
                "cpu_us": 1e6 * (cpu_seconds(system.broker_pids()) - cpu) / sent,
                "megabytes": resident_bytes(system.broker_pids()) / 1e6,
            }
            if pids := system.helper_pids():
                figures["helper_megabytes"] = resident_bytes(pids) / 1e6
            if isinstance(system, Klog):
                figures["list_s"] = klog_seconds(system.folder, "group", "list", "-B", bootstrap)
            yield wanted, figures


class _Commits:
    """Sends OffsetCommit of group after group over some connections, and looks at each answer."""

    def __init__(self, connections: Sequence[wire.Connection], topic: str, offset: int) -> None:
        self._connections = connections
        self._topic = topic.encode()
        self._offset = offset

    def commit(self, numbers: Iterable[int]) -> int:
        """One commit of each of these groups; how many. Refused raises, but for a coordinator that is not there yet."""
        done, waiting = 0, list(numbers)
        deadline = time.monotonic() + COORDINATOR_PATIENCE_S
        while waiting:
            window = waiting[: CONNECTIONS * IN_FLIGHT]
            again = []
            shares = [window[at::CONNECTIONS] for at in range(CONNECTIONS)]
            for connection, share in zip(self._connections, shares, strict=True):
                if share:
                    connection.send(b"".join(self._frame(connection, one) for one in share))
            for connection, share in zip(self._connections, shares, strict=True):
                for one in share:
                    code = self._answered(connection)
                    if code in _NOT_YET and time.monotonic() < deadline:
                        again.append(one)
                    elif code:
                        raise wire.Refused(f"commit of group {one}", code)
                    else:
                        done += 1
            waiting = again + waiting[len(window) :]
        return done

    def _frame(self, connection: wire.Connection, number: int) -> bytes:
        group = f"groups-{number}".encode()
        body = _string(group) + struct.pack(">i", -1) + _string(b"") + b"\xff\xff"  # no generation, no member
        body += struct.pack(">i", 1) + _string(self._topic) + struct.pack(">iiqi", 1, 0, self._offset, -1)
        return connection.frame(OFFSET_COMMIT, VERSION, body + _string(b""))

    def _answered(self, connection: wire.Connection) -> int:
        """The error of the one partition, which the answer ends with."""
        return int(struct.unpack_from(">h", connection.receive()[-2:])[0])


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


@on_one_broker
def topics(system: Log, values: Sequence[int]) -> Points:
    """Topics of one partition, made a hundred a request; then some one by one, as a person or a tool does."""
    bootstrap, there = bootstrap_of(system), 0
    for wanted in values:
        alone = min(20, max(1, (wanted - there) // 10))
        together = [NewTopic(new_name("topic"), 1, 1) for _ in range(wanted - there - alone)]
        figures: Figures = {}
        if together:
            figures["made_per_s"] = len(together) / timed(partial(make_topics, bootstrap, together, TOPICS_TOGETHER))
        one_by_one = [NewTopic(new_name("topic"), 1, 1) for _ in range(alone)]
        figures["one_ms"] = 1000 * timed(partial(make_topics, bootstrap, one_by_one, 1)) / alone
        there = wanted
        time.sleep(IDLE_S)
        figures["megabytes"] = resident_bytes(system.broker_pids()) / 1e6
        if pids := system.helper_pids():
            figures["helper_megabytes"] = resident_bytes(pids) / 1e6
        figures["metadata_s"] = timed(partial(admin_at(bootstrap).list_topics, timeout=60))
        if isinstance(system, Klog):
            figures["list_s"] = klog_seconds(system.folder, "topic", "list", "-B", bootstrap)
        yield wanted, figures
