"""The cluster's own story in ``klog.events``: told by several brokers while leaders, of it too, are killed."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from klog.protocol.apis import ApiKey
from klog.server.events import LOOK_AGAIN_S, SETTINGS, SETTLE_S, TOPIC
from tests.cli.process import started
from tests.cli.runner import klog
from tests.cluster.load import produce, read
from tests.cluster_fixture import RunningCluster

Story = list[dict[str, Any]]


def story(cluster: RunningCluster) -> Story:
    """Everything in the topic; nothing while there is none."""
    if cluster.leader_of(TOPIC) < 0:
        return []
    return [json.loads(value) for _, value in read(cluster.bootstrap, TOPIC, timeout_s=5)[0]]


def wait_for(cluster: RunningCluster, kind: str, **facts: Any) -> Story:
    """Until the story has such an event; the story."""
    found: Story = []

    def is_told() -> bool:
        try:
            found[:] = story(cluster)
        except KafkaException:  # its leader is being replaced: the brokers' logs say more than a time-out
            return False
        return any(event["kind"] == kind and facts.items() <= event.items() for event in found)

    cluster.wait_until(is_told, f"{kind} {facts} is told", 60)
    return found


def check(found: Story) -> None:
    """Nothing is told twice, and each broker tells in order."""
    times: dict[int, str] = {}
    for event in found:
        assert event["ts"] >= times.get(event["broker"], ""), found
        times[event["broker"]] = event["ts"]
    twice = [text for text, count in Counter(json.dumps(event) for event in found).items() if count > 1]
    assert not twice, twice


def test_a_leader_that_dies_and_comes_back(make_cluster: Callable[..., RunningCluster]) -> None:
    """Told by those that live; the story has its settings, is followed, and tells of a controller that stops."""
    cluster = make_cluster(3).start()
    cluster.create("t", assignment=[[1, 2, 3]])
    wait_for(cluster, "topic-created", topic=TOPIC, partitions=1)
    wait_for(cluster, "leader-elected", topic="t", partition=0, leader=1, old_leader=-1)

    cluster.kill(1)
    wait_for(cluster, "broker-down", id=1)
    found = wait_for(cluster, "leader-elected", topic="t", leader=cluster.wait_for_leader("t", other_than=1))
    assert [event for event in found if event.get("old_leader") == 1]

    cluster.start(1)
    cluster.wait_in_sync("t")
    wait_for(cluster, "broker-up", id=1)
    found = wait_for(cluster, "isr-expanded", topic="t", partition=0)
    (grown,) = [event for event in found if event["kind"] == "isr-expanded" and event["topic"] == "t"]
    assert (sorted(grown["isr"]), sorted(grown["old_isr"])) == ([1, 2, 3], [2, 3])
    check(found)

    tailed = klog("tail", TOPIC, "-o", "start", "-e", "-B", cluster.bootstrap)
    assert tailed.code == 0, tailed
    assert [json.loads(line) for line in tailed.stdout.splitlines()][: len(found)] == found

    def events(*words: str) -> list[dict[str, Any]]:
        ran = klog("events", *words, "-o", "jsonl", "-B", cluster.bootstrap)
        assert ran.code == 0, ran
        return [json.loads(line) for line in ran.stdout.splitlines()]

    assert events("--since", "start")[: len(found)] == found
    assert events("partition", "t-0") == [
        event for event in found if event.get("topic") == "t" and event.get("partition") == 0
    ]
    assert {event["kind"] for event in events("--kind", "broker-up", "--kind", "broker-down")} == {
        "broker-up",
        "broker-down",
    }
    assert events("--since", "end") == []

    # The topic's settings; and it is followed.
    resource = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}
    answer = cluster.ask(1, ApiKey.DESCRIBE_CONFIGS, 1, resources=[resource], include_synonyms=False)
    settings = {one.name: one.value for one in answer.results[0].configs}
    assert {name: settings[name] for name in SETTINGS} == SETTINGS
    words = ["events", "--follow", "--kind", "topic-created", "-B", cluster.bootstrap, "--since", "start"]
    with started(*words) as following:
        assert following.stdout is not None
        assert {json.loads(following.stdout.readline())["topic"] for _ in range(2)} == {"t", TOPIC}
        cluster.create("later", factor=2)
        assert json.loads(following.stdout.readline())["topic"] == "later"
        following.send_signal(signal.SIGINT)
        assert following.wait(20) in (0, 130)

    # A controller that is asked to stop has shut down.
    controller = cluster.controller()
    assert klog("broker", "stop", controller, "-B", cluster.bootstrap).code == 0
    cluster.wait_until_unregistered(controller)
    down = [one for one in wait_for(cluster, "broker-down", id=controller) if one["kind"] == "broker-down"][-1]
    assert down["reason"].startswith("it shut down")
    wait_for(cluster, "act", what="broker-stop", id=controller)
    told = klog("events", "broker", controller, "--kind", "broker-down", "-B", cluster.bootstrap)
    assert f"broker {controller} stopped" in told.stdout and "broker-stop by klog@" in told.stdout, told


@pytest.mark.long("a leader that dies is a story of its own: above")
def test_what_is_told_while_its_own_leader_dies_is_told_once(make_cluster: Callable[..., RunningCluster]) -> None:
    cluster = make_cluster(3).start()
    wait_for(cluster, "topic-created", topic=TOPIC)
    cluster.wait_in_sync(TOPIC)
    made = []
    for round in range(2):
        victim = cluster.leader_of(TOPIC)
        for number in range(10):
            made.append(cluster_topic := f"t{round}-{number}")
            assert cluster.try_create(cluster_topic, 1, 1) == 0
            if number == 5:
                if victim == cluster.controller():  # killed, it would not tell what it has not told yet
                    assert cluster.stop(victim) == 0
                else:
                    cluster.kill(victim)
                cluster.wait_for_leader(TOPIC, other_than=victim)
        cluster.start()
        cluster.wait_in_sync(TOPIC)
    found = wait_for(cluster, "topic-created", topic=made[-1])
    assert [event["topic"] for event in found if event["kind"] == "topic-created" and event["topic"] != TOPIC] == made
    check(found)


def test_a_cluster_that_is_to_keep_no_story(make_cluster: Callable[..., RunningCluster]) -> None:
    cluster = make_cluster(1, klog__events__enable="false").start()
    cluster.create("t", factor=1)
    time.sleep(SETTLE_S + 2 * LOOK_AGAIN_S)  # by when it would be there
    assert {topic.name for topic in cluster.metadata().topics} == {"t"}


@pytest.mark.long("a leader that dies is a story of its own: above")
def test_what_is_lost_and_what_is_moved(make_cluster: Callable[..., RunningCluster]) -> None:
    cluster = make_cluster(3, zookeeper__session__timeout__ms="20000").start()
    wait_for(cluster, "topic-created", topic=TOPIC)
    follower, other = (2, 3) if cluster.leader_of(TOPIC) != 2 else (3, 2)  # the story is read while it is paused
    cluster.create("t", assignment=[[1, follower]], unclean_leader_election_enable="true")
    wait_for(cluster, "leader-elected", topic="t", leader=1)

    cluster.pause(follower)
    produce(cluster.bootstrap, "t", [b"for whom broker 1 does not wait long"])
    wait_for(cluster, "isr-shrunk", topic="t", leader=1, isr=[1])
    cluster.cont(follower)
    wait_for(cluster, "isr-expanded", topic="t", leader=1, old_isr=[1])

    cluster.kill(follower)
    cluster.wait_until(lambda: cluster.isr_of("t") == {1}, f"broker {follower} is out of sync")
    produce(cluster.bootstrap, "t", [b"nobody else has it"] * 10)
    cluster.kill(1)
    wait_for(cluster, "partition-offline", topic="t", partition=0)
    cluster.start(follower)
    wait_for(cluster, "unclean-election", topic="t", partition=0, leader=follower, old_leader=-1)
    cluster.start(1)
    cluster.wait_in_sync("t")
    found = wait_for(cluster, "messages-lost", topic="t", partition=0, leader=follower, broker=1)
    (lost,) = [event for event in found if event["kind"] == "messages-lost"]
    assert lost["cut_at"] < lost["ended_at"]
    assert lost["files"]
    assert all((cluster.brokers[1].folder / "data" / "t-0" / name).exists() for name in lost["files"])

    moved = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [follower, other]}]}]
    answer = cluster.ask(cluster.controller(), ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=moved, timeout_ms=9000)
    assert answer.responses[0].partitions[0].error_code.value == 0
    wait_for(cluster, "reassignment-begun", topic="t", partition=0, target=[follower, other])
    check(wait_for(cluster, "reassignment-done", topic="t", partition=0, replicas=[follower, other]))
