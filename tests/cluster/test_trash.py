"""Deleted topics: one keeps everything until it is purged, whatever dies meanwhile, and is restored with all it had.

A restored topic is led by a replica that has everything, and never begins empty (rule R1).
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klog.coordination import committed, topic_deletion, topics
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.topics import Deletion
from klog.errors import NoSuchThing, Refused, TopicAlreadyExists
from tests.broker_fixture import RunningBroker
from tests.cli.runner import act_rows, klog
from tests.cluster.load import produce, read
from tests.cluster_fixture import RunningCluster
from tests.zookeeper_fixture import session_of

pytestmark = pytest.mark.xdist_group("trash")

WITHIN_S = 30.0
DAY_MS = 86_400_000
PARTITION_UA = -1
"""librdkafka chooses one."""


@pytest.fixture(scope="module")
def shared(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Three brokers that the tests of this module share."""
    where = f"{zookeeper.address}/trash-{secrets.token_hex(4)}"
    running = RunningCluster(
        tmp_path_factory.mktemp("trash"), where, min__insync__replicas="2", unclean__restart__wait__ms="300"
    )
    with running.started():
        yield running


@pytest.fixture
def cluster(shared: RunningCluster) -> RunningCluster:
    """All of it runs."""
    shared.heal()
    return shared


def is_deleted(cluster: RunningCluster, topic: str) -> bool:
    """Whether its deletion waits, by ZooKeeper."""
    with session_of(cluster.zookeeper) as session:
        return topic in topics.deleted(session)


def topic_id(cluster: RunningCluster, topic: str) -> Any:
    with session_of(cluster.zookeeper) as session:
        found = topics.find(session, topic)
        return None if found is None else found.topic_id


def folders(broker: RunningBroker, topic: str) -> list[str]:
    """What is on a broker's disk of a topic."""
    return sorted(one.name for one in (broker.folder / "data").iterdir() if one.name.startswith(f"{topic}-"))


def send(bootstrap: str, topic: str, count: int, first: int = 0) -> list[bytes]:
    """Values that were acknowledged by all in-sync replicas, of any partition."""
    values = [b"%d" % number for number in range(first, first + count)]
    produce(bootstrap, topic, values, PARTITION_UA, **{"enable.idempotence": True})
    return values


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def contents(cluster: RunningCluster, topic: str) -> dict[int, list[bytes]]:
    """Every message that a consumer gets, by partition."""
    found = read(cluster.bootstrap, topic, len(cluster.partitions(topic)))
    return {number: [value for _, value in some] for number, some in found.items() if some}


def facts(at: list[str], topic: str) -> list[tuple[int, int, int]]:
    """Partition, start and end of each log as the leader has them."""
    rows = klog("topic", "describe", topic, "-o", "json", *at).rows
    return [(row["partition"], row["log_start_offset"], row["log_end_offset"]) for row in rows]


def topic_exists(at: list[str], topic: str) -> bool:
    return klog("topic", "list", topic, "-o", "json", *at).code == 0


def listed(at: list[str], topic: str) -> dict[str, Any]:
    """The row of a deleted topic."""
    (row,) = [one for one in klog("topic", "list", "--deleted", "-o", "json", *at).rows if one["topic"] == topic]
    return row


def delete(at: list[str], *names: str) -> None:
    assert klog("topic", "delete", *names, "--yes", *at).code == 0


def restore(at: list[str], topic: str) -> None:
    ran = klog("topic", "restore", topic, *at)
    assert ran.code == 0, ran.stderr


# --- What is kept ---


def test_a_restored_topic_has_what_it_had(cluster: RunningCluster, topic: str) -> None:
    """One broker is down at the deletion, another at the restore."""
    at, group = ["-B", cluster.bootstrap], f"g-{topic}"
    cluster.create(topic, 3, retention_ms="77000000")
    send(cluster.bootstrap, topic, 300)
    cluster.kill(1)
    cluster.wait_for_leader(topic, other_than=1)
    send(cluster.bootstrap, topic, 200, first=300)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (first_end, *_) = [end for _, _, end in facts(at, topic)]
    admin.delete_records([TopicPartition(topic, 0, first_end // 2)])[TopicPartition(topic, 0)].result(WITHIN_S)
    for one in (2, 3):  # a follower learns of it by its next fetch
        cluster.brokers[one].wait_for_log(f"{topic}-0", "DeleteRecords")
    commit(cluster.bootstrap, group, topic, first_end // 2 + 1)
    had, shown = contents(cluster, topic), facts(at, topic)
    count = sum(map(len, had.values()))
    before = topic_id(cluster, topic)
    delete(at, topic)

    assert is_deleted(cluster, topic)
    cluster.start(1)  # it serves nothing of it, and keeps its logs
    for one in cluster.brokers:
        assert not cluster.partitions(topic, one)
        assert len(folders(cluster.brokers[one], topic)) == 3
    row = listed(at, topic)
    assert (row["partitions"], row["messages"], row["act"]) == (
        3,
        count,
        act_rows(cluster.zookeeper, topic=topic)[-1]["act"],
    )
    assert row["bytes"] > 0 and row["deleted_at"] < row["until"]
    assert not topic_exists(at, topic)
    assert klog("lag", group, "-o", "json", *at).rows == []
    assert not [one for one in klog("status", "-o", "json", *at).rows if topic in str(one)]

    cluster.kill(2)
    (row,) = klog("topic", "restore", topic, "--dry-run", "-o", "json", *at).rows
    assert (row["messages"], row["groups"]) == (count, 1)
    assert is_deleted(cluster, topic)
    restore(at, topic)
    assert contents(cluster, topic) == had
    assert facts(at, topic) == shown
    settings = klog("topic", "config", topic, "-o", "json", *at).rows
    assert [one["value"] for one in settings if one["name"] == "retention.ms"] == ["77000000"]
    lags = klog("lag", group, "-o", "json", *at).rows
    assert [one["current_offset"] for one in lags if one["partition"] == 0] == [first_end // 2 + 1]
    assert act_rows(cluster.zookeeper, topic=topic)[-1]["kind"] == "topic-restore"

    more = send(cluster.bootstrap, topic, 30, first=500)
    cluster.start(2)
    cluster.wait_in_sync(topic)
    assert klog("topic", "verify", topic, *at).code == 0
    values = [value for values in contents(cluster, topic).values() for value in values]
    assert sorted(values) == sorted([*(value for values in had.values() for value in values), *more])
    assert topic_id(cluster, topic) == before


def test_retention_leaves_a_deleted_topic_alone(make_cluster: Callable[..., RunningCluster], topic: str) -> None:
    cluster = make_cluster(1, log__retention__check__interval__ms="100").start()
    at = ["-B", cluster.bootstrap]
    cluster.create(topic, factor=1, retention_ms="3600000", segment_bytes="4096")
    cluster.create(f"{topic}-2", factor=1, retention_bytes="4096", segment_bytes="4096")
    for name in (topic, f"{topic}-2"):
        for first in range(0, 2000, 500):
            send(cluster.bootstrap, name, 500, first=first)
    delete(at, topic)
    with session_of(cluster.zookeeper) as session:
        known = topics.find(session, topic)
        assert known is not None
        config = topics.configs(session, [topic])[topic]
        topics.set_config(session, known, replace(config, settings={**config.settings, "retention.ms": "1"}))
    cluster.stop(1)
    cluster.start(1)  # its logs have the setting now

    def has_run() -> bool:
        return klog("topic", "list", f"{topic}-2", "-o", "json", *at).rows[0]["messages"] not in (None, 2000)

    cluster.wait_until(has_run, "retention has run")
    assert listed(at, topic)["messages"] == 2000


# --- The name ---


def test_the_name_is_taken_until_the_purge(cluster: RunningCluster, topic: str) -> None:
    at = ["-B", cluster.bootstrap]
    cluster.create(topic, 2)
    sent = send(cluster.bootstrap, topic, 20)
    delete(at, topic)
    assert cluster.try_create(topic) == TopicAlreadyExists.wire
    for more in ([], ["--if-not-exists", "--timeout", "2s"]):
        refused = klog("topic", "create", topic, *more, *at, "-o", "json")
        assert (refused.code, refused.error["code"]) == (1, TopicAlreadyExists.code)
        assert f"klog topic restore {topic}" in refused.error["message"] and "--purge" in refused.error["message"]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 2000})
    failed: list[object] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(WITHIN_S)
    assert failed[0] is not None, "a topic is not created, nor restored, because a producer names it"
    del producer  # it would go on asking for the topic, and have it created as soon as the name is free
    assert is_deleted(cluster, topic)
    restore(at, topic)
    assert sorted(value for values in contents(cluster, topic).values() for value in values) == sorted(sent)

    delete(at, topic)
    assert klog("topic", "delete", topic, "--purge", "--yes", *at).code == 0  # one that is deleted already
    assert not is_deleted(cluster, topic)
    cluster.create(topic, 1)
    assert contents(cluster, topic) == {}
    assert klog("topic", "restore", topic, "-o", "json", *at).error["code"] == NoSuchThing.code


def test_a_client_of_kafka_deletes_a_topic_and_creates_it_at_once(cluster: RunningCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    cluster.create(topic, 2)
    first = topic_id(cluster, topic)
    for _ in range(2):
        send(cluster.bootstrap, topic, 20)
        admin.delete_topics([topic], operation_timeout=WITHIN_S)[topic].result(WITHIN_S)
        refused = admin.create_topics([NewTopic(topic, 1, 4)], operation_timeout=WITHIN_S)[topic]
        with pytest.raises(KafkaException):
            refused.result(WITHIN_S)
        assert is_deleted(cluster, topic), "what is not created purges nothing"
        admin.create_topics([NewTopic(topic, 1, 3)], operation_timeout=WITHIN_S, validate_only=True)
        admin.create_topics([NewTopic(topic, 1, 3)], operation_timeout=WITHIN_S)[topic].result(WITHIN_S)
        cluster.wait_in_sync(topic)
        assert contents(cluster, topic) == {}
    assert topic_id(cluster, topic) != first
    admin.delete_topics([topic], operation_timeout=WITHIN_S)[topic].result(WITHIN_S)
    restore(["-B", cluster.bootstrap], topic)  # as long as nobody creates it
    cluster.wait_in_sync(topic)


# --- Who comes back late ---


def test_a_broker_that_was_down_through_it_all(cluster: RunningCluster, topic: str) -> None:
    at = ["-B", cluster.bootstrap]
    kept, gone = f"{topic}-a", f"{topic}-b"
    for name in (kept, gone):
        cluster.create(name, 2)
        send(cluster.bootstrap, name, 50)
    had = contents(cluster, kept)
    cluster.kill(3)
    cluster.wait_for_leader(kept, other_than=3)
    delete(at, kept, gone)
    restore(at, kept)
    send(cluster.bootstrap, kept, 10, first=50)
    assert klog("topic", "delete", gone, "--purge", "--yes", *at).code == 0
    assert cluster.try_create(gone) == TopicAlreadyExists.wire, "a replica is still to be deleted"
    assert len(folders(cluster.brokers[3], gone)) == 2

    cluster.start(3)
    cluster.wait_in_sync(kept)
    found = contents(cluster, kept)
    assert {number: found[number][: len(values)] for number, values in had.items()} == had
    assert sum(map(len, found.values())) == 60
    cluster.wait_until(lambda: not any(folders(one, gone) for one in cluster.brokers.values()), "its logs are gone")
    cluster.create(gone, 1)
    assert contents(cluster, gone) == {}


def test_a_disk_that_was_offline_when_its_topic_was_deleted(
    make_cluster: Callable[..., RunningCluster], topic: str, tmp_path: Path
) -> None:
    cluster = make_cluster(1)
    disk, away = tmp_path / "disk", tmp_path / "away"
    broker = cluster.brokers[1]
    broker.extra_arguments += ["--dir", f"{broker.folder / 'data'},{disk}"]
    cluster.start()
    cluster.create(topic, 4, factor=1)
    send(cluster.bootstrap, topic, 400)
    at = ["-B", cluster.bootstrap]
    broker.stop()
    disk.rename(away)
    disk.write_text("no folder")
    cluster.start(1)
    delete(at, topic)
    assert listed(at, topic)["messages"] is None
    broker.stop()
    disk.unlink()
    away.rename(disk)
    cluster.start(1)
    assert listed(at, topic)["messages"] == 400
    restore(at, topic)
    cluster.wait_in_sync(topic)
    assert klog("topic", "list", topic, "-o", "json", *at).rows[0]["messages"] == 400


# --- Time ---


def test_a_deleted_topic_is_purged_in_time(make_cluster: Callable[..., RunningCluster], topic: str) -> None:
    cluster = make_cluster(1, klog__trash__retention__ms="3000").start()
    broker, at = cluster.brokers[1], ["-B", cluster.bootstrap]
    cluster.create(topic, factor=1)
    send(cluster.bootstrap, topic, 10)
    commit(cluster.bootstrap, f"g-{topic}", topic, 7)
    delete(at, topic)
    assert folders(broker, topic) == [f"{topic}-0"]
    cluster.kill(1)
    cluster.start()
    cluster.wait_until(lambda: not folders(broker, topic), "its logs are gone")
    cluster.wait_until(lambda: topic_id(cluster, topic) is None, "the name is free")
    assert klog("topic", "list", "--deleted", "-o", "json", *at).rows == []
    with session_of(cluster.zookeeper) as session:
        assert committed.read(session, f"g-{topic}") == {}
    cluster.wait_until(
        lambda: "topic-purged" in klog("events", "topic", topic, "-o", "jsonl", *at).stdout, "an event tells it"
    )

    broker.settings["klog.trash.retention.ms"] = "0"
    cluster.stop(1)
    cluster.start()
    cluster.create(topic, factor=1)
    delete(at, topic)
    assert topic_id(cluster, topic) is None
    cluster.wait_until(lambda: not folders(broker, topic), "it is deleted at once")


def test_a_deletion_is_undone_and_one_that_is_purged_is_not(cluster: RunningCluster, topic: str) -> None:
    at = ["-B", cluster.bootstrap]
    cluster.create(topic, 2)
    send(cluster.bootstrap, topic, 50)
    had = contents(cluster, topic)
    delete(at, topic)
    act = act_rows(cluster.zookeeper, topic=topic)[-1]["act"]
    (row,) = klog("undo", act, "--dry-run", "-o", "json", *at).rows
    assert (row["subject"], row["now"], row["then"]) == (f"topic {topic}", "false", "true")
    assert not topic_exists(at, topic)
    assert klog("undo", act, "--yes", *at).code == 0
    assert contents(cluster, topic) == had
    rows = act_rows(cluster.zookeeper, topic=topic)
    assert [one["undone_by"] for one in rows if one["act"] == act] == [rows[-1]["act"]]
    assert klog("undo", act, "--yes", *at).code == 1  # it is not deleted now

    assert klog("topic", "delete", topic, "--purge", "--yes", *at).code == 0
    assert topic_id(cluster, topic) is None
    assert klog("topic", "restore", topic, "-o", "json", *at).error["code"] == NoSuchThing.code
    rows = act_rows(cluster.zookeeper, topic=topic)
    assert [one["kind"] for one in rows[-2:]] == ["topic-delete", "topic-purge"]
    assert klog("undo", rows[-2]["act"], "--yes", "-o", "json", *at).error["code"] == Refused.code
    assert klog("undo", rows[-1]["act"], "--yes", "-o", "json", *at).error["code"] == Refused.code


# --- Kills ---


def test_whatever_is_killed_there_is_the_topic_or_the_deleted_topic(cluster: RunningCluster, topic: str) -> None:
    """All brokers die after each write that a controller makes."""
    at = ["-B", cluster.bootstrap]
    cluster.create(topic, 2)
    send(cluster.bootstrap, topic, 100)
    had, shown = contents(cluster, topic), facts(at, topic)

    cluster.kill(1, 2, 3)
    with session_of(cluster.zookeeper) as session:
        found = topics.find(session, topic)
        assert found is not None
        marked = replace(found, deletion=Deletion(DAY_MS, "act", is_name_kept=True))
        topics.replace_assignment(session, marked, ())
    cluster.start()
    assert all(not cluster.partitions(topic, one) for one in cluster.brokers)
    assert listed(at, topic)["messages"] == 100
    restore(at, topic)
    cluster.wait_in_sync(topic)
    assert contents(cluster, topic) == had
    assert facts(at, topic) == shown

    delete(at, topic)
    cluster.kill(1, 2, 3)
    with session_of(cluster.zookeeper) as session:
        topic_deletion.mark_for_deletion(session, topic)
    cluster.start()
    cluster.wait_until(lambda: topic_id(cluster, topic) is None, "the purge goes on")
    cluster.wait_until(lambda: not any(folders(one, topic) for one in cluster.brokers.values()), "its logs are gone")


@pytest.mark.long("each act and each kill is in a story above")
def test_any_order_of_acts_and_kills(cluster: RunningCluster, topic: str) -> None:
    """Against a model: the messages that the topic has, or None; whether it is deleted."""
    rng = random.Random(0)
    at = ["-B", cluster.bootstrap]
    has: list[bytes] | None = None
    deleted = False
    said = []
    for step in range(25):
        act = rng.choice(["create", "send", "send", "delete", "restore", "purge", "kill", "start"])
        said.append(act)
        if act == "kill" and len(cluster.running) == 3:
            cluster.kill(rng.choice(cluster.running))
            if has is not None and not deleted:
                cluster.wait_for_leader(topic)
        elif act == "start":
            cluster.start()
        elif act == "create" and not deleted and has is None:
            cluster.heal()
            cluster.create(topic, 1)
            has = []
        elif act == "create":
            assert cluster.try_create(topic) == TopicAlreadyExists.wire, said
        elif act == "send" and has is not None and not deleted:
            has += send(cluster.bootstrap, topic, 20, first=step * 100)
        elif act in ("delete", "restore"):
            ran = klog("topic", act, topic, *(["--yes"] if act == "delete" else []), *at)
            may = has is not None and deleted == (act == "restore")
            assert (ran.code == 0) == may, (said, ran.stderr)
            deleted = deleted if not may else act == "delete"
        elif act == "purge" and has is not None:
            cluster.heal()
            assert klog("topic", "delete", topic, "--purge", "--yes", *at).code == 0, said
            cluster.wait_until(lambda: topic_id(cluster, topic) is None, "it is gone")
            has, deleted = None, False
        assert is_deleted(cluster, topic) == deleted, said
    cluster.heal()
    if deleted:
        restore(at, topic)
    if has is not None:
        cluster.wait_in_sync(topic)
        assert contents(cluster, topic).get(0, []) == has, said
        assert klog("topic", "verify", topic, *at).code == 0
