"""Somebody deletes a topic that is needed: klog says who and when, and brings it back with its messages and offsets.

The restoration is what takes the act back; `klog topic delete` would take that back.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from klog.coordination import committed
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition
from tests.admin.group_registry import commit
from tests.incidents.operator import Operator


@pytest.mark.long("a document that is walked")
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

        cause = operator.cause(topic, until=lambda row: "deleted topic" in row["what"])
        assert cause["what"].startswith("clean-up script@")
        assert operator.runbook("klog status orders", orders=topic).code == 1

        assert any(row["topic"] == topic for row in operator.runbook("klog topic list --deleted").rows)
        operator.runbook("klog topic restore orders", orders=topic)
        cluster.wait_for_leader(topic)
        assert sorted(operator.values(topic)) == before
        assert {name.partition for name in committed.read(session, f"g-{topic}")} == {0, 1}
    operator.text("produce", topic, input="after\n")
    assert len(operator.values(topic)) == 101
