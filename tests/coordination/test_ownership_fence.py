"""Owners and the claims beside them: who owns, who may write, and what a consumer that slept can still do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klog.coordination import committed, consumers, ownership_fence, paths, topics
from klog.coordination.committed import OffsetWriter
from klog.coordination.consumers import ConsumerEntry
from klog.coordination.ownership_fence import OwnershipFence
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import NodeExists, NoNode, OwnershipConflict, SessionLost
from klog.names import TopicPartition
from tests.coordination.conftest import expire
from tests.zookeeper_proxy import ZooKeeperProxy

GROUP = "g"
ONE, TWO = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


@pytest.fixture(autouse=True)
def clicks(registry: ZooKeeper) -> None:
    topics.create(registry, "clicks", {0: [1], 1: [1]}, {}, [])


def enter(session: ZooKeeper, name: str) -> str:
    consumer_id = consumers.new_consumer_id(GROUP, name)
    consumers.register(session, GROUP, ConsumerEntry(consumer_id, {"clicks": 1}))
    return consumer_id


def take(session: ZooKeeper, consumer_id: str, *partitions: TopicPartition) -> dict[TopicPartition, OwnershipFence]:
    topic = topics.find(session, "clicks")
    assert topic is not None
    wanted = dict.fromkeys(partitions, f"{consumer_id}-0")
    return ownership_fence.claim(session, GROUP, consumer_id, wanted, {"clicks": topic.fence})


def stands(session: ZooKeeper) -> dict[TopicPartition, int]:
    return {one: found.offset for one, found in committed.read(session, GROUP, [ONE, TWO]).items()}


def commit(session: ZooKeeper, owned: dict[TopicPartition, OwnershipFence], **offsets: int) -> set[TopicPartition]:
    named = {TopicPartition("clicks", int(name[1:])): offset for name, offset in offsets.items()}
    return ownership_fence.commit(session, GROUP, OffsetWriter(session), {one: owned[one] for one in named}, named)


def test_owner_and_claim_are_made_in_one_step_and_the_claim_stays(zk: ZooKeeper) -> None:
    me = enter(zk, "me")
    for version in (1, 2):
        owned = take(zk, me, ONE, TWO)
        assert [claim.version for claim in owned.values()] == [version, version]
        owner, beside = zk.get_many([paths.consumer_owner(GROUP, *ONE), paths.ownership_fence(GROUP, *ONE)])
        assert owner is not None and beside is not None
        assert owner.data == f"{me}-0".encode()
        assert owner.stat.owner_session == zk.session_id
        assert owner.stat.created_zxid == beside.stat.modified_zxid
        assert ownership_fence.commit(zk, GROUP, OffsetWriter(zk), owned, {ONE: 10 * version}, release=True) == set()
        assert zk.exists(paths.consumer_owner(GROUP, *ONE)) is None
        assert stands(zk) == {ONE: 10 * version}
    assert committed.read(zk, GROUP)[ONE].commit_ms > 0


def test_what_is_owned_is_refused_and_nothing_of_the_rest_is_taken(
    zk: ZooKeeper, connect: Callable[..., ZooKeeper]
) -> None:
    other = connect()
    me, you = enter(zk, "me"), enter(other, "you")
    take(zk, me, TWO)
    with pytest.raises(OwnershipConflict, match=f"clicks-1 .*{me}-0"):
        take(other, you, ONE, TWO)
    assert consumers.owners(zk, [GROUP])[GROUP] == {TWO: f"{me}-0"}


def test_a_consumer_that_slept_moves_no_offset_and_removes_no_owner(
    zk: ZooKeeper, connect: Callable[..., ZooKeeper]
) -> None:
    other = connect()
    me, you = enter(zk, "me"), enter(other, "you")
    mine = take(zk, me, ONE, TWO)
    assert commit(zk, mine, p0=100, p1=200) == set()
    expire(zk)
    yours = take(other, you, ONE)
    assert commit(other, yours, p0=150) == set()
    # It wakes up under another session, and believes what it did.
    assert commit(zk, mine, p0=120, p1=220) == {ONE}
    assert stands(zk) == {ONE: 150, TWO: 220}
    assert ownership_fence.commit(zk, GROUP, OffsetWriter(zk), {ONE: mine[ONE]}, {ONE: 130}, release=True) == {ONE}
    assert consumers.owners(other, [GROUP])[GROUP] == {ONE: f"{you}-0"}
    assert stands(zk)[ONE] == 150
    assert ownership_fence.standing(other, GROUP, yours) == yours
    assert ownership_fence.standing(zk, GROUP, mine) == {}


def test_who_was_taken_out_claims_nothing(zk: ZooKeeper) -> None:
    me = enter(zk, "me")
    zk.delete(paths.consumer_id(GROUP, me))
    with pytest.raises(NoNode, match="registered"):
        take(zk, me, ONE)
    assert consumers.owners(zk, [GROUP])[GROUP] == {}


def test_claims_of_a_topic_that_was_deleted_fence_nothing_of_the_next_one(zk: ZooKeeper) -> None:
    me = enter(zk, "me")
    mine = take(zk, me, ONE)
    topic = topics.find(zk, "clicks")
    assert topic is not None
    zk.delete(paths.consumer_owner(GROUP, *ONE))
    committed.forget_topic(zk, "clicks")
    zk.delete(paths.topic("clicks"))
    topics.create(zk, "clicks", {0: [1], 1: [1]}, {}, [])
    again = take(zk, me, ONE)
    assert again[ONE].version == mine[ONE].version, "the claim's version alone would not tell them apart"
    assert commit(zk, mine, p0=7) == {ONE}
    assert stands(zk) == {}


@pytest.mark.parametrize("step", ["claim", "release", "commit"])
def test_a_lost_answer_is_found_out(
    zk: ZooKeeper, through: Callable[..., ZooKeeper], proxy: ZooKeeperProxy, step: str
) -> None:
    session = through()
    me = enter(session, "me")
    if step == "claim":
        take(session, me, ONE)
        ownership_fence.commit(session, GROUP, OffsetWriter(session), take(session, me, TWO), {}, release=True)
        proxy.lose_answer_of()
        assert take(session, me, TWO)[TWO].version == 2
        assert consumers.owners(zk, [GROUP])[GROUP] == {ONE: f"{me}-0", TWO: f"{me}-0"}
    else:
        owned = take(session, me, ONE)
        commit(session, owned, p0=1)
        writer = OffsetWriter(session)
        writer.operations(GROUP, {ONE: committed.CommittedOffset(1)})
        proxy.lose_answer_of()
        assert ownership_fence.commit(session, GROUP, writer, owned, {ONE: 5}, release=step == "release") == set()
        assert stands(zk) == {ONE: 5}
        assert (zk.exists(paths.consumer_owner(GROUP, *ONE)) is None) == (step == "release")
    assert proxy.lost == 1


def test_a_claim_of_which_nothing_was_heard_is_our_own_when_it_is_asked_for_again(zk: ZooKeeper) -> None:
    me = enter(zk, "me")
    take(zk, me, ONE)  # as if nothing had come back
    assert take(zk, me, ONE)[ONE].version == 2
    assert consumers.owners(zk, [GROUP])[GROUP] == {ONE: f"{me}-0"}


def test_ids_are_never_used_twice(zk: ZooKeeper, connect: Callable[..., ZooKeeper]) -> None:
    me = enter(zk, "me")
    assert me.startswith("g_me-")
    with pytest.raises(NodeExists):
        consumers.register(connect(), GROUP, ConsumerEntry(me, {"clicks": 1}))
    consumers.unregister(zk, GROUP, me)
    consumers.unregister(zk, GROUP, me)
    assert consumers.members(zk, GROUP) == []


def test_without_zookeeper_nothing_is_said_to_be_written(
    through: Callable[..., ZooKeeper], proxy: ZooKeeperProxy
) -> None:
    session = through(operation_timeout_s=2.0)
    owned = take(session, enter(session, "me"), ONE)
    with proxy.silent(), pytest.raises(SessionLost):
        commit(session, owned, p0=1)


def test_many_partitions_take_more_than_one_multi(zk: ZooKeeper) -> None:
    topics.create(zk, "wide", {number: [1] for number in range(1500)}, {}, [])
    me = enter(zk, "me")
    wanted = {TopicPartition("wide", number): f"{me}-0" for number in range(1500)}
    owned = ownership_fence.claim(zk, GROUP, me, wanted, {})
    assert len(owned) == 1500
    assert ownership_fence.commit(zk, GROUP, OffsetWriter(zk), owned, dict.fromkeys(owned, 3)) == set()
    assert ownership_fence.commit(zk, GROUP, OffsetWriter(zk), owned, {}, release=True) == set()
    zk.create(paths.consumer_owner(GROUP, "wide", 1499), b"another-0", ephemeral=True)
    with pytest.raises(OwnershipConflict):
        ownership_fence.claim(zk, GROUP, me, wanted, {})
    zk.delete(paths.consumer_owner(GROUP, "wide", 1499))
    assert set(committed.read(zk, GROUP).values()) and consumers.owners(zk, [GROUP])[GROUP] == {}
