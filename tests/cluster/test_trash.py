"""The trash of topics: a deleted topic waits there whole, whatever died meanwhile, and goes when its time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from klog.coordination import trash
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.trash import Entry
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import TopicAlreadyExists
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.cluster_fixture import RunningCluster

pytestmark = pytest.mark.xdist_group("trash")

WITHIN_S = 30.0


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Three brokers that the tests of this module share."""
    where = f"{zookeeper.address}/trash"
    running = RunningCluster(tmp_path_factory.mktemp("trash"), where, min__insync__replicas="2")
    try:
        yield running.start()
    finally:
        running.end()


def entries_of(address: str, topic: str) -> list[Entry]:
    with ZooKeeper(address) as session:
        session.start()
        return [one for one in trash.read_all(session) if one.name == topic]


def folders(broker: RunningBroker, topic: str) -> dict[str, Path]:
    """What is on a broker's disk of a topic: the name's ending -> the folder."""
    found = [one for one in (broker.folder / "data").iterdir() if one.name.startswith(f"{topic}-")]
    return {one.name.rpartition("-")[2]: one for one in found}


def send(bootstrap: str, topic: str, count: int, first: int = 0) -> list[bytes]:
    """Values that were acknowledged by all in-sync replicas."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    values = [b"%d" % number for number in range(first, first + count)]
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(WITHIN_S) == 0
    assert failed == []
    return values


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_a_deleted_topic_waits_whole_though_a_broker_was_down(cluster: RunningCluster, topic: str) -> None:
    cluster.heal()
    cluster.create(topic, 2)
    send(cluster.bootstrap, topic, 200)
    at = ["-B", cluster.bootstrap]
    commit(cluster.bootstrap, f"g-{topic}", topic, 7)
    cluster.kill(2)
    cluster.wait_for_leader(topic)
    deleted = klog("topic", "delete", topic, "--yes", *at)
    assert deleted.code == 0
    (entry,) = entries_of(cluster.zookeeper, topic)
    assert entry.state == trash.DELETING
    (row,) = [one for one in klog("topic", "trash", "-o", "json", *at).rows if one["topic"] == topic]
    assert (row["partitions"], row["until"]) == (2, None)
    assert (
        klog("topic", "create", topic, *at, "-o", "json").error["code"] == TopicAlreadyExists.code
    )  # the name is taken

    cluster.start()
    cluster.wait_until(lambda: entries_of(cluster.zookeeper, topic)[0].state == trash.WHOLE, "it is whole")
    for one in cluster.brokers.values():
        assert list(folders(one, topic)) == ["trash"], one.broker_id
    (row,) = [one for one in klog("topic", "trash", "-o", "json", *at).rows if one["topic"] == topic]
    assert (row["partitions"], row["messages"], row["state"]) == (2, 200, "whole")
    assert row["deleted_at"] < row["until"]
    assert row["act"] == klog("acts", "list", "--topic", topic, "-o", "json", *at).rows[-1]["act"]

    cluster.create(topic, 1)  # the name is free, and has nothing of before
    assert klog("topic", "list", topic, "-o", "json", *at).rows[0]["messages"] == 0
    klog("topic", "delete", topic, "--yes", *at)
    cluster.wait_until(lambda: [one.state for one in entries_of(cluster.zookeeper, topic)] == [trash.WHOLE] * 2, "both")


def test_the_trash_is_emptied_in_time(make_cluster: Callable[..., RunningCluster], topic: str) -> None:
    cluster = make_cluster(1, klog__trash__retention__ms="3000").start()
    broker, at = cluster.brokers[1], ["-B", cluster.bootstrap]
    cluster.create(topic, factor=1)
    send(cluster.bootstrap, topic, 10)
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    assert list(folders(broker, topic)) == ["trash"]
    cluster.kill(1)
    cluster.start()  # which leaves the folder alone
    assert list(folders(broker, topic)) == ["trash"]
    cluster.wait_until(lambda: not folders(broker, topic), "the folder is gone")
    assert entries_of(cluster.zookeeper, topic) == []
    assert klog("topic", "trash", "-o", "json", *at).rows == []
    cluster.wait_until(
        lambda: "topic-purged" in klog("events", "--topic", topic, "-o", "jsonl", *at).stdout, "an event tells it"
    )

    broker.settings["klog.trash.retention.ms"] = "0"
    cluster.stop(1)
    cluster.start()
    cluster.create(topic, factor=1)
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    assert entries_of(cluster.zookeeper, topic) == []
    cluster.wait_until(lambda: not folders(broker, topic), "it is deleted at once")
