"""Two brokers that both believe to coordinate a group (rule G1): the one that does not can commit nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from klog.coordination import group_slots
from klog.coordination.group_slots import slot_of
from klog.errors import KlogError
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from tests.cluster_fixture import RunningCluster
from tests.zookeeper_fixture import session_of

NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
SESSION_MS = 30_000
"""Longer than any of this takes: the member is not what ends."""


class Member:
    """The only member of a group, who speaks the protocol itself and so says to each broker what it likes."""

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.group = f"group-{secrets.token_hex(4)}"
        self.first_coordinator = self.coordinator()
        self.who: dict[str, Any] = {"member_id": ""}
        self.join(self.first_coordinator, b"first")

    def join(self, broker_id: int, metadata: bytes) -> None:
        """Join, or join again, which makes another generation where the metadata are others."""
        joined = self.ask(
            broker_id,
            ApiKey.JOIN_GROUP,
            3,
            session_timeout=SESSION_MS,
            rebalance_timeout=SESSION_MS,
            member_id=self.who["member_id"],
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": metadata}],
        )
        assert self.code(joined) == 0, joined
        self.who = {"generation_id": joined.generation_id, "member_id": joined.member_id}
        mine = [{"member_id": joined.member_id, "assignment": b"a"}]
        assert self.code(self.ask(broker_id, ApiKey.SYNC_GROUP, 2, assignments=mine, **self.who)) == 0

    def coordinator(self, by: int | None = None) -> int:
        asked = by or self.cluster.answering[0]
        return int(self.cluster.ask(asked, ApiKey.FIND_COORDINATOR, 1, key=self.group, key_type=0).node_id)

    def ask(self, broker_id: int, api: ApiKey, version: int, **fields: Any) -> Any:
        return self.cluster.ask(broker_id, api, version, group_id=self.group, **fields)

    @staticmethod
    def code(answer: Any) -> int:
        return int(answer.error_code.value)

    def commit_request(self, offset: int, **as_whom: Any) -> Any:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
        topics = [{"name": self.topic, "partitions": [partition]}]
        who = {**self.who, **as_whom}
        who["generation_id_or_member_epoch"] = who["generation_id"]
        return codec.request(ApiKey.OFFSET_COMMIT, 5, group_id=self.group, topics=topics, **who)

    def commit(self, broker_id: int, offset: int, **as_whom: Any) -> int:
        """The error code."""
        with self.cluster.channel(broker_id, timeout_s=40.0) as channel:
            return self.code(channel.request(self.commit_request(offset, **as_whom)).topics[0].partitions[0])

    def committed(self) -> int:
        """By what the coordinator of the moment says, as soon as one answers for the group."""
        wanted = [{"name": self.topic, "partition_indexes": [0]}]
        found: list[Any] = []

        def answers() -> bool:
            coordinator = self.coordinator()
            if coordinator >= 0:
                found.append(self.ask(coordinator, ApiKey.OFFSET_FETCH, 3, topics=wanted))
            return bool(found) and self.code(found[-1]) == 0

        self.cluster.wait_until(answers, "the coordinator says what is committed")
        return int(found[-1].topics[0].partitions[0].committed_offset)

    def wait_for_coordinator(self, *, other_than: int) -> int:
        def found() -> bool:
            said = {self.coordinator(one) for one in self.cluster.answering}
            return len(said) == 1 and not said & {-1, other_than}

        self.cluster.wait_until(found, "another coordinator")
        return self.coordinator()

    def wait_until_served(self, broker_id: int) -> None:
        """Until the coordinator knows the member: it is told a moment after the others may have been."""
        self.cluster.wait_until(
            lambda: self.code(self.ask(broker_id, ApiKey.HEARTBEAT, 2, **self.who)) == 0, "the member is known"
        )


@pytest.fixture
def member(three: RunningCluster, topic: str) -> Iterator[Member]:
    three.create(topic)
    yield Member(three, topic)
    three.heal()


def test_a_coordinator_that_hung_commits_nothing_when_it_wakes(three: RunningCluster, member: Member) -> None:
    """A commit lies in its socket, of a member and a generation that are the group's to this moment.

    It is given slots again when it has registered anew, and none as the incarnation that it was.
    """
    old = member.first_coordinator
    incarnation = int(three.ask(old, ApiKey.DESCRIBE_SELF, 0).incarnation)
    assert member.commit(old, 10) == 0
    with three.channel(old, timeout_s=40.0) as channel, ThreadPoolExecutor(1) as pool:
        channel.request(member.commit_request(11))
        three.pause(old)
        late = pool.submit(channel.request, member.commit_request(99))
        new = member.wait_for_coordinator(other_than=old)
        member.wait_until_served(new)
        assert member.committed() == 11
        assert member.commit(new, 50) == 0
        three.cont(old)
        try:
            code = member.code(late.result().topics[0].partitions[0])
        except KlogError:
            code = NOT_COORDINATOR  # the connection was closed: it was not acknowledged either
    assert code != 0, "it was acknowledged by a broker that does not coordinate the group"
    assert member.committed() == 50
    with session_of(three.zookeeper) as zookeeper:
        three.wait_until(
            lambda: old in {one.broker_id for one in group_slots.read_all(zookeeper).values()}, "it holds slots again"
        )
        assert incarnation not in {one.incarnation for one in group_slots.read_all(zookeeper).values()}
    assert member.committed() == 50


def test_a_coordinator_that_has_not_been_told_of_the_next_commits_nothing(
    three: RunningCluster, member: Member
) -> None:
    """It lives, its session too, and the controller's word has not come: the slot's version alone refuses it."""
    old, slot = member.first_coordinator, slot_of(member.group)
    first = member.who["generation_id"]
    assert member.commit(old, 10) == 0
    member.join(old, b"another mind")
    assert member.who["generation_id"] == first + 1

    def refuses(broker_id: int) -> None:
        """Commits of an earlier generation and of strangers, as every coordinator does."""
        assert member.commit(broker_id, 99, generation_id=first) == ILLEGAL_GENERATION
        assert member.commit(broker_id, 99, member_id="stranger") == UNKNOWN_MEMBER_ID
        assert member.commit(broker_id, 99, member_id="", generation_id=-1) == UNKNOWN_MEMBER_ID
        assert member.committed() == 10

    refuses(old)
    with session_of(three.zookeeper) as zookeeper:
        held = group_slots.read_all(zookeeper)[slot]
        other = next(one for one in group_slots.read_all(zookeeper).values() if one.broker_id != old)
        next_holder = replace(held, broker_id=other.broker_id, incarnation=other.incarnation, term=held.term + 1)
        group_slots.write_many(zookeeper, [next_holder], [])
    assert member.coordinator(old) == old, "it does believe"
    assert member.commit(old, 99) == NOT_COORDINATOR
    assert member.committed() == 10

    # The controller has not written that, and finds it when the slot is to be given to another. The member is what it
    # was, in its generation (rule G2).
    three.kill(old)
    new = member.wait_for_coordinator(other_than=old)
    member.wait_until_served(new)
    refuses(new)
    assert member.commit(new, 20) == 0
    assert member.committed() == 20
