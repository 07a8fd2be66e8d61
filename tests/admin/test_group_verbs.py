"""``klog group peek``, ``group copy``, and a preview of ``group rewind`` with live members."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from klog.coordination import committed
from klog.coordination.committed import CommittedOffset
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition
from tests.admin.group_registry import commit, registry_of
from tests.broker_fixture import RunningBroker
from tests.cli.runner import Ran, klog
from tests.tools.verbs import make_topic, send


@pytest.fixture
def registry(broker: RunningBroker) -> Iterator[ZooKeeper]:
    with registry_of(broker.zookeeper) as session:
        yield session


def group(broker: RunningBroker, *words: object) -> Ran:
    return klog("group", *words, "-o", "json", "-B", broker.bootstrap)


def test_peek_shows_what_would_be_read_next_and_moves_nothing(
    broker: RunningBroker, registry: ZooKeeper, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 3)
    for partition in (0, 1):
        send(broker.bootstrap, topic, b"".join(b"%d\n" % number for number in range(10)), partition=partition)
    whole = group(broker, "peek", topic)
    assert whole.code == 1 and whole.error["code"] == "GROUP_ID_NOT_FOUND"
    commit(registry, topic, {TopicPartition(topic, 0): 0, TopicPartition(topic, 2): 0})
    first = group(broker, "peek", topic, "-n", 3).rows
    assert [(row["partition"], row["value"]) for row in first] == [(0, "0"), (0, "1"), (0, "2")]
    commit(registry, topic, {TopicPartition(topic, 0): first[2]["offset"], TopicPartition(topic, 1): 0})
    before = committed.read(registry, topic)
    rows = group(broker, "peek", topic, "-n", 100).rows
    assert [(row["partition"], row["value"]) for row in rows] == [
        *((0, str(number)) for number in range(2, 10)),
        *((1, str(number)) for number in range(10)),
    ]
    assert [row["partition"] for row in group(broker, "peek", topic, "-t", topic, "-p", "1").rows] == [1]
    assert committed.read(registry, topic) == before


def test_a_group_gets_another_name_by_a_copy_with_all_it_has_committed(
    broker: RunningBroker, registry: ZooKeeper, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 2)
    old, new = f"old-{topic}", f"new-{topic}"
    offsets = {TopicPartition(topic, 0): CommittedOffset(0, 3, "kept"), TopicPartition(topic, 1): CommittedOffset(0)}
    commit(registry, old, dict(offsets))
    assert group(broker, "copy", old, new).code == 0
    assert group(broker, "delete", old, "-y").code == 0
    assert committed.read(registry, old) == {}
    found = committed.read(registry, new)
    assert {name: (one.offset, one.leader_epoch, one.metadata) for name, one in found.items()} == {
        name: (one.offset, one.leader_epoch, one.metadata) for name, one in offsets.items()
    }
    commit(registry, old, {TopicPartition(topic, 0): CommittedOffset(0, 4, "others")})
    assert group(broker, "copy", old, new).error["code"] == "REFUSED"


def test_offsets_before_a_position_and_an_import_from_stdin(
    broker: RunningBroker, registry: ZooKeeper, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 2)
    send(broker.bootstrap, topic, b"".join(b"%d\n" % number for number in range(5)), partition=0)
    at = ["-B", broker.bootstrap]
    commit(registry, topic, {TopicPartition(topic, 0): 0})
    offsets = [row["offset"] for row in group(broker, "peek", topic, "-n", 9).rows]
    rows = klog("offset", "list", topic, "--before", "end", "--count", 3, "-o", "json", *at).rows
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, one) for one in reversed(offsets[2:])]
    rows = klog("offset", "list", topic, "--before", str(offsets[2]), "--count", 100, "-o", "json", *at).rows
    assert [row["offset"] for row in rows] == [offsets[1], offsets[0]]
    assert klog("offset", "list", topic, "--count", 3, *at).code == 2

    line = f"{topic},{topic},0,{offsets[3]}\n"
    assert klog("offset", "import", "-", "-y", *at, input=line).code == 0
    assert committed.read(registry, topic)[TopicPartition(topic, 0)].offset == offsets[3]


def test_a_rewind_is_previewed_with_live_members(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1)
    send(broker.bootstrap, topic, b"1\n2\n")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        while consumer.poll(0.1) is None:
            pass
        consumer.commit(asynchronous=False)
        shown = group(broker, "rewind", topic, "--to", "end", "--dry-run")
        assert shown.code == 0 and "live member" in shown.stderr
        assert [row["partition"] for row in shown.rows] == [0]
        refused = group(broker, "rewind", topic, "--to", "end", "-y")
        assert refused.code == 1 and refused.error["code"] == "NON_EMPTY_GROUP"
    finally:
        consumer.close()
