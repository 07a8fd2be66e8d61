"""Two brokers on a network that loses answers and connections at random, step by step beside what must hold.

Invariants, after every step: whoever is told to be controller is; a fenced write that is said to be done is done, one
that is refused is not; epochs only rise; nothing of a deposed term is written; ids are given once; an entry belongs to
whoever registered last. The seed of a failing run is its parameter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from klog.coordination import brokers, cluster, controller_election, partition_states, producer_ids, topics
from klog.coordination.brokers import Broker, Registration
from klog.coordination.connect_string import ConnectString
from klog.coordination.controller_election import ControllerTerm
from klog.coordination.partition_states import PartitionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import BadVersion, BrokerIdInUse, NoNode
from klog.names import TopicPartition
from tests.coordination.states import read_state, write_state
from tests.zookeeper_proxy import WRITES, ZooKeeperProxy

STEPS = 60
PARTITION = TopicPartition("t", 0)


@dataclass
class Member:
    """One broker: its session through its own proxy, and what it believes."""

    number: int
    session: ZooKeeper
    proxy: ZooKeeperProxy
    term: ControllerTerm | None = None
    state: PartitionState | None = None
    entry: Registration | None = None


@dataclass
class Truth:
    """What has happened, as seen over a connection that never fails."""

    clear: ZooKeeper
    topic: topics.Topic
    epoch: int = 0
    elected: int | None = None  # under that epoch
    holder: int | None = None  # of /controller now
    last: PartitionState | None = None
    given: set[int] = field(default_factory=set)


@pytest.fixture
def members(zk_chroot: str) -> Iterator[list[Member]]:
    address = ConnectString.parse(zk_chroot)
    made = []
    for number in (1, 2):
        proxy = ZooKeeperProxy(address.servers[0])
        session = ZooKeeper(proxy.address + address.chroot)
        session.start()
        made.append(Member(number, session, proxy))
    yield made
    for member in made:
        member.session.stop()
        member.proxy.close()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long("extra seeds")) for seed in (2, 3))])
def test_a_lossy_history(seed: int, members: list[Member], zk: ZooKeeper) -> None:
    chance = random.Random(seed)
    cluster.ensure_cluster(zk)
    truth = Truth(zk, topics.create(zk, "t", {0: [1, 2]}, {}, []))
    first = {PARTITION: PartitionState(1, 0, (1, 2), 0)}
    truth.last = partition_states.create_many(zk, first, truth.topic.fence)[PARTITION]
    acts = (stand, stand, write, write, write, step_down, claim, enter, leave)
    for _ in range(STEPS):
        member = chance.choice(members)
        fault = chance.random()
        if fault < 0.35:
            member.proxy.lose_answer_of(WRITES)
        elif fault < 0.45:
            member.proxy.cut()
        chance.choice(acts)(member, truth, chance)
    assert sum(one.proxy.lost for one in members) > 5  # the network did its part


def stand(member: Member, truth: Truth, chance: random.Random) -> None:
    term = controller_election.elect(member.session, member.number)
    found = controller_election.current(truth.clear)
    assert found == term
    if term.session == member.session.session_id:
        assert term.epoch in (truth.epoch, truth.epoch + 1)
        assert term.epoch == truth.epoch + (truth.holder != member.number)
        truth.epoch, member.term = term.epoch, term
        truth.holder = truth.elected = member.number
    else:
        assert term.broker_id == truth.holder != member.number
    member.state = read_state(member.session, PARTITION)


def write(member: Member, truth: Truth, chance: random.Random) -> None:
    """A fenced change of the partition's state, perhaps from an old reading, perhaps of a term that is over."""
    if member.term is None or member.state is None:
        return
    if chance.random() < 0.5:
        member.state = read_state(member.session, PARTITION)
        assert member.state == truth.last
    assert member.state is not None
    assert truth.last is not None
    wanted = PartitionState(
        member.number, member.state.leader_epoch + 1, (member.number,), member.term.epoch, version=member.state.version
    )
    # A term ends for the fence when the next is elected, not when it is resigned.
    may = truth.elected == member.number and member.term.epoch == truth.epoch and member.state == truth.last
    try:
        member.state = write_state(member.session, PARTITION, wanted, [member.term.fence])
        assert may
        truth.last = member.state
    except BadVersion:
        assert not may
    assert read_state(truth.clear, PARTITION) == truth.last


def step_down(member: Member, truth: Truth, chance: random.Random) -> None:
    if member.term is None:
        return
    in_office = truth.holder == member.number and member.term.epoch == truth.epoch
    try:
        controller_election.resign(member.session, member.term)
    except (BadVersion, NoNode):
        assert not in_office
    if in_office:
        truth.holder = None
    found = controller_election.current(truth.clear)
    assert (found.broker_id if found else None) == truth.holder


def claim(member: Member, truth: Truth, chance: random.Random) -> None:
    block = producer_ids.claim_block(member.session, member.number)
    assert truth.given.isdisjoint(block)
    truth.given.update(block)


def enter(member: Member, truth: Truth, chance: random.Random) -> None:
    """Both want id 7; sometimes with each other's log dirs, as after a kill, sometimes with their own."""
    before = brokers.find(truth.clear, 7)
    dirs = ("shared",) if chance.random() < 0.7 else (f"own-{member.number}",)
    may = before is None or set(before.broker.log_dirs) <= set(dirs)
    try:
        member.entry = brokers.register(member.session, Broker(7, f"h{member.number}", 1, dirs))
        assert may
        assert brokers.find(truth.clear, 7) == member.entry
        # A take-over removes the office of the session that was replaced, and no other.
        if before is not None and before.session != member.session.session_id:
            found = controller_election.current(truth.clear)
            assert found is None or found.session != before.session
        found = controller_election.current(truth.clear)
        truth.holder = found.broker_id if found else None
    except BrokerIdInUse:
        assert not may
        assert brokers.find(truth.clear, 7) == before


def leave(member: Member, truth: Truth, chance: random.Random) -> None:
    if member.entry is None:
        return
    before = brokers.find(truth.clear, 7)
    brokers.unregister(member.session, member.entry)
    after = brokers.find(truth.clear, 7)
    assert after == (None if before == member.entry else before)
