"""Rule Z2: a lost answer is not a failure. Each write reaches the real server, its answer is lost, the session goes on.

Taking out the second look of `commit` (or the loops of the registries) fails these tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pytest

from klog.coordination import (
    brokers,
    cluster,
    controller_election,
    partition_states,
    paths,
    producer_ids,
    topic_deletion,
    topics,
)
from klog.coordination.brokers import Broker
from klog.coordination.partition_states import PartitionState
from klog.coordination.zookeeper import Check, Create, Delete, Operation, SetData, ZooKeeper
from klog.errors import BadVersion, NodeExists, SessionLost
from klog.names import TopicPartition
from tests.coordination.states import read_state, write_state
from tests.zookeeper_proxy import CREATE, EXISTS, GET_CHILDREN, GET_DATA, MULTI, MULTI_READ, ZooKeeperProxy

Through = Callable[..., ZooKeeper]


@pytest.fixture
def zk_lossy(through: Through) -> ZooKeeper:
    return through()


def test_a_plain_write_says_that_it_does_not_know(proxy: ZooKeeperProxy, zk_lossy: ZooKeeper) -> None:
    proxy.lose_answer_of(frozenset({CREATE}))
    with pytest.raises(SessionLost):
        zk_lossy.create("/a")
    assert proxy.lost == 1
    assert zk_lossy.exists("/a") is not None  # it happened


def test_reads_are_repeated(proxy: ZooKeeperProxy, zk_lossy: ZooKeeper) -> None:
    zk_lossy.create("/a", b"1")
    for _ in range(3):
        proxy.cut()
        assert zk_lossy.get("/a").data == b"1"
        assert zk_lossy.get_many(["/a", "/b"])[1] is None
    for operation, read in (
        (GET_DATA, lambda: zk_lossy.get("/a").data),
        (EXISTS, lambda: zk_lossy.exists("/a")),
        (GET_CHILDREN, lambda: zk_lossy.children("/")),
        (MULTI_READ, lambda: zk_lossy.get_many(["/a", "/b"])[0]),
    ):
        lost = proxy.lost
        proxy.lose_answer_of(frozenset({operation}))
        assert read()
        assert proxy.lost == lost + 1


def test_anothers_write_after_the_loss_is_a_bad_version(
    proxy: ZooKeeperProxy, zk_lossy: ZooKeeper, zk: ZooKeeper
) -> None:
    zk.create("/a", b"old")
    proxy.lose_answer_of(frozenset({MULTI}), then=lambda: zk.set("/a", b"theirs", 1))
    with pytest.raises(BadVersion):
        zk_lossy.commit([SetData("/a", b"mine", 0)])
    assert zk.get("/a").data == b"theirs"


def test_a_multi_is_committed_once(proxy: ZooKeeperProxy, zk_lossy: ZooKeeper) -> None:
    zk_lossy.create("/fence", b"")
    proxy.lose_answer_of(frozenset({MULTI}))
    operations: list[Operation] = [SetData("/fence", b"me", 0), Create("/made", b"me")]
    zk_lossy.commit(operations)
    assert zk_lossy.get("/fence").stat.version == 1
    with pytest.raises(BadVersion):  # without a loss the same is an error
        zk_lossy.commit(operations)


@pytest.mark.parametrize(("proof", "is_known"), [([Create("/made", b"me")], True), (None, False), ((), False)])
def test_the_proof_is_what_no_other_has_done(
    proxy: ZooKeeperProxy, zk_lossy: ZooKeeper, zk: ZooKeeper, proof: Sequence[Operation] | None, is_known: bool
) -> None:
    zk.create("/shared")
    proxy.lose_answer_of(frozenset({MULTI}), then=lambda: zk.set("/shared", b"theirs", 1))
    with nullcontext() if is_known else pytest.raises(BadVersion):
        zk_lossy.commit([SetData("/shared", b"me", 0), Create("/made", b"me")], proof)
    assert proxy.lost == 1


def test_a_multi_that_never_arrived_is_sent_again(proxy: ZooKeeperProxy, zk_lossy: ZooKeeper) -> None:
    zk_lossy.create("/fence", b"")
    for version in range(3):
        proxy.cut()
        zk_lossy.commit([SetData("/fence", b"me", version)])
    assert zk_lossy.get("/fence").stat.version == 3


def test_a_multi_that_another_prevented_is_not_taken_for_ones_own(
    proxy: ZooKeeperProxy, zk_lossy: ZooKeeper, zk: ZooKeeper
) -> None:
    zk.create("/made", b"theirs")
    proxy.lose_answer_of(frozenset({MULTI}))
    with pytest.raises(NodeExists):
        zk_lossy.commit([Create("/made", b"me")])
    assert proxy.lost == 1


def test_making_a_cluster(proxy: ZooKeeperProxy, zk_lossy: ZooKeeper) -> None:
    proxy.lose_answer_of(frozenset({MULTI}))
    made = cluster.ensure_cluster(zk_lossy)
    assert proxy.lost == 1
    assert made == cluster.cluster_id(zk_lossy) == cluster.ensure_cluster(zk_lossy)
    assert {path for path in paths.PERSISTENT if zk_lossy.exists(path) is None} == set()


def test_registering(proxy: ZooKeeperProxy, zk_lossy: ZooKeeper) -> None:
    cluster.ensure_cluster(zk_lossy)
    proxy.lose_answer_of(frozenset({MULTI}))
    mine = brokers.register(zk_lossy, Broker(1, "h", 9092, ("dir-a",)))
    assert proxy.lost == 1
    assert brokers.is_current(zk_lossy, mine)
    node = zk_lossy.get(paths.broker(1))
    assert (node.stat.created_zxid, node.stat.owner_session) == (mine.incarnation, zk_lossy.session_id)
    assert mine.fence_version == 1  # registered once
    proxy.lose_answer_of(frozenset({MULTI}))
    brokers.unregister(zk_lossy, mine)
    assert zk_lossy.exists(paths.broker(1)) is None


def test_election_and_resignation(proxy: ZooKeeperProxy, zk_lossy: ZooKeeper) -> None:
    proxy.lose_answer_of(frozenset({MULTI}))
    term = controller_election.elect(zk_lossy, 1)
    assert proxy.lost == 1
    assert (term.broker_id, term.epoch, term.session) == (1, 1, zk_lossy.session_id)
    zk_lossy.multi([term.fence])
    proxy.lose_answer_of(frozenset({MULTI}))
    controller_election.resign(zk_lossy, term)
    assert proxy.lost == 2
    assert controller_election.current(zk_lossy) is None


def test_a_resignation_does_not_remove_the_next_controller(
    proxy: ZooKeeperProxy, zk_lossy: ZooKeeper, zk: ZooKeeper
) -> None:
    """Rule Z1: the lost delete did happen, another was elected meanwhile, and the delete is sent again."""
    term = controller_election.elect(zk_lossy, 1)
    proxy.lose_answer_of(frozenset({MULTI}), then=lambda: controller_election.elect(zk, 2))
    with pytest.raises(BadVersion):  # as for any term that is over
        controller_election.resign(zk_lossy, term)
    now = controller_election.current(zk)
    assert now is not None
    assert (now.broker_id, now.epoch) == (2, 2)


def test_topics(proxy: ZooKeeperProxy, zk_lossy: ZooKeeper) -> None:
    cluster.ensure_cluster(zk_lossy)
    fence = [controller_election.elect(zk_lossy, 1).fence]
    proxy.lose_answer_of(frozenset({MULTI}))
    topic = topics.create(zk_lossy, "t", {0: [1]}, {"retention.ms": "1"}, fence)
    assert topics.find(zk_lossy, "t") == topic
    proxy.lose_answer_of(frozenset({MULTI}))
    topic = topics.add_partitions(zk_lossy, topic, {1: [1]}, fence)
    assert topics.find(zk_lossy, "t") == topic
    states = {one: PartitionState(1, 0, (1,), 1, new=True) for one in topic.topic_partitions}
    proxy.lose_answer_of(frozenset({MULTI}))
    states = partition_states.create_many(zk_lossy, states, fence)
    assert partition_states.read_many(zk_lossy, topic.topic_partitions) == states
    proxy.lose_answer_of(frozenset({MULTI}))
    states = partition_states.write_many(zk_lossy, states, fence)
    assert partition_states.read_many(zk_lossy, topic.topic_partitions) == states
    config = topics.configs(zk_lossy, ["t"])["t"]
    proxy.lose_answer_of(frozenset({MULTI}))
    config = topics.set_config(zk_lossy, topic, topics.TopicConfig({"retention.ms": "2"}, config.version), fence)
    assert topics.configs(zk_lossy, ["t"])["t"] == config
    assert len(zk_lossy.children(paths.CONFIG_CHANGES)) == 1
    for deletion in (topics.Deletion(1000, "act", is_name_kept=True), None):
        proxy.lose_answer_of(frozenset({MULTI}))
        topic = topics.replace_assignment(zk_lossy, replace(topic, deletion=deletion), fence)
        assert topics.find(zk_lossy, "t") == topic
    proxy.lose_answer_of(frozenset({MULTI}))
    topic_deletion.mark_for_deletion(zk_lossy, "t", fence)
    proxy.lose_answer_of(frozenset({MULTI}))
    topic_deletion.finish_deletion(zk_lossy, "t", fence)
    assert proxy.lost == 9
    assert topics.names(zk_lossy) == topics.being_deleted(zk_lossy) == []
    assert topics.first_leader_epochs(zk_lossy, ["t"]) == {"t": 1}


def test_anothers_equal_isr_is_taken_for_ones_own_only_if_it_is_the_same_state(
    proxy: ZooKeeperProxy, zk_lossy: ZooKeeper, zk: ZooKeeper
) -> None:
    """Rule R2 asks the leader to look again; what it must not do is to believe a state that is not there."""
    cluster.ensure_cluster(zk)
    topic = topics.create(zk, "t", {0: [1, 2]}, {}, [])
    partition = TopicPartition("t", 0)
    state = partition_states.create_many(zk, {partition: PartitionState(1, 0, (1, 2), 1)}, topic.fence)[partition]
    theirs = PartitionState(2, 1, (2,), 1, version=1)
    proxy.lose_answer_of(frozenset({MULTI}), then=lambda: write_state(zk, partition, theirs, topic.fence))
    with pytest.raises(BadVersion):
        write_state(zk_lossy, partition, PartitionState(1, 0, (1,), 1, version=state.version), topic.fence)
    found = read_state(zk, partition)
    assert found is not None
    assert (found.leader, found.version) == (2, 2)


def test_a_block_of_producer_ids_in_doubt_is_dropped(proxy: ZooKeeperProxy, zk_lossy: ZooKeeper) -> None:
    given = set(producer_ids.claim_block(zk_lossy, 1))
    for _ in range(2):
        proxy.lose_answer_of(frozenset({MULTI}))
        block = set(producer_ids.claim_block(zk_lossy, 1))
        assert not block & given
        given |= block
    assert proxy.lost == 2
    assert max(given) == 4999  # two blocks of five are a gap


def test_the_fence_is_checked_although_the_answer_is_lost(
    proxy: ZooKeeperProxy, zk_lossy: ZooKeeper, zk: ZooKeeper
) -> None:
    zk.create("/fence")
    zk.create("/victim")
    zk.set("/fence", b"")
    proxy.lose_answer_of(frozenset({MULTI}))
    with pytest.raises(BadVersion):
        zk_lossy.commit([Check("/fence", 0), Delete("/victim")])
    assert zk.exists("/victim") is not None
