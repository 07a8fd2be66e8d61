"""The admin APIs of stock clients beyond making and deleting topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaAdminClient  # type: ignore[import-untyped]

from tests.broker_fixture import RunningBroker
from tests.interop.kit import PATIENCE_S
from tests.server.asking import create, offsets, produce, values


def result(futures: dict[Any, Any]) -> Any:
    """Of an operation on one thing."""
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def test_librdkafkas_admin(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(10), values(10)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    result(admin.create_partitions([NewPartitions(topic, 3)]))
    listed = admin.list_topics(topic, timeout=PATIENCE_S)
    assert sorted(listed.topics[topic].partitions) == [0, 1, 2]
    assert listed.controller_id == 1

    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET))
    result(admin.incremental_alter_configs([resource]))
    found = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert found["retention.ms"].value == "1234"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["segment.bytes"].is_default
    of_broker = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert of_broker["broker.id"].value == "1"
    assert of_broker["broker.id"].is_read_only

    ends = result(admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}))
    assert ends.offset == offsets(broker.bootstrap, topic)[1]
    newest = result(admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()}))
    assert newest.offset == 9

    deleted = result(admin.delete_records([TopicPartition(topic, 0, 5)]))
    assert deleted.low_watermark == 5
    assert offsets(broker.bootstrap, topic)[0] == 5

    described = admin.describe_cluster().result(PATIENCE_S)
    assert [f"{node.host}:{node.port}" for node in described.nodes] == [broker.bootstrap]
    assert described.controller.id == 1


@pytest.mark.long("a thousand topics")
def test_librdkafka_lists_many_topics_of_short_names(broker: RunningBroker) -> None:
    """It has memory for four times an answer's bytes, which is too little where nothing is done about it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [f"{number:x}" for number in range(60)]
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(PATIENCE_S)
    listed = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S)
    assert set(names) <= listed.topics.keys()
    for future in admin.delete_topics(names).values():
        future.result(PATIENCE_S)


def test_kafka_pythons_admin(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        assert topic in admin.list_topics()
        (described,) = admin.describe_topics([topic])
        assert [one["leader_id"] for one in described["partitions"]] == [1]
        cluster = admin.describe_cluster()
        assert cluster["controller_id"] == 1
        admin.create_partitions({topic: 2})
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
    finally:
        admin.close()


@contextmanager
def reading(broker: RunningBroker, topic: str, offset: int) -> Iterator[Consumer]:
    """A consumer of partition 0 that soon hears of changes."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 200,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        yield consumer
    finally:
        consumer.close()


def messages(consumer: Consumer, count: int, *, may_fail: bool = False) -> list[Message]:
    """The next ones. ``may_fail``: errors beside them do not matter."""
    found: list[Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages"
        message = consumer.poll(1.0)
        if message is None:
            continue
        problem = message.error()
        assert problem is None or may_fail or problem.code() == KafkaError._PARTITION_EOF, problem
        if problem is None:
            found.append(message)
    return found


def test_a_position_below_the_start_is_reset(broker: RunningBroker, topic: str) -> None:
    """What retention does to a slow consumer: librdkafka asks again where the log starts."""
    create(broker.bootstrap, topic)
    first, _ = produce(broker.bootstrap, topic, [values(10), values(10)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    result(admin.delete_records([TopicPartition(topic, 0, first + 7)]))
    with reading(broker, topic, first + 2) as consumer:
        read = [message.offset() for message in messages(consumer, 13)]
    assert read[:3] == [first + 7, first + 8, first + 9]
    assert read[-1] == offsets(broker.bootstrap, topic)[1] - 1


def test_a_consumer_follows_a_topic_that_is_made_again(broker: RunningBroker, topic: str) -> None:
    """Deleted and made again under its name: the old position is beyond the new end, and the client finds the start."""
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(100)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with reading(broker, topic, 0) as consumer:
        messages(consumer, 100, may_fail=True)
        result(admin.delete_topics([topic]))
        create(broker.bootstrap, topic)
        produce(broker.bootstrap, topic, [values(3, 7)])
        again = [message.value() for message in messages(consumer, 3, may_fail=True)]
    assert again == [record.value for record in values(3, 7)]
