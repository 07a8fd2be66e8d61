"""klog's own topics: Metadata says that they are internal, and only brokers produce to the cluster's story."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer

from klog.admin.reassignment import plan
from klog.client.servers import silent_logger
from klog.errors import InvalidTopic
from klog.names import AUDIT_TOPIC
from klog.server.events import TOPIC
from tests.broker_fixture import ROOT
from tests.cli.runner import klog
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import run


def documented_blacklist() -> str:
    """What both pages tell users of librdkafka to set."""
    (setting,) = {
        one
        for page in ("not-there.md", "operations.md")
        for one in re.findall(r"`topic\.blacklist=([^`]+)`", (ROOT / "docs" / page).read_text())
    }
    return setting


def subscribed(cluster: RunningCluster, settings: dict[str, str]) -> set[str]:
    """What a consumer of librdkafka gets that wants every topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": secrets.token_hex(4),
            "logger": silent_logger(),
            **settings,
        }
    )
    try:
        consumer.subscribe(["^.*"])
        cluster.wait_until(lambda: consumer.poll(0.2) is None and bool(consumer.assignment()), "a group", 60)
        return {one.topic for one in consumer.assignment()}
    finally:
        consumer.close()


def test_internal_topics(make_cluster: Callable[..., RunningCluster]) -> None:
    cluster = make_cluster(3).start()
    cluster.create("t", factor=2)
    cluster.wait_until(lambda: cluster.leader_of(TOPIC) >= 0, "the story is there", 60)
    cluster.wait_in_sync(TOPIC)
    at = ("-B", cluster.bootstrap)

    internal = {topic.name: bool(topic.is_internal) for topic in cluster.metadata().topics}
    assert internal == {"t": False, TOPIC: True}

    told: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(TOPIC, b"forged", on_delivery=lambda error, message: told.append(error))
    assert producer.flush(30) == 0
    assert told[0] is not None and told[0].code() == KafkaError.TOPIC_EXCEPTION
    for name in (TOPIC, AUDIT_TOPIC):
        ran = klog("produce", name, *at, "-o", "json", input="forged\n")
        assert (ran.code, ran.error["code"]) == (1, InvalidTopic.code), name
    cluster.create("later", factor=2)  # is told by the brokers themselves, and nothing else is there
    cluster.wait_until(lambda: "later" in klog("tail", TOPIC, "-o", "start", "-e", *at).stdout, "it is told", 60)
    assert "forged" not in klog("tail", TOPIC, "-o", "start", "-e", *at).stdout

    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","), group_id="all")
    try:
        consumer.subscribe(pattern=".*")
        cluster.wait_until(lambda: consumer.poll(200) is not None and bool(consumer.assignment()), "a group", 60)
        assert {one.topic for one in consumer.assignment()} == {"t", "later"}
    finally:
        consumer.close()

    assert subscribed(cluster, {}) == {"t", "later", TOPIC}, "docs/not-there.md says that librdkafka does"
    assert subscribed(cluster, {"topic.blacklist": documented_blacklist()}) == {"t", "later"}

    rows = run(cluster.bootstrap, lambda connected: plan(connected, removed=[3]))
    moved = {row.topic: set(row.to) for row in rows}
    assert moved[TOPIC] == {1, 2}
    assert all(3 not in row.to for row in rows)
