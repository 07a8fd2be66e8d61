"""Reassignments and elections on real brokers: data moves under load, and every step outlives whoever took it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.admin.quarantine import list_lost
from klog.coordination import reassignments, topics
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidRequest,
    NotController,
    ReassignmentInProgress,
    UnknownTopicOrPartition,
)
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from tests.chance import seed_of
from tests.cli.runner import klog
from tests.cluster.load import Load, judge, produce, read
from tests.cluster.replica_bytes import assert_identical, folder_of
from tests.cluster_fixture import LOOK_EVERY_S, RunningCluster
from tests.era_tools import ask_elections, ask_reassignments
from tests.tools.verbs import run
from tests.zookeeper_fixture import session_of

Replicas = tuple[int, ...] | None


def alter(cluster: RunningCluster, wanted: dict[TopicPartition, Replicas], throttle: int = 0) -> dict[str, int]:
    """Partition's name -> error code, asked of any broker."""
    answer = cluster.ask(
        cluster.answering[-1],
        ApiKey.ALTER_REASSIGNMENTS,
        0,
        throttle=throttle,
        topics=[
            {"name": one.topic, "partitions": [{"partition_index": one.partition, "replicas": ids}]}
            for one, ids in wanted.items()
        ],
    )
    assert answer.error_code.value == 0, answer
    return {f"{one.topic}-{one.partition_index}": int(one.error_code.value) for one in answer.outcomes}


def move(cluster: RunningCluster, topic: str, target: Replicas, partition: int = 0, throttle: int = 0) -> int:
    name = TopicPartition(topic, partition)
    return alter(cluster, {name: target}, throttle)[str(name)]


def underway(cluster: RunningCluster, topic: str) -> list[Any]:
    answer = cluster.ask(cluster.answering[0], ApiKey.DESCRIBE_REASSIGNMENTS, 0)
    while answer.error_code.value == NotController.wire:  # one is being elected
        time.sleep(LOOK_EVERY_S)
        answer = cluster.ask(cluster.answering[0], ApiKey.DESCRIBE_REASSIGNMENTS, 0)
    assert answer.error_code.value == 0, answer
    return [one for one in answer.reassignments if one.topic == topic]


def placed(cluster: RunningCluster, topic: str, partition: int = 0) -> tuple[int, ...]:
    return tuple(map(int, cluster.partitions(topic)[partition].replica_nodes))


def wait_done(cluster: RunningCluster, topic: str, target: tuple[int, ...], partition: int = 0) -> None:
    """Everybody knows of the target, all in sync, and the others have no folder any more."""

    def done() -> bool:
        for one in cluster.answering:
            found = cluster.partitions(topic, one).get(partition)
            if found is None or tuple(found.replica_nodes) != target or set(found.isr_nodes) != set(target):
                return False
        gone = [one for one in cluster.answering if one not in target]
        return not any(folder_of(cluster, one, topic, partition).exists() for one in gone)

    cluster.wait_until(done, f"{topic}-{partition} is on {target}")


@pytest.fixture
def session(three: RunningCluster) -> Iterator[ZooKeeper]:
    with session_of(three.zookeeper) as found:
        yield found


def test_a_partition_moves_under_load_and_nothing_is_lost(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2]])
    load = Load(three.bootstrap, topic)
    load.wait_for_more(50)
    assert move(three, topic, (3, 2)) == 0
    wait_done(three, topic, (3, 2))
    assert three.leader_of(topic) in (2, 3)
    load.wait_for_more(50)
    load.stop()
    judge(load, three.bootstrap)
    three.wait_in_sync(topic)
    assert_identical(three, topic)
    assert underway(three, topic) == []


def test_the_factor_grows_and_shrinks_and_the_order_changes(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1]], min_insync_replicas="1")
    produce(three.bootstrap, topic, [b"there"])
    for target in ((1, 2, 3), (3, 2, 1), (2,), (2, 3), (1,)):
        assert move(three, topic, target) == 0
        wait_done(three, topic, target)
    assert_identical(three, topic)


def test_what_cannot_be_is_refused_with_the_reason(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2]])
    for target in ((), (1, 1), (1, 9), (-1,)):
        assert move(three, topic, target) == InvalidReplicaAssignment.wire
    assert move(three, topic, (1,), partition=7) == UnknownTopicOrPartition.wire
    assert move(three, "no-such-topic", (1,)) == UnknownTopicOrPartition.wire
    assert move(three, topic, (1,), throttle=-5) == InvalidRequest.wire
    twice = three.ask(
        1,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "replicas": [3]}] * 2}],
    )
    assert {int(one.error_code.value) for one in twice.responses[0].partitions} == {InvalidRequest.wire}
    assert placed(three, topic) == (1, 2) and underway(three, topic) == []


def test_a_topic_whose_flushes_are_rare_gets_no_second_replica(three: RunningCluster, topic: str) -> None:
    """Its followers could not be told to be late (rule R4)."""
    three.create(topic, assignment=[[1]], min_insync_replicas="1", flush_messages="1000")
    assert move(three, topic, (1, 2)) == InvalidConfig.wire
    assert move(three, topic, (2,)) == 0
    wait_done(three, topic, (2,))


def test_0_8s_queue_is_heeded_and_emptied(three: RunningCluster, topic: str, session: ZooKeeper) -> None:
    three.create(topic, assignment=[[1, 2], [2, 3]])
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    wrong = TopicPartition("no-such-topic", 0)
    ask_reassignments(session, {here: [3, 1], there: [2, 3], wrong: [1]})
    wait_done(three, topic, (3, 1))
    three.wait_until(lambda: reassignments.reassignments(session) is None, "the queue is gone")
    ask_elections(session, [here])
    three.wait_until(lambda: three.leader_of(topic) == 3, "the preferred replica leads")
    three.wait_until(lambda: reassignments.elections(session) is None, "the queue is gone")


def test_controllers_die_at_any_moment_and_it_ends_where_it_should(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2]])
    chance = random.Random(seed_of("controllers die"))
    load = Load(three.bootstrap, topic)
    load.wait_for_more(30)
    for target in ((3, 1), (2, 3)):
        delay_s = chance.uniform(0, 0.2)
        print(f"to {target}, the controller dies after {delay_s:.3f} s")
        assert move(three, topic, target) == 0
        time.sleep(delay_s)  # into the middle of whatever it is doing
        three.kill(three.controller())
        three.start()
        wait_done(three, topic, target)
        load.wait_for_more(20)
    load.stop()
    judge(load, three.bootstrap)
    three.wait_in_sync(topic)
    assert_identical(three, topic)


def test_a_topic_grows_when_its_reassignment_is_over(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2]])
    produce(three.bootstrap, topic, [b"x" * 50_000] * 40)

    def grow() -> int:
        asked = [{"name": topic, "count": 2, "assignments": None}]
        answer = three.ask(1, ApiKey.CREATE_PARTITIONS, 1, topics=asked, timeout=10_000, validate_only=False)
        return int(answer.results[0].error_code.value)

    assert move(three, topic, (3, 2), throttle=50_000) == 0
    assert grow() == ReassignmentInProgress.wire
    assert move(three, topic, None) == 0
    wait_done(three, topic, (1, 2))
    assert grow() == 0
    three.wait_in_sync(topic)
    assert len(placed(three, topic, 1)) == 2


def test_a_topic_is_deleted_while_it_is_reassigned(three: RunningCluster, topic: str, session: ZooKeeper) -> None:
    three.create(topic, assignment=[[1, 2]])
    produce(three.bootstrap, topic, [b"x" * 50_000] * 40)
    assert move(three, topic, (3, 2), throttle=50_000) == 0
    assert klog("topic", "delete", topic, "--purge", "-y", "-B", three.bootstrap).code == 0
    three.wait_until(lambda: topics.find(session, topic) is None, "the topic is gone")
    folders: list[Path] = [folder_of(three, one, topic) for one in three.brokers]
    three.wait_until(lambda: not any(folder.exists() for folder in folders), "its folders are gone")
    assert underway(three, topic) == []


# --- Elections --------------------------------------------------------------------------------------------------------


def elect(cluster: RunningCluster, kind: int, topic: str | None, partition: int = 0) -> dict[tuple[str, int], int]:
    asked = None if topic is None else [{"topic": topic, "partitions": [partition]}]
    answer = cluster.ask(
        cluster.answering[-1], ApiKey.ELECT_LEADERS, 2, election_type=kind, topic_partitions=asked, timeout=10_000
    )
    assert answer.error_code.value == 0, answer
    return {
        (result.topic, int(one.partition_id)): int(one.error_code.value)
        for result in answer.replica_election_results
        for one in result.partition_result
    }


def test_an_unclean_election_only_where_nobody_leads(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2]], min_insync_replicas="1")
    produce(three.bootstrap, topic, [b"both"])
    assert elect(three, 1, topic) == {(topic, 0): ElectionNotNeeded.wire}
    three.kill(2)
    three.wait_until(lambda: three.isr_of(topic) == {1}, "2 is out of the ISR")
    produce(three.bootstrap, topic, [b"1 alone"])
    three.kill(1)
    three.wait_until(lambda: three.leader_of(topic) == -1, "nobody leads")
    assert elect(three, 1, topic) == {(topic, 0): EligibleLeadersNotAvailable.wire}
    three.start(2)
    assert three.leader_of(topic) == -1
    assert elect(three, 1, topic) == {(topic, 0): 0}
    three.wait_until(lambda: three.leader_of(topic) == 2, "2 leads, whatever it lacks")
    produce(three.bootstrap, topic, [b"2 alone"])
    three.start(1)
    three.wait_in_sync(topic)
    assert [value for _, value in read(three.bootstrap, topic)[0]] == [b"both", b"2 alone"]
    lost = [row for row in run(three.bootstrap, list_lost) if row.topic == topic]
    assert [(row.broker, row.messages) for row in lost] == [(1, 1)], "what 1 alone had is kept"
