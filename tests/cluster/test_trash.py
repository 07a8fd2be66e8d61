"""The trash of topics: a deleted topic waits there whole, whatever died meanwhile, and goes when its time is over.

What comes back is led by a replica that has everything, and never begins empty (rule R1).
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from klog.coordination import paths, topic_restore, topics, trash
from klog.coordination.acts import Actor
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.trash import Entry
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError, NoSuchThing, Refused, TopicAlreadyExists
from klog.protocol.apis import ApiKey
from tests.broker_fixture import RunningBroker
from tests.cli.runner import act_rows, klog
from tests.cluster_fixture import RunningCluster

pytestmark = pytest.mark.xdist_group("trash")

WITHIN_S = 30.0


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Three brokers that the tests of this module share."""
    where = f"{zookeeper.address}/trash"
    running = RunningCluster(
        tmp_path_factory.mktemp("trash"), where, min__insync__replicas="2", unclean__restart__wait__ms="300"
    )
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
    (row,) = [one for one in klog("topic", "list", "--deleted", "-o", "json", *at).rows if one["topic"] == topic]
    assert (row["partitions"], row["until"]) == (2, None)
    assert (
        klog("topic", "create", topic, *at, "-o", "json").error["code"] == TopicAlreadyExists.code
    )  # the name is taken

    cluster.start()
    cluster.wait_until(lambda: entries_of(cluster.zookeeper, topic)[0].state == trash.WHOLE, "it is whole")
    for one in cluster.brokers.values():
        assert list(folders(one, topic)) == ["trash"], one.broker_id
    (row,) = [one for one in klog("topic", "list", "--deleted", "-o", "json", *at).rows if one["topic"] == topic]
    assert (row["partitions"], row["messages"], row["state"]) == (2, 200, "whole")
    assert row["deleted_at"] < row["until"]
    assert row["act"] == act_rows(cluster.zookeeper, topic=topic)[-1]["act"]

    cluster.create(topic, 1)  # the name is free, and has nothing of before
    assert klog("topic", "list", topic, "-o", "json", *at).rows[0]["messages"] == 0
    klog("topic", "delete", topic, "--yes", *at)
    cluster.wait_until(lambda: [one.state for one in entries_of(cluster.zookeeper, topic)] == [trash.WHOLE] * 2, "both")


@pytest.mark.long("test_a_deletion_is_undone_and_one_that_is_purged_is_not")
def test_a_restore_waits_for_the_end_of_the_deletion(cluster: RunningCluster, topic: str) -> None:
    """A broker that is alive is late with its part: nothing is in the way but a moment."""
    cluster.heal()
    controller = cluster.controller()
    late = next(one for one in cluster.brokers if one != controller)
    cluster.create(topic, 2)
    sent = send(cluster.bootstrap, topic, 20)
    command = [sys.executable, "-m", "klog", "topic", "restore", topic, "-B", cluster.brokers[controller].bootstrap]
    cluster.pause(late)
    try:
        admin = AdminClient({"bootstrap.servers": cluster.brokers[controller].bootstrap})
        deleted = admin.delete_topics([topic], operation_timeout=WITHIN_S)[topic]
        cluster.wait_until(lambda: entries_of(cluster.zookeeper, topic), "the deletion has begun")
        restoring = subprocess.Popen(command)
        with pytest.raises(subprocess.TimeoutExpired):
            restoring.wait(2)
    finally:
        cluster.cont(late)
    deleted.result(WITHIN_S)
    assert restoring.wait(WITHIN_S) == 0
    cluster.wait_in_sync(topic)
    assert sorted(value for listed in contents(cluster.bootstrap, topic).values() for value in listed) == sorted(sent)


@pytest.mark.long("test_a_deleted_topic_waits_whole_though_a_broker_was_down")
@pytest.mark.parametrize("is_restored", [False, True])
def test_a_disk_that_was_offline_when_its_topic_was_deleted(
    make_cluster: Callable[..., RunningCluster], topic: str, tmp_path: Path, is_restored: bool
) -> None:
    """Its logs wait in the trash like others once it is back, or are served, if the topic came back before."""
    brokers = 2 if is_restored else 1
    cluster = make_cluster(brokers)
    disk, away = tmp_path / "disk", tmp_path / "away"
    broker = cluster.brokers[1]
    broker.extra_arguments += ["--dir", f"{broker.folder / 'data'},{disk}"]
    cluster.start()
    cluster.create(topic, 4, factor=brokers)
    send(cluster.bootstrap, topic, 400)
    at = ["-B", cluster.bootstrap]

    def on_disk() -> list[str]:
        return sorted(one.name for one in disk.iterdir() if one.name.startswith(f"{topic}-"))

    there = on_disk()
    assert len(there) == 2, "the log dirs share the partitions"
    broker.stop()
    disk.rename(away)
    disk.write_text("no folder")
    cluster.start(1)
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    cluster.wait_until(lambda: entries_of(cluster.zookeeper, topic)[0].state == trash.WHOLE, "the topic is deleted")
    if is_restored:
        assert klog("topic", "restore", topic, *at).code == 0

    broker.stop()
    disk.unlink()
    away.rename(disk)
    cluster.start(1)
    if not is_restored:
        now = on_disk()
        assert [one.partition(".")[0] for one in now] == there and all(one.endswith("-trash") for one in now)
        assert klog("topic", "restore", topic, *at).code == 0
    cluster.wait_in_sync(topic)
    assert klog("topic", "list", topic, "-o", "json", *at).rows[0]["messages"] == 400
    assert klog("topic", "verify", topic, *at).code == 0
    assert on_disk() == there


def test_the_trash_is_emptied_in_time(make_cluster: Callable[..., RunningCluster], topic: str) -> None:
    cluster = make_cluster(1, klog__trash__retention__ms="3000").start()
    broker, at = cluster.brokers[1], ["-B", cluster.bootstrap]
    cluster.create(topic, factor=1)
    send(cluster.bootstrap, topic, 10)
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    assert list(folders(broker, topic)) == ["trash"]
    cluster.kill(1)
    assert list(folders(broker, topic)) == ["trash"]
    cluster.start()  # which leaves the folder alone
    cluster.wait_until(lambda: not folders(broker, topic), "the folder is gone")
    assert entries_of(cluster.zookeeper, topic) == []
    assert klog("topic", "list", "--deleted", "-o", "json", *at).rows == []
    cluster.wait_until(
        lambda: "topic-purged" in klog("events", "--topic", topic, "-o", "jsonl", *at).stdout, "an event tells it"
    )
    cluster.create(topic, factor=1)
    assert klog("topic", "delete", topic, "--purge", "--yes", *at).code == 0
    cluster.wait_until(lambda: not folders(broker, topic), "the folder of the purged one is gone, too")

    broker.settings["klog.trash.retention.ms"] = "0"
    cluster.stop(1)
    cluster.start()
    cluster.create(topic, factor=1)
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    assert entries_of(cluster.zookeeper, topic) == []
    cluster.wait_until(lambda: not folders(broker, topic), "it is deleted at once")


# --- Restore ---


def contents(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    """Every message that a consumer gets, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": secrets.token_hex(4),
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: dict[int, list[bytes]] = {}
    try:
        partitions = consumer.list_topics(topic, WITHIN_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(WITHIN_S)
            assert message is not None
            if message.error() is None:
                found.setdefault(message.partition(), []).append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    finally:
        consumer.close()
    return found


def facts(at: list[str], topic: str) -> list[tuple[int, int, int]]:
    """Partition, start and end of each log as the leader has them."""
    rows = klog("topic", "describe", topic, "-o", "json", *at).rows
    return [(row["partition"], row["log_start_offset"], row["log_end_offset"]) for row in rows]


def epochs(cluster: RunningCluster, topic: str) -> list[int]:
    return [int(one.leader_epoch) for _, one in sorted(cluster.partitions(topic).items())]


def topic_exists(at: list[str], topic: str) -> bool:
    return klog("topic", "list", topic, "-o", "json", *at).code == 0


def whole(cluster: RunningCluster, topic: str) -> Entry:
    """The newest entry of the name, once it is whole."""
    cluster.wait_until(lambda: entries_of(cluster.zookeeper, topic)[-1].state == trash.WHOLE, "it is whole")
    return entries_of(cluster.zookeeper, topic)[-1]


@pytest.mark.long("unsteady: tests/unsteady.md; other restores are below")
def test_a_restored_topic_has_what_it_had(cluster: RunningCluster, topic: str) -> None:
    """One broker is down at the deletion, another at the restore."""
    cluster.heal()
    at, group = ["-B", cluster.bootstrap], f"g-{topic}"
    cluster.create(topic, 3, retention_ms="77000000")
    send(cluster.bootstrap, topic, 300)
    cluster.kill(1)
    cluster.wait_for_leader(topic, other_than=1)
    send(cluster.bootstrap, topic, 200, first=300)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (first_end, *_) = [end for _, _, end in facts(at, topic)]
    admin.delete_records([TopicPartition(topic, 0, first_end // 2)])[TopicPartition(topic, 0)].result(WITHIN_S)
    commit(cluster.bootstrap, group, topic, first_end // 2 + 1)
    had, shown, before = contents(cluster.bootstrap, topic), facts(at, topic), epochs(cluster, topic)
    assert shown[0][1] == first_end // 2
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    refused = klog("topic", "restore", topic, *at, "-o", "json")
    assert (refused.code, refused.error["code"]) == (1, Refused.code)  # broker 1 still has it
    cluster.start(1)
    whole(cluster, topic)

    cluster.kill(2)
    (row,) = klog("topic", "restore", topic, "--dry-run", "-o", "json", *at).rows
    assert (row["messages"], row["groups"]) == (sum(map(len, had.values())), 1)
    assert not topic_exists(at, topic)
    (row,) = klog("topic", "restore", topic, "-o", "json", *at).rows
    assert (row["topic"], row["partitions"], row["groups"]) == (topic, 3, 1)
    assert contents(cluster.bootstrap, topic) == had
    assert facts(at, topic) == shown
    assert all(now > then for now, then in zip(epochs(cluster, topic), before, strict=True))
    settings = klog("topic", "config", topic, "-o", "json", *at).rows
    assert [one["value"] for one in settings if one["name"] == "retention.ms"] == ["77000000"]
    lags = klog("lag", group, "-o", "json", *at).rows
    assert [one["current_offset"] for one in lags if one["partition"] == 0] == [first_end // 2 + 1]
    kinds = [one["kind"] for one in act_rows(cluster.zookeeper, topic=topic)]
    assert kinds[-1] == "topic-restore"

    more = send(cluster.bootstrap, topic, 30, first=500)
    cluster.start(2)
    cluster.wait_in_sync(topic)
    assert klog("topic", "verify", topic, *at).code == 0
    values = [value for values in contents(cluster.bootstrap, topic).values() for value in values]
    assert sorted(values) == sorted([*(value for values in had.values() for value in values), *more])
    cluster.wait_until(lambda: entries_of(cluster.zookeeper, topic) == [], "its entry is gone")
    assert not [one for broker in cluster.brokers.values() for one in folders(broker, topic) if one == "trash"]


def test_a_name_that_is_taken_needs_another(cluster: RunningCluster, topic: str) -> None:
    cluster.heal()
    at = ["-B", cluster.bootstrap]
    cluster.create(topic, 2)
    send(cluster.bootstrap, topic, 40)
    had = contents(cluster.bootstrap, topic)
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    cluster.create(topic, 1)
    send(cluster.bootstrap, topic, 3)
    refused = klog("topic", "restore", topic, *at, "-o", "json")
    assert (refused.code, refused.error["code"]) == (1, TopicAlreadyExists.code)
    assert "--as" in refused.error["hint"]
    other = f"back-{topic}"
    assert klog("topic", "restore", topic, "--as", other, *at).code == 0
    assert contents(cluster.bootstrap, other) == had
    assert len(contents(cluster.bootstrap, topic)[0]) == 3
    cluster.wait_in_sync(other)

    assert klog("topic", "delete", topic, other, "--yes", *at).code == 0  # each with its own id, and back again
    ids = {row["topic"]: row["id"] for row in klog("topic", "list", "--deleted", "-o", "json", *at).rows}
    assert klog("topic", "restore", other, "--id", ids[other], *at).code == 0
    assert contents(cluster.bootstrap, other) == had
    assert klog("topic", "restore", other, "-o", "json", *at).code == 1
    assert klog("topic", "restore", topic, "--id", ids[other], *at).code == 1


def test_a_restore_goes_on_whatever_is_killed(cluster: RunningCluster, topic: str) -> None:
    """The steps before the kill are those that a controller has made when all brokers die."""
    cluster.heal()
    at = ["-B", cluster.bootstrap]
    cluster.create(topic, 2)
    send(cluster.bootstrap, topic, 100)
    had, shown = contents(cluster.bootstrap, topic), facts(at, topic)
    for steps in range(2):
        assert klog("topic", "delete", topic, "--yes", *at).code == 0
        entry = whole(cluster, topic)
        cluster.kill(1, 2, 3)
        with ZooKeeper(cluster.zookeeper) as session:
            session.start()
            topic_restore.begin(session, entry, topic, Actor("killed", ""), ())
            registered = topics.find(session, topic)
            assert registered is not None
            if steps:  # as if only the first batch of states had been written
                topic_restore.fill(session, registered, (), 1)
                session.delete(paths.partition_state(topic, 1))
        cluster.start()
        cluster.wait_until(lambda: topic_exists(at, topic), "it is back")
        cluster.wait_in_sync(topic)
        assert contents(cluster.bootstrap, topic) == had, steps
        assert facts(at, topic) == shown
        last = act_rows(cluster.zookeeper, topic=topic)[-1]
        assert (last["kind"], last["client"]) == ("topic-restore", "killed")
        cluster.wait_until(lambda: entries_of(cluster.zookeeper, topic) == [], "its entry is gone")


@pytest.mark.long("test_a_restore_goes_on_whatever_is_killed")
def test_a_controller_that_is_killed_while_it_restores(cluster: RunningCluster, topic: str) -> None:
    cluster.heal()
    at = ["-B", cluster.bootstrap]
    cluster.create(topic, 4)
    send(cluster.bootstrap, topic, 100)
    had, shown = contents(cluster.bootstrap, topic), facts(at, topic)
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    entry = whole(cluster, topic)
    doomed = cluster.controller()
    ask = threading.Thread(target=ask_for, args=(cluster, doomed, entry, topic))
    ask.start()
    ask.join(0.05)
    cluster.kill(doomed)
    ask.join(WITHIN_S)
    cluster.wait_until(lambda: cluster.controller() not in (-1, doomed), "another controller")
    if not topic_exists(at, topic):
        klog("topic", "restore", topic, *at)  # it had not begun, or the other controller finishes it
    cluster.wait_until(lambda: topic_exists(at, topic), "it is back")
    cluster.start()
    cluster.wait_in_sync(topic)
    assert contents(cluster.bootstrap, topic) == had
    assert facts(at, topic) == shown


def test_a_deletion_is_undone_and_one_that_is_purged_is_not(cluster: RunningCluster, topic: str) -> None:
    cluster.heal()
    at = ["-B", cluster.bootstrap]
    cluster.create(topic, 2)
    send(cluster.bootstrap, topic, 50)
    had = contents(cluster.bootstrap, topic)
    assert klog("topic", "delete", topic, "--yes", *at).code == 0
    act = act_rows(cluster.zookeeper, topic=topic)[-1]["act"]
    (row,) = klog("undo", act, "--dry-run", "-o", "json", *at).rows
    assert (row["subject"], row["now"], row["then"]) == (f"topic {topic}", "false", "true")
    assert not topic_exists(at, topic)
    assert klog("undo", act, "--yes", *at).code == 0
    assert contents(cluster.bootstrap, topic) == had
    rows = act_rows(cluster.zookeeper, topic=topic)
    assert [one["undone_by"] for one in rows if one["act"] == act] == [rows[-1]["act"]]
    assert klog("undo", act, "--yes", *at).code == 1  # it is not in the trash now

    assert klog("topic", "delete", topic, "--purge", "--yes", *at).code == 0
    assert entries_of(cluster.zookeeper, topic) == []
    assert klog("topic", "restore", topic, "-o", "json", *at).error["code"] == NoSuchThing.code
    rows = act_rows(cluster.zookeeper, topic=topic)
    assert [one["kind"] for one in rows[-2:]] == ["topic-delete", "topic-purge"]
    assert klog("undo", rows[-2]["act"], "--yes", "-o", "json", *at).error["code"] == Refused.code
    assert klog("undo", rows[-1]["act"], "--yes", "-o", "json", *at).error["code"] == Refused.code


def ask_for(cluster: RunningCluster, broker_id: int, entry: Entry, name: str) -> None:
    with contextlib.suppress(KlogError):
        cluster.ask(broker_id, ApiKey.RESTORE_TOPIC, 0, topic_id=entry.topic_id, name=name)
