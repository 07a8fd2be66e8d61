"""Stock clients reassign partitions and elect leaders: kafka-python, librdkafka, and Apache Kafka's own tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]
from kafka.errors import for_code  # type: ignore[import-untyped]

from bench.maven import JavaTools
from klog.errors import InvalidReplicaAssignment, NoReassignmentInProgress
from tests.cluster.load import produce
from tests.cluster.test_reassignment import move, placed, wait_done
from tests.cluster_fixture import RunningCluster
from tests.interop.java import tools_of
from tests.interop.kit import PATIENCE_S, Missing
from tests.interop.test_java_tools import run as run_tool

SLOWLY = 50_000
"""Bytes a second: there is time to look."""


def test_kafka_pythons_admin(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2]])
    produce(three.bootstrap, topic, [b"x" * 50_000] * 20, **{"batch.num.messages": 1})
    one = TopicPartition(topic, 0)
    admin = KafkaAdminClient(bootstrap_servers=three.bootstrap.split(","))
    try:
        assert admin.alter_partition_reassignments({one: [1, 9]}) == {one: for_code(InvalidReplicaAssignment.wire)}
        assert admin.alter_partition_reassignments({one: None}) == {one: for_code(NoReassignmentInProgress.wire)}
        assert move(three, topic, (3, 2), throttle=SLOWLY) == 0
        listed = admin.list_partition_reassignments()
        assert listed[one] == {"replicas": [3, 2, 1], "adding_replicas": [3], "removing_replicas": [1]}
        assert admin.list_partition_reassignments({topic: [0]}).keys() == {one}
        assert admin.list_partition_reassignments({topic: [7]}) == {}
        assert admin.alter_partition_reassignments({one: None}) == {one: None}
        wait_done(three, topic, (1, 2))
        assert admin.alter_partition_reassignments({one: [3, 1]}) == {one: None}
        wait_done(three, topic, (3, 1))
        assert one not in admin.list_partition_reassignments()
        assert three.leader_of(topic) == 1
        admin.elect_leaders(0, {topic: [0]})
        three.wait_until(lambda: three.leader_of(topic) == 3, "3 leads")
    finally:
        admin.close()


def test_librdkafkas_elections(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1, 2], [2, 3]])
    assert move(three, topic, (2, 1)) == 0
    wait_done(three, topic, (2, 1))
    admin = AdminClient({"bootstrap.servers": three.bootstrap})
    asked = [ConfluentPartition(topic, number) for number in (0, 1, 7)]
    found: dict[Any, Any] = admin.elect_leaders(ElectionType.PREFERRED, asked).result(PATIENCE_S)
    codes = {one.partition: None if error is None else error.code() for one, error in found.items()}
    assert codes == {
        0: None,
        1: KafkaError.ELECTION_NOT_NEEDED,
        7: KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    assert three.leader_of(topic) == 2
    everything = admin.elect_leaders(ElectionType.UNCLEAN).result(PATIENCE_S)
    assert not any(one.topic == topic for one in everything), "nobody needs one"


@pytest.mark.long("eight runs of Java's tools, each a JVM")
@pytest.mark.slow
def test_kafkas_own_tools(three: RunningCluster, topic: str, tmp_path: Path) -> None:
    try:
        tools = tools_of("kafka-4.1")
    except Missing as reason:
        pytest.skip(str(reason))
    three.create(topic, assignment=[[1, 2]])
    produce(three.bootstrap, topic, [b"x" * 50_000] * 20, **{"batch.num.messages": 1})
    named = tmp_path / "topics.json"
    named.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = reassign(tools, three, "--generate", "--topics-to-move-json-file", named, "--broker-list", "1,2,3")
    assert f'"topic":"{topic}"' in generated.replace(" ", "")

    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3, 2]}]}))
    began = reassign(tools, three, "--execute", "--reassignment-json-file", plan)
    assert "Successfully started partition reassignment" in began
    wait_done(three, topic, (3, 2))
    verified = reassign(tools, three, "--verify", "--reassignment-json-file", plan)
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified, "there are none, so that is done"

    assert move(three, topic, (1, 2), throttle=SLOWLY) == 0
    listed = reassign(tools, three, "--list")
    assert f"{topic}-0: replicas: 1,2,3. adding: 1. removing: 3." in listed
    described = run_tool(
        tools, tools.topic_command, "--bootstrap-server", three.bootstrap, "--describe", "--topic", topic
    )
    assert "Adding Replicas: 1" in described and "Removing Replicas: 3" in described
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1, 2]}]}))
    cancelled = reassign(tools, three, "--cancel", "--reassignment-json-file", plan)
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    wait_done(three, topic, (3, 2))
    elected = run_tool(
        tools,
        "org.apache.kafka.tools.LeaderElectionCommand",
        *("--bootstrap-server", three.bootstrap, "--election-type", "preferred"),
        *("--topic", topic, "--partition", "0"),
    )
    assert "Successfully completed leader election" in elected or "Valid replica already elected" in elected
    assert three.leader_of(topic) == 3 and placed(three, topic) == (3, 2)


def reassign(tools: JavaTools, cluster: RunningCluster, *words: object) -> str:
    return run_tool(
        tools,
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        *("--bootstrap-server", cluster.bootstrap, *map(str, words)),
    )
