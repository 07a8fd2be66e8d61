"""``klog topic config`` says what a change deletes or refuses, asks before it makes the change, and then it holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaError

from tests.broker_fixture import RunningBroker
from tests.cli.runner import Ran, klog
from tests.cluster.load import try_produce
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import make_topic, send
from tests.until import until


def config(broker: RunningBroker | RunningCluster, topic: str, *words: str) -> Ran:
    return klog("topic", "config", topic, *words, "-o", "json", "-B", broker.bootstrap)


def value(broker: RunningBroker, topic: str, name: str) -> str | None:
    return next(row["value"] for row in config(broker, topic).rows if row["name"] == name)


def test_retention_that_deletes_messages_asks_with_their_number(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2)
    for partition in (0, 1):
        send(broker.bootstrap, topic, b"".join(b"%d\n" % number for number in range(50)), partition=partition)
    asked = config(broker, topic, "retention.ms=0")
    assert asked.code == 2 and "up to 100 messages are deleted" in asked.error["message"]
    shown = config(broker, topic, "retention.ms=0", "--dry-run")
    (row,) = shown.rows
    assert shown.code == 0 and (row["setting"], row["then"]) == ("retention.ms", "0") and "100" in row["consequence"]
    assert value(broker, topic, "retention.ms") == row["now"] != "0"
    assert config(broker, topic, "retention.ms=0", "--yes").code == 0
    assert value(broker, topic, "retention.ms") == "0"

    # What keeps more asks nothing, nor does what no message is old enough for.
    assert config(broker, topic, "retention.ms=60000000").code == 0
    assert config(broker, topic, "--delete", "retention.ms").code == 0
    assert config(broker, topic, "retention.ms=7000000").code == 0
    assert config(broker, topic, "retention.bytes=1000000").code == 0
    send(broker.bootstrap, topic, b"".join(b"%d\n" % number for number in range(50)), partition=0)
    asked = config(broker, topic, "retention.bytes=100")
    assert asked.code == 2 and "messages beyond 100 B in each partition" in asked.error["message"]


def test_messages_that_pass_the_retention_within_a_minute_are_counted(
    make_broker: Callable[..., RunningBroker], topic: str
) -> None:
    """All of them in the active segment, and seconds old."""
    broker = make_broker(log__retention__check__interval__ms="100").start()
    make_topic(broker.bootstrap, topic, 2)
    for partition in (0, 1):
        send(broker.bootstrap, topic, b"".join(b"%d\n" % number for number in range(15)), partition=partition)
    assert config(broker, topic, "retention.ms=2h", "--dry-run").rows[0]["consequence"] is None
    for retention in ("60s", "1s"):
        (row,) = config(broker, topic, f"retention.ms={retention}", "--dry-run").rows
        assert row["consequence"] is not None and "30 messages" in row["consequence"]
        assert config(broker, topic, f"retention.ms={retention}").code == 2
    assert config(broker, topic, "retention.ms=1s", "--yes").code == 0
    listed = ("topic", "list", topic, "-o", "json", "-B", broker.bootstrap)
    until(lambda: not klog(*listed).rows[0]["messages"], "the messages that were counted are deleted")


def test_a_dry_run_changes_nothing_and_a_wrong_value_is_refused_by_it(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1)
    before = value(broker, topic, "segment.bytes")
    shown = config(broker, topic, "segment.bytes=1000000", "--dry-run")
    assert shown.code == 0 and [row["consequence"] for row in shown.rows] == [None]
    assert value(broker, topic, "segment.bytes") == before
    (row,) = config(broker, topic, f"segment.bytes={before}", "--dry-run").rows  # the topic's own value from then on
    assert row["now"] == row["then"] == before
    for words in (["segment.bytes=many"], ["no.such.setting=1"]):
        assert config(broker, topic, *words, "--dry-run").error["code"] == "INVALID_CONFIG"


def test_settings_that_refuse_or_risk_acknowledged_messages_ask(
    three: RunningCluster, topic: str, tmp_path: Path
) -> None:
    three.create(topic, partitions=1, factor=2)
    asked = config(three, topic, "min.insync.replicas=3")
    assert asked.code in (0, 2)
    assert config(three, topic, "min.insync.replicas=1", "--yes").code == 0
    asked = config(three, topic, "min.insync.replicas=2")
    assert asked.code == 2 and "while any of the 2 replicas is away" in asked.error["message"]
    plan = tmp_path / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    shown = klog("reassign", "execute", plan, "--dry-run", "-B", three.bootstrap)
    assert shown.code == 0 and "one replica" in shown.stderr
    asked = config(three, topic, "unclean.leader.election.enable=true")
    assert asked.code == 2 and "are lost" in asked.error["message"]


def test_a_setting_holds_at_once_on_every_broker(three: RunningCluster, topic: str) -> None:
    """Each partition is led by another one."""
    three.create(topic, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])

    def is_refused(partition: int) -> bool:
        _, errors = try_produce(three.bootstrap, topic, [b"x" * 5000], partition)
        return [one.code() for one in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]

    assert not any(map(is_refused, range(3)))
    assert config(three, topic, "max.message.bytes=1000", "--yes").code == 0
    three.wait_until(lambda: all(map(is_refused, range(3))), "each partition refuses what is too large now")
