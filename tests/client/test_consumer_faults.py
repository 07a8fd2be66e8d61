"""Stream consumers that are killed, paused and cut off while messages flow, and brokers that die under them."""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from klog.client.consumer import Consumer
from klog.client.streams import MessageStream
from klog.coordination import consumers, paths
from klog.coordination.connect_string import ConnectString
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import ConsumerTimeout, GroupIsHeld, RebalanceFailed
from klog.names import TopicPartition
from tests.broker_fixture import RunningBroker
from tests.client.stream_readers import Reading, ReadingProcess, drain
from tests.cluster.load import Load
from tests.cluster_fixture import RunningCluster, shared_three, three
from tests.coordination.conftest import expire
from tests.tools.verbs import make_topic, send
from tests.until import until
from tests.zookeeper_proxy import ZooKeeperProxy

__all__ = ["shared_three", "three"]

SESSION_MS = 1500


class Registry(threading.Thread):
    """What the registry said of a group's partitions, looked at all the time; each look is one moment.

    An owner was made in the step in which its claim went to the version that it has: so whoever owned at any moment is
    named by the claim, and no claim's version has had two owners.
    """

    def __init__(self, zookeeper: str, group: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(daemon=True)
        self._session = ZooKeeper(zookeeper)
        self._session.start()
        self._group, self._partitions = group, list(partitions)
        self._ended = threading.Event()
        self.owners: dict[TopicPartition, str] = {}
        self.by_claim: dict[tuple[TopicPartition, int], str] = {}
        self.changed_at = time.monotonic()
        self.wrong: list[str] = []
        self._offsets: dict[TopicPartition, int] = {}
        self.start()

    def run(self) -> None:
        groups = [self._group] * len(self._partitions)
        where = [
            path(group, *one)
            for group, one in zip(groups, self._partitions, strict=True)
            for path in (paths.consumer_owner, paths.ownership_fence, paths.consumer_offset)
        ]
        while not self._ended.wait(0.01):
            nodes = self._session.get_many(where)
            owners = {}
            for at, one in enumerate(self._partitions):
                owner, claim, offset = nodes[at * 3 : at * 3 + 3]
                if owner is not None and claim is not None:
                    name = owners[one] = owner.data.decode()
                    if owner.stat.created_zxid != claim.stat.modified_zxid:
                        self.wrong.append(f"{one}: {name} was not made with its claim")
                    if self.by_claim.setdefault((one, claim.stat.version), name) != name:
                        self.wrong.append(f"{one}: claim {claim.stat.version} had two owners")
                if offset is not None:
                    if int(offset.data) < self._offsets.get(one, 0):
                        self.wrong.append(f"{one}: from {self._offsets[one]} back to {int(offset.data)}")
                    self._offsets[one] = int(offset.data)
            if owners != self.owners:
                self.owners, self.changed_at = owners, time.monotonic()

    def shares(self) -> list[int]:
        """How many partitions each consumer owns, fewest first."""
        found: dict[str, int] = defaultdict(int)
        for owner in list(self.owners.values()):
            found[owner.rpartition("-")[0]] += 1
        return sorted(found.values())

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._session.stop()
        assert not self.wrong, self.wrong[:10]


@pytest.fixture
def watch() -> Iterator[Callable[..., Registry]]:
    made: list[Registry] = []

    def begin(zookeeper: str, group: str, topic: str, partitions: int) -> Registry:
        made.append(Registry(zookeeper, group, [TopicPartition(topic, number) for number in range(partitions)]))
        return made[-1]

    yield begin
    for one in made:
        one.end()


def sent_by(load: Load) -> set[bytes]:
    """All that was acknowledged; it sends no more."""
    load.stop()
    return {load.value(number) for acked in load.acked.values() for number, _ in acked}


@pytest.fixture
def start_process(tmp_path: Path, broker: RunningBroker, topic: str) -> Iterator[Callable[[str], ReadingProcess]]:
    made: list[ReadingProcess] = []

    def start(name: str) -> ReadingProcess:
        made.append(
            ReadingProcess(
                tmp_path / f"{name}.log",
                broker.zookeeper,
                f"g-{topic}",
                topic,
                2,
                auto_offset_reset="smallest",
                zookeeper_session_timeout_ms=SESSION_MS,
                auto_commit_interval_ms=100,
            )
        )
        return made[-1]

    yield start
    for one in made:
        one.end()


def test_consumers_that_are_killed_and_paused(
    broker: RunningBroker, topic: str, start_process: Callable[[str], ReadingProcess], watch: Callable[..., Registry]
) -> None:
    """At least once, and each partition read by one at a time."""
    make_topic(broker.bootstrap, topic, 6)
    registry = watch(broker.zookeeper, f"g-{topic}", topic, 6)
    load = Load(broker.bootstrap, topic, 6)
    one, two, three = (start_process(name) for name in ("one", "two", "three"))
    until(lambda: registry.shares() == [2, 2, 2] and all(each.lines for each in (one, two, three)), "all share")
    one.kill()
    two.send(signal.SIGSTOP)
    four = start_process("four")
    # Six partitions over four threads, each consumer's side by side: 2, 2, 1, 1.
    until(lambda: registry.shares() == [2, 4], "the two that live share what the others had")
    two.send(signal.SIGCONT)
    until(lambda: registry.shares() == [2, 2, 2], "the one that slept is back")
    sent = sent_by(load)

    def read() -> set[bytes]:
        return {line[5].encode() for process in (one, two, three, four) for line in process.lines}

    until(lambda: sent <= read(), "everything was read")
    for process in (two, three, four):
        assert process.stop() == 0, process.trouble

    every = [(process, line) for process in (one, two, three, four) for line in process.lines]
    print(f"sent {len(sent)}, read {len(every)}, in {len(registry.by_claim)} claims")
    periods: dict[tuple[str, int], list[float]] = defaultdict(list)
    readers: dict[tuple[str, int], set[str]] = defaultdict(set)
    for process, (at, _, partition, _, claim, _) in every:
        periods[partition, int(claim)].append(float(at))
        readers[partition, int(claim)].add(process.log.name)
    assert all(len(names) == 1 for names in readers.values()), "a claim has one reader"
    late = 0
    for (partition, version), times in periods.items():
        later = [min(other) for (name, after), other in periods.items() if name == partition and after > version]
        late += sum(at > min(later) for at in times) if later else 0
    # The process that was stopped may have had one message of each stream on its way to the log.
    assert late <= 2


def test_a_lost_session_is_survived(broker: RunningBroker, topic: str, watch: Callable[..., Registry]) -> None:
    make_topic(broker.bootstrap, topic, 2)
    registry = watch(broker.zookeeper, f"g-{topic}", topic, 2)
    load = Load(broker.bootstrap, topic, 2)
    with Consumer(broker.zookeeper, f"g-{topic}", auto_offset_reset="smallest") as consumer:
        reading = Reading(consumer.create_message_streams(topic))
        reading.wait_for(50)
        before = consumer.consumer_id
        assert consumer._rebalancer is not None
        expire(consumer._rebalancer._zookeeper)
        until(lambda: consumer.consumer_id != before and len(consumer.partitions) == 2, "it is back")
        assert {registry.by_claim[TopicPartition(topic, n), 1] for n in range(2)} == {f"{before}-0"}
        sent = sent_by(load)
        until(lambda: sent <= set(reading.values), "everything was read")
    assert not reading.errors


def test_an_entry_that_somebody_removes_is_made_again(broker: RunningBroker, topic: str) -> None:
    """As a rewind by force does: entries and owners are removed, claims raised."""
    make_topic(broker.bootstrap, topic)
    group = f"g-{topic}"
    with (
        ZooKeeper(broker.zookeeper) as session,
        Consumer(broker.zookeeper, group, auto_offset_reset="smallest", auto_commit_interval_ms=50) as consumer,
    ):
        session.start()
        reading = Reading(consumer.create_message_streams(topic))
        send(broker.bootstrap, topic, b"one\n", b"two\n")
        reading.wait_for(2)
        before = consumer.consumer_id
        offset = paths.consumer_offset(group, topic, 0)
        until(lambda: (session.find(offset) or (b"",))[0] not in (b"", b"0"), "a commit")
        session.set(paths.ownership_fence(group, topic, 0), b"{}")
        session.delete(paths.consumer_owner(group, topic, 0))
        session.delete(paths.consumer_id(group, before))
        session.set(offset, b"0")
        assert reading.wait_for(4)[2:] == [b"one", b"two"]
        (entry,) = consumers.members(session, group)
        assert entry.consumer_id == consumer.consumer_id != before


def test_nothing_is_delivered_when_the_session_may_be_over(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"".join(b"%d\n" % number for number in range(1000)))
    address = ConnectString.parse(broker.zookeeper)
    proxy = ZooKeeperProxy(address.servers[0])
    settings = {"zookeeper_session_timeout_ms": 1000, "consumer_timeout_ms": 50}
    consumer = Consumer(proxy.address + address.chroot, f"g-{topic}", auto_offset_reset="smallest", **settings)
    try:
        (stream,) = consumer.create_message_streams(topic)
        until(lambda: _next(stream) == b"0", "the first message")
        with proxy.silent():
            time.sleep(1.2)  # longer than the session, and nothing can be heard of it
            with pytest.raises(ConsumerTimeout):
                next(stream)
        proxy.cut()  # kazoo would go on waiting in a handshake that the silence has swallowed
        found = {b"0"}

        def more() -> bool:
            found.update(message.payload() for message in drain(stream))
            return len(found) == 1000

        until(more, "the rest when it is back")
    finally:
        consumer.shutdown()
        proxy.close()


def _next(stream: MessageStream) -> bytes:
    try:
        return next(stream).payload()
    except ConsumerTimeout:
        return b""


def test_a_group_that_was_taken_the_other_way_meanwhile_ends_the_streams(broker: RunningBroker, topic: str) -> None:
    from klog.coordination import group_states
    from klog.coordination.group_states import COORDINATOR, GroupState, MemberState

    make_topic(broker.bootstrap, topic)
    group = f"g-{topic}"
    with ZooKeeper(broker.zookeeper) as session, Consumer(broker.zookeeper, group) as consumer:
        session.start()
        reading = Reading(consumer.create_message_streams(topic))
        held = group_states.read(session, group)
        members = (MemberState("m", None, "client", "/10.0.0.7", 6000, 6000),)
        group_states.write(session, GroupState(group, COORDINATOR, 9, members=members, version=held.version))
        session.delete(paths.consumer_id(group, consumer.consumer_id))
        until(lambda: reading.errors, "the stream says why")
        assert isinstance(reading.errors[0], GroupIsHeld)


def test_brokers_that_die_under_a_consumer(three: RunningCluster, topic: str) -> None:
    three.create(topic, 3)
    zookeeper = three.zookeeper
    load = Load(three.bootstrap, topic, 3)
    with Consumer(zookeeper, f"g-{topic}", auto_offset_reset="smallest") as consumer:
        reading = Reading(consumer.create_message_streams(topic, 2))
        reading.wait_for(100)
        three.kill(three.leader_of(topic, 0))
        load.wait_for_more(300)
        sent = sent_by(load)
        until(lambda: sent <= set(reading.values), "everything was read")
        values = reading.values
        assert len(values) == len(set(values)), "and nothing twice: no consumer has died"
    assert not reading.errors


def test_an_owner_that_does_not_let_go(broker: RunningBroker, topic: str) -> None:
    """As a tool of another time might: an owner without an entry, and no claim beside it."""
    make_topic(broker.bootstrap, topic)
    group = f"g-{topic}"
    owner = paths.consumer_owner(group, topic, 0)
    with ZooKeeper(broker.zookeeper) as session:
        session.start()
        session.ensure_path(owner.rpartition("/")[0])
        session.create(owner, b"somebody-0", ephemeral=True)
        settings = {"rebalance_max_retries": 3, "rebalance_backoff_ms": 10}
        with pytest.raises(RebalanceFailed, match=rf"{topic}-0\b.*\bsomebody-0\b.*\b3 tries"):
            Consumer(broker.zookeeper, group, **settings).create_message_streams(topic)
        assert consumers.members(session, group) == []

        with Consumer(broker.zookeeper, group, rebalance_backoff_ms=20) as consumer:
            with ThreadPoolExecutor(1) as pool:
                made = pool.submit(consumer.create_message_streams, topic)
                session.delete(owner)
                made.result(30)
            assert consumers.owners(session, [group])[group] == {TopicPartition(topic, 0): f"{consumer.consumer_id}-0"}
