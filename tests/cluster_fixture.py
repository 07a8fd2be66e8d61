"""Clusters of real brokers for tests: processes of this checkout on free ports, in one chroot of a real ZooKeeper.

`make_cluster`   clusters of the test's own, with its number of brokers and settings
`three`          three brokers that the tests of a worker share: use topics of your own (`topic` gives a name), and do
                 with the brokers what you like: each test begins with all three up and knowing one another

What a test waits for is asked of the brokers as a client asks, by Metadata. Every process is ended by its id when the
fixture ends, whatever the test did to it.
"""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from klog.client.blocking import BlockingChannel
from klog.coordination import brokers as registrations
from klog.coordination import cluster as registry
from klog.coordination.embedded import ZooKeeperServer
from klog.errors import CannotConnect, PeerError, TimedOut
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.introduction import NONCE_BYTES, Introduction
from tests.broker_fixture import RunningBroker
from tests.until import until
from tests.zookeeper_fixture import session_of

LOOK_EVERY_S = 0.02
ANSWER_S = 10.0
WAIT_S = 30.0
"""What is waited for comes within a few seconds; a machine with other things to do gets more."""

QUICK = {"zookeeper.session.timeout.ms": "4000", "replica.lag.time.max.ms": "2000"}
"""What is given up on by time is given up on sooner than by default: the tests wait for it."""


class RunningCluster:
    """Brokers 1 to N in one chroot. What is asked is asked of any broker that runs and is not paused."""

    def __init__(self, folder: Path, zookeeper: str, brokers: int = 3, **settings: str) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.settings = {**QUICK, **{name.replace("__", "."): value for name, value in settings.items()}}
        self.brokers: dict[int, RunningBroker] = {}
        self.retired: list[RunningBroker] = []
        """Brokers whose id another process has now."""
        self.paused: set[int] = set()
        for broker_id in range(1, brokers + 1):
            self.add(broker_id)

    def add(self, broker_id: int, folder: Path | None = None, **settings: str) -> RunningBroker:
        """A further broker, or another one with an id that there was (on a port of its own); it is not started."""
        if broker_id in self.brokers:
            self.retired.append(self.brokers[broker_id])
        where = folder or self.folder / f"broker-{broker_id}"
        own = {name.replace("__", "."): value for name, value in settings.items()}
        self.brokers[broker_id] = RunningBroker(where, self.zookeeper, broker_id, **{**self.settings, **own})
        return self.brokers[broker_id]

    def start(self, *broker_ids: int) -> RunningCluster:
        """These, or all that do not run, side by side; returns when each would serve and knows all that run."""
        wanted = [self.brokers[one] for one in broker_ids or self.brokers if one not in self.running]
        with ThreadPoolExecutor(max(1, len(wanted))) as pool:
            list(pool.map(RunningBroker.start, wanted))
        self.wait_until_known()
        return self

    @contextmanager
    def started(self) -> Iterator[RunningCluster]:
        """All of it, and ended whatever happens: the cluster of a fixture."""
        try:
            yield self.start()
        finally:
            self.end()

    def end(self) -> None:
        """Nothing of it runs afterwards."""
        for broker in (*self.brokers.values(), *self.retired):
            broker.end()

    def heal(self) -> None:
        """All brokers run, and know one another."""
        for broker_id in list(self.paused):
            self.cont(broker_id)
        self.start()

    # --- what is done to brokers ----------------------------------------------------------------------------------

    @property
    def running(self) -> list[int]:
        """The ids of the processes that there are, paused ones too."""
        return [one for one, broker in self.brokers.items() if broker.process and broker.process.poll() is None]

    @property
    def answering(self) -> list[int]:
        return [one for one in self.running if one not in self.paused]

    @property
    def bootstrap(self) -> str:
        """The addresses of all that have ever run."""
        return ",".join(broker.bootstrap for broker in self.brokers.values() if broker.bootstrap)

    def kill(self, *broker_ids: int) -> None:
        """kill -9 of all of them at once, and wait until they are gone."""
        for broker_id in broker_ids:
            self.paused.discard(broker_id)
            self.brokers[broker_id].send(signal.SIGKILL)
        for broker_id in broker_ids:
            self.brokers[broker_id].kill()

    def stop(self, broker_id: int) -> int:
        """Controlled shutdown; the exit code."""
        return self.brokers[broker_id].stop()

    def pause(self, broker_id: int) -> None:
        self.brokers[broker_id].send(signal.SIGSTOP)
        self.paused.add(broker_id)

    def cont(self, broker_id: int) -> None:
        self.brokers[broker_id].send(signal.SIGCONT)
        self.paused.discard(broker_id)

    # --- what is asked --------------------------------------------------------------------------------------------

    def ask(self, broker_id: int, api: ApiKey, version: int, /, **fields: Any) -> Any:
        """The answer's entity; raises KlogError when the broker cannot be asked."""
        with self.channel(broker_id, client_id="test") as channel:
            return channel.request(codec.request(api, version, **fields))

    @contextmanager
    def channel(self, broker_id: int, timeout_s: float = ANSWER_S, **options: str) -> Iterator[BlockingChannel]:
        """A connection to that broker, as a client."""
        host, _, port = self.brokers[broker_id].bootstrap.rpartition(":")
        channel = BlockingChannel.connect(host, int(port), connect_timeout_s=ANSWER_S, timeout_s=timeout_s, **options)
        try:
            yield channel
        finally:
            channel.close()

    def end_reassignments(self) -> None:
        """Take back what a test that failed has left under way: everything that a broker fills shares its throttle."""
        answer = self.ask(self.answering[0], ApiKey.DESCRIBE_REASSIGNMENTS, 0)
        topics = [
            {"name": one.topic, "partitions": [{"partition_index": one.partition_index, "replicas": None}]}
            for one in answer.reassignments
        ]
        if topics:
            self.ask(self.answering[0], ApiKey.ALTER_REASSIGNMENTS, 0, throttle=0, topics=topics)

    def ask_as_broker(self, broker_id: int, api: ApiKey, version: int, /, *, as_id: int = 9, **fields: Any) -> Any:
        """The same on a connection that has shown the cluster's secret, as broker ``as_id``."""
        with session_of(self.zookeeper) as session:
            secret = registry.secret(session)
        assert secret is not None
        introduction = Introduction(secret, as_id, broker_id, secrets.token_bytes(NONCE_BYTES))
        with self.channel(broker_id) as channel:
            introduction.check(channel.request(introduction.proof(channel.request(introduction.greeting()))))
            return channel.request(codec.request(api, version, **fields))

    def metadata(self, broker_id: int | None = None, topics: list[str] | None = None) -> Any:
        """Metadata of these topics (none: all of them) as that broker, or any, has it; None when it does not answer."""
        asked = None if topics is None else [{"name": topic} for topic in topics]
        for one in [broker_id] if broker_id is not None else self.answering:
            try:
                return self.ask(one, ApiKey.METADATA, 7, topics=asked, allow_auto_topic_creation=False)
            except (CannotConnect, TimedOut, PeerError):
                continue
        return None

    def partitions(self, topic: str, broker_id: int | None = None) -> dict[int, Any]:
        """partition -> what Metadata says of it (leader_id, leader_epoch, replica_nodes, isr_nodes)."""
        answer = self.metadata(broker_id, [topic])
        if answer is None:
            return {}
        return {int(one.partition_index): one for one in answer.topics[0].partitions}

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """-1: nobody."""
        found = self.partitions(topic).get(partition)
        return -1 if found is None else int(found.leader_id)

    def isr_of(self, topic: str, partition: int = 0) -> set[int]:
        found = self.partitions(topic).get(partition)
        return set() if found is None else {int(one) for one in found.isr_nodes}

    def controller(self) -> int:
        """-1: nobody, or nobody answers."""
        answer = self.metadata(topics=[])
        return -1 if answer is None else int(answer.controller_id)

    # --- what is waited for ---------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> float:
        """Seconds until it held; AssertionError with the ends of the brokers' logs when it does not in time."""
        begun = time.monotonic()
        until(condition, lambda: f"{what}\n{self.logs()}", timeout_s)
        return time.monotonic() - begun

    def wait_until_known(self) -> None:
        """Every broker that answers knows a controller and all those that answer."""
        wanted = set(self.answering)

        def known() -> bool:
            for one in wanted:
                answer = self.metadata(one, [])
                if answer is None or answer.controller_id not in wanted:
                    return False
                if not wanted <= {int(broker.node_id) for broker in answer.brokers}:
                    return False
            return True

        self.wait_until(known, f"brokers {sorted(wanted)} know a controller and one another")

    def wait_until_unregistered(self, broker_id: int) -> None:
        """Until ZooKeeper has no entry of that broker: what a dead one left there goes with its session."""
        with session_of(self.zookeeper) as session:
            self.wait_until(lambda: registrations.find(session, broker_id) is None, f"broker {broker_id} is gone")

    def wait_in_sync(self, topic: str, timeout_s: float = WAIT_S) -> float:
        """Until every broker that answers says that each partition is led and all of its replicas are in sync."""

        def in_sync() -> bool:
            for one in self.answering:
                found = self.partitions(topic, one)
                if not found or any(
                    part.leader_id < 0 or set(part.isr_nodes) != set(part.replica_nodes) for part in found.values()
                ):
                    return False
            return True

        return self.wait_until(in_sync, f"all replicas of {topic} in sync", timeout_s)

    def wait_for_leader(self, topic: str, partition: int = 0, *, other_than: int = -1) -> int:
        """Who leads it by what every broker that answers says: somebody, and not that broker."""

        def leaders() -> set[int]:
            found = [self.partitions(topic, one).get(partition) for one in self.answering]
            return {-1 if one is None else int(one.leader_id) for one in found}

        self.wait_until(
            lambda: len(leaders()) == 1 and not leaders() & {-1, other_than}, f"{topic}-{partition} led by another"
        )
        return self.leader_of(topic, partition)

    def logs(self, lines: int = 25) -> str:
        """The ends of the brokers' logs."""
        return "\n".join(
            f"--- broker {one}\n" + "\n".join(broker.log_text.splitlines()[-lines:])
            for one, broker in self.brokers.items()
        )

    # --- topics ---------------------------------------------------------------------------------------------------

    def create(
        self,
        topic: str,
        partitions: int = 1,
        factor: int = 3,
        *,
        assignment: list[list[int]] | None = None,
        **settings: str,
    ) -> str:
        """Make a topic through any broker, and wait until its replicas are in sync; its name."""
        error = self.try_create(topic, partitions, factor, assignment=assignment, **settings)
        assert error == 0, f"creating {topic}: error {error}\n{self.logs()}"
        self.wait_in_sync(topic)
        return topic

    def try_create(
        self,
        topic: str,
        partitions: int = 1,
        factor: int = 3,
        *,
        assignment: list[list[int]] | None = None,
        broker_id: int | None = None,
        **settings: str,
    ) -> int:
        """The error code of CreateTopics."""
        placed = [{"partition_index": i, "broker_ids": ids} for i, ids in enumerate(assignment or [])]
        wanted = {
            "name": topic,
            "num_partitions": -1 if assignment else partitions,
            "replication_factor": -1 if assignment else factor,
            "assignments": placed,
            "configs": [{"name": name.replace("_", "."), "value": value} for name, value in settings.items()],
        }
        answer = self.ask(broker_id or self.answering[0], ApiKey.CREATE_TOPICS, 5, topics=[wanted])
        return int(answer.topics[0].error_code.value)


@pytest.fixture
def make_cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Callable[..., RunningCluster]]:
    """Makes clusters (not started) of this test's own, each in a chroot of its own."""
    made: list[RunningCluster] = []

    def make(brokers: int = 3, **settings: str) -> RunningCluster:
        name = f"cluster-{len(made) + 1}"
        chroot = f"{zookeeper.address}/{name}-{secrets.token_hex(4)}"
        made.append(RunningCluster(tmp_path / name, chroot, brokers, **settings))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture(scope="session")
def shared_three(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """The brokers behind `three`."""
    chroot = f"{zookeeper.address}/three-{secrets.token_hex(4)}"
    running = RunningCluster(
        tmp_path_factory.mktemp("three"),
        chroot,
        default__replication__factor="3",
        min__insync__replicas="2",
        group__min__session__timeout__ms="1000",
        leader__imbalance__check__interval__seconds="3600",  # no leader moves in the middle of a test
    )
    with running.started():
        yield running


@pytest.fixture
def three(shared_three: RunningCluster) -> RunningCluster:
    """Three brokers, all up, no reassignment under way; two of three must have what is acknowledged."""
    shared_three.heal()
    shared_three.end_reassignments()
    return shared_three
