"""-1 and -2, as some clients commit to set a group back, are no commit; one beyond the log's end is told as that."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned

from klog.admin import group_lag
from klog.admin.offset_files import parse
from klog.coordination import committed, paths
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition
from tests.admin.group_registry import commit, enter
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.tools.verbs import make_topic, read, run, send


@pytest.fixture
def five(broker: RunningBroker, topic: str) -> TopicPartition:
    """A partition of five messages."""
    make_topic(broker.bootstrap, topic, 2)
    send(broker.bootstrap, topic, b"0\n1\n2\n3\n4\n", partition=0)
    return TopicPartition(topic, 0)


def test_a_negative_offset_is_no_commit(
    broker: RunningBroker, registry: ZooKeeper, five: TopicPartition, tmp_path: Path
) -> None:
    group = f"{five.topic}-g"
    beside = TopicPartition(five.topic, 1)
    commit(registry, group, {five: -1, beside: 0})
    assert list(committed.read(registry, group)) == [beside]
    row, _ = run(broker.bootstrap, lambda cluster: group_lag.lag(cluster, registry, [group]))
    assert (row.current_offset, row.lag, row.is_outside) == (None, 5, False)
    asking = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    assert asking.committed([Assigned(*five)], timeout=10)[0].offset == -1001, "librdkafka's word for nothing"
    asking.close()

    at = ("-B", broker.bootstrap, "-z", broker.zookeeper)
    exported = tmp_path / "offsets.json"
    assert klog("offset", "export", group, exported, *at).code == 0
    assert klog("offset", "import", exported, "--yes", *at).code == 0
    findings = klog("status", "groups", *at, "-o", "json").rows
    assert not [one for one in findings if group in str(one["what"])]

    moved = klog("group", "rewind", group, "-t", five.topic, "--to", "end", "--yes", *at)
    assert moved.code == 0
    assert committed.read(registry, group)[five].offset > 0
    assert klog("undo", moved.stderr.split()[-1], "--yes", *at).code == 0
    assert list(committed.read(registry, group)) == [beside]
    assert klog("group", "delete", group, "--yes", *at).code == 0
    assert not registry.exists(paths.consumer_offset(group, *five))


def test_who_reads_from_a_negative_offset_has_never_committed(
    broker: RunningBroker, registry: ZooKeeper, five: TopicPartition
) -> None:
    group = f"{five.topic}-g"
    commit(registry, group, {five: -2})
    enter(registry, group, five.topic, five)
    (row,) = run(broker.bootstrap, lambda cluster: group_lag.lag(cluster, registry, [group]))
    assert row.has_committed_nothing


@pytest.mark.parametrize(
    "text",
    [
        "g,t,0,-1\n",
        '{"rows": [{"group": "g", "topic": "t", "partition": 0, "offset": -2}]}',
        "/consumers/g/offsets/t/0:-1\n",
    ],
)
def test_a_file_may_have_negative_offsets_for_nothing(text: str) -> None:
    lines, wrong = parse(text)
    assert not wrong
    assert [(one.group, one.committed) for one in lines] == [("g", None)]


def test_a_group_behind_the_end_goes_on_at_the_end(
    broker: RunningBroker, registry: ZooKeeper, five: TopicPartition
) -> None:
    group = f"{five.topic}-g"
    commit(registry, group, {five: 1_000_000})
    options = {"group": group, "until_end": True, "librdkafka": {"partition.assignment.strategy": "cooperative-sticky"}}
    shown, notes = read(broker.bootstrap, five.topic, **options)
    assert shown == b""
    assert [one for one in notes if "1000000" in one]
    row = run(broker.bootstrap, lambda cluster: group_lag.lag(cluster, registry, [group]))[0]
    assert (row.current_offset, row.lag) == (row.log_end_offset, 0)
    send(broker.bootstrap, five.topic, b"5\n", partition=0)
    assert read(broker.bootstrap, five.topic, **options)[0] == b"5\n"
