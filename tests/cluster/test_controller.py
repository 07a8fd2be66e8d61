"""The controller: gone on with after its death at any moment, obeyed only by its own words, and not needed to go on."""

from __future__ import annotations

import random
import secrets
import threading
import time
from pathlib import Path
from typing import Any

from klog.coordination.embedded import ZooKeeperServer
from klog.errors import KlogError, SessionLost, StaleBrokerEpoch, StaleControllerEpoch, TimedOut
from klog.protocol.apis import ApiKey
from tests.chance import seed_of
from tests.cluster.load import judge, load, produce
from tests.cluster_fixture import RunningCluster
from tests.zookeeper_proxy import ZooKeeperProxy

FEW, MORE = 3, 4


def test_it_dies_at_any_moment_of_making_growing_and_deleting_topics(three: RunningCluster) -> None:
    """What was begun is finished by the next one: each topic is whole, or gone, and its name is free again."""
    chance, run = random.Random(seed_of("controller dies")), secrets.token_hex(4)
    kept, doomed = [f"kept-{run}-{n}" for n in range(4)], [f"doomed-{run}-{n}" for n in range(3)]
    for topic in doomed:
        three.create(topic, 2)

    victim = three.controller()

    def act() -> None:
        for number in range(4):
            for api, version, fields in (
                (ApiKey.CREATE_TOPICS, 5, _creation(kept[number], FEW)),
                (ApiKey.DELETE_TOPICS, 1, {"topic_names": [doomed[number % 3]], "timeout": 5000}),
                (ApiKey.CREATE_PARTITIONS, 0, _growth(kept[number], MORE)),
            ):
                try:
                    three.ask(_other(three, victim), api, version, **fields)
                except KlogError:
                    pass  # nobody to answer, for a moment: begun or not

    acting = threading.Thread(target=act)
    acting.start()
    time.sleep(chance.uniform(0.0, 0.4))
    three.kill(victim)
    acting.join()
    three.start(victim)
    for topic in kept:
        if not three.partitions(topic):
            three.create(topic, FEW)
        three.wait_in_sync(topic)
        assert len(three.partitions(topic)) in (FEW, MORE)
    for topic in doomed:
        three.ask(three.controller(), ApiKey.DELETE_TOPICS, 1, topic_names=[topic], timeout=5000)
        three.wait_until(lambda topic=topic: three.try_create(topic, 1) == 0, f"{topic} is free again")
    three.ask(three.controller(), ApiKey.DELETE_TOPICS, 1, topic_names=kept, timeout=5000)  # others share the brokers


def _other(cluster: RunningCluster, broker_id: int) -> int:
    return next(one for one in cluster.brokers if one != broker_id)


def _creation(topic: str, partitions: int) -> dict[str, Any]:
    one = {"name": topic, "num_partitions": partitions, "replication_factor": 3, "assignments": [], "configs": []}
    return {"topics": [one], "timeout": 5000, "validate_only": False}


def _growth(topic: str, partitions: int) -> dict[str, Any]:
    return {
        "topics": [{"name": topic, "count": partitions, "assignments": None}],
        "timeout": 5000,
        "validate_only": False,
    }


def test_an_earlier_controllers_word_and_words_for_another_incarnation_count_nothing(three: RunningCluster) -> None:
    """Each of its requests, with an epoch that is over, or for the broker as it was before its restart."""
    topic = three.create(f"fenced-{secrets.token_hex(4)}")
    leader = three.leader_of(topic)
    incarnation = three.ask(leader, ApiKey.DESCRIBE_SELF, 0).incarnation
    before = three.partitions(topic)[0]
    nonsense: dict[ApiKey, dict[str, Any]] = {
        ApiKey.LEADER_AND_ISR: {"controller_id": 9, "is_full": True, "topics": []},
        ApiKey.STOP_REPLICA: {"controller_id": 9, "topics": []},
        ApiKey.UPDATE_METADATA: {"controller_id": 9, "is_full": True, "brokers": [], "topics": [], "slots": []},
        ApiKey.DESCRIBE_REPLICAS: {},
    }
    for api, fields in nonsense.items():
        answer = three.ask_as_broker(leader, api, 0, controller_epoch=0, incarnation=incarnation, **fields)
        assert int(answer.error_code) == StaleControllerEpoch.wire, api
        answer = three.ask_as_broker(leader, api, 0, controller_epoch=1 << 30, incarnation=incarnation - 1, **fields)
        assert int(answer.error_code) == StaleBrokerEpoch.wire, api
    assert three.partitions(topic, leader)[0] == before
    produce(three.bootstrap, topic, [b"undisturbed"])


def test_without_zookeeper_what_is_in_sync_goes_on_and_changes_say_why_they_wait(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    proxy = ZooKeeperProxy(("127.0.0.1", zookeeper.port))
    chroot = f"/away-{secrets.token_hex(4)}"
    cluster = RunningCluster(tmp_path / "cluster", proxy.address + chroot, 3, min__insync__replicas="2")
    cluster.zookeeper = zookeeper.address + chroot  # the test itself goes around the proxy
    try:
        cluster.start()
        topic = cluster.create("t", 3)
        with proxy.silent():
            with load(cluster.bootstrap, topic, 3) as running:
                running.wait_for_more(60)
            judge(running, cluster.bootstrap)
            cluster.wait_until(lambda: create_error(cluster, "later") == SessionLost.wire, "it is said that they wait")
            assert create_error(cluster, "later") == SessionLost.wire, "also while the first one's outcome is not known"
            for one in cluster.brokers:
                cluster.wait_until_unregistered(one)  # their sessions have ended
        cluster.wait_until(lambda: create_error(cluster, "later") in (0, 36), "topics are made again")
        cluster.wait_in_sync("later")
    finally:
        cluster.end()
        proxy.close()


def create_error(cluster: RunningCluster, topic: str) -> int | None:
    """What is answered; None where that takes longer than anybody waits."""
    try:
        return cluster.try_create(topic, 1)
    except TimedOut:
        return None
