"""``klog group peek``, ``group copy``, and a preview of ``group rewind`` with live members."""

from __future__ import annotations

from klog.coordination import committed
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition
from tests.admin.group_registry import commit
from tests.broker_fixture import RunningBroker
from tests.cli.runner import Ran, klog
from tests.tools.verbs import make_topic, send


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
