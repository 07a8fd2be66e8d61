"""Somebody deletes a topic that is needed: klog says who and when, and brings it back with its messages and offsets."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from klog.coordination import committed
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition
from tests.admin.group_registry import commit
from tests.incidents.operator import Operator


def test_a_topic_deleted_by_mistake(operator: Operator, topic: str) -> None:
    cluster = operator.cluster
    cluster.create(topic, partitions=2)
    operator.text("produce", topic, input="".join(f"{number}\n" for number in range(100)))
    before = sorted(operator.values(topic))
    with ZooKeeper(cluster.zookeeper) as session:
        session.start()
        commit(session, f"g-{topic}", {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})
        client = AdminClient({"bootstrap.servers": operator.bootstrap, "client.id": "clean-up script"})
        client.delete_topics([topic])[topic].result(20)
        cluster.wait_until(lambda: not cluster.partitions(topic), "it is deleted")
        assert committed.read(session, f"g-{topic}") == {}

        cause = operator.cause(topic, until=lambda row: "deleted topic" in row["what"])
        assert cause["what"].startswith("clean-up script@")
        cluster.wait_until(
            lambda: any(row["topic"] == topic for row in operator.rows("topic", "trash")),
            "it is in the trash as a whole",
        )
        assert operator.run("topic", "restore", topic).code == 0
        cluster.wait_for_leader(topic)
        assert sorted(operator.values(topic)) == before
        assert {name.partition for name in committed.read(session, f"g-{topic}")} == {0, 1}
    operator.text("produce", topic, input="after\n")
    assert len(operator.values(topic)) == 101
