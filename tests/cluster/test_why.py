"""`klog status` does not know what the test did to brokers, topics and messages: it has to find out.

`test_why_groups` does the same to groups, and has most of the situations in which only the cause's name is asserted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import Ran, act_rows, klog
from tests.cluster.test_why_groups import wait_for_cause
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import send


def test_a_topic_that_is_gone(three: RunningCluster, topic: str) -> None:
    three.create(topic)
    assert klog("topic", "delete", topic, "-y", "-B", three.bootstrap).code == 0
    three.wait_until(lambda: not three.partitions(topic), "deleted")
    cause = wait_for_cause(three, (topic,), ("deleted topic", topic))
    assert cause["time"] is not None and cause["what"].startswith("klog@")
    ran = klog("status", "never-there", "-B", three.bootstrap, "-o", "json")
    assert ran.code == 1 and "never-there" in ran.error["message"]


@pytest.mark.long("test_a_topic_that_is_gone has what is missing")
def test_a_broker_that_never_was(make_cluster: Callable[..., RunningCluster], tmp_path: Path) -> None:
    """Topics are written into ZooKeeper on brokers that the cluster never had. Whatever klog advises works."""
    cluster = make_cluster(1).start()

    def at(*words: object) -> Ran:
        return klog(*words, "-B", cluster.bootstrap, "-o", "json")

    def write(name: str, replicas: list[int]) -> None:
        node = json.dumps({"version": 1, "partitions": {"0": replicas}})
        assert at("zk", "create", f"/brokers/topics/{name}", node, "-y").code == 0
        cluster.wait_until(lambda: cluster.partitions(name), "the brokers know it")

    write("ghost", [9])
    cause = wait_for_cause(cluster, ("ghost",), ("broker 9", "has never been"))
    assert "registrations/9" in cause["evidence"] and "klog topic delete ghost" in cause["do"]
    assert "klog broker start --id 9" in cause["do"] and "remove-broker" not in cause["do"]
    found = {row["kind"]: row for row in at("status", "topics", "brokers").rows}
    assert found["dead-broker"]["do"] == found["offline-partitions"]["do"] == cause["do"]
    assert found["offline-partitions"]["because"] == "broker 9"
    assert at("topic", "delete", "ghost", "--purge", "-y").code == 0
    cluster.wait_until(lambda: at("topic", "list", "ghost").code == 1, "the deletion waits for no broker")
    cluster.wait_until(lambda: "/brokers/topics/ghost" not in at("zk", "find", "/", "ghost").stdout, "it is gone")

    write("half", [1, 8])
    cause = wait_for_cause(cluster, ("half",), ("broker 8", "has never been"))
    assert "topic delete" not in cause["do"], "broker 1 has its messages"
    assert "remove-broker" not in cause["do"], "the cluster has one broker"
    write("ghost", [9])
    cluster.add(9)
    cluster.start(9)
    cluster.wait_until(lambda: cluster.leader_of("ghost") == 9, "the broker that was missing leads")
    cause = wait_for_cause(cluster, ("half",), ("broker 8", "has never been"))
    assert "klog reassign plan --remove-broker 8" in cause["do"]
    plan = tmp_path / "plan.json"
    assert at("reassign", "plan", "--remove-broker", 8, "--file", plan).code == 0
    assert at("reassign", "execute", plan, "-y", "--wait", "30s").code == 0
    assert {row["kind"] for row in at("status", "topics").rows} & {"dead-broker", "offline-partitions"} == set()

    # Half way through a reassignment a topic is deleted: nothing of it is filled any more.
    write("going", [9, 7])
    cluster.stop(9)
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "going", "partition": 0, "replicas": [1]}]}))
    assert at("reassign", "execute", plan, "-y").code == 0
    assert at("topic", "delete", "going", "--purge", "-y").code == 0
    assert not [row for row in at("status").rows if row["kind"] == "reassignment-stalls"]
    cause = wait_for_cause(cluster, ("going",), ("broker 9", "is dead"))
    assert "start broker 9" in cause["do"]
    waiting = next(row for row in at("status", "going").rows if row["evidence"].endswith("/admin/delete_topics/going"))
    assert "broker 9" in waiting["what"], "broker 7 never was"
    shutil.rmtree(cluster.brokers[9].folder / "data")  # an empty log dir will do
    cluster.start(9)
    cluster.wait_until(lambda: at("topic", "list", "going").code == 1, "broker 9 has deleted it")


def test_the_act_is_the_cause(make_cluster: Callable[..., RunningCluster]) -> None:
    cluster = make_cluster(2, log__retention__check__interval__ms="200").start()
    cluster.create("t", assignment=[[1, 2]])

    def at(*words: object) -> Ran:
        return klog(*words, "-B", cluster.bootstrap, "-o", "json")

    def act(kind: str) -> dict[str, Any]:
        return next(row for row in act_rows(cluster.zookeeper) if row["kind"] == kind)

    assert at("topic", "config", "t", "retention.ms=999999999").code == 0
    send(cluster.bootstrap, "t", b"1\n2\n")
    assert at("group", "rewind", "g", "--to", "start", "-t", "t", "--create", "-y").code == 0
    assert at("topic", "config", "t", "retention.ms=1000", "-y").code == 0
    lowered = [row for row in act_rows(cluster.zookeeper) if row["kind"] == "topic-settings"][-1]
    cause = wait_for_cause(cluster, ("message", "t-0", "0"), ("retention.ms", "1000", "999999999"))
    assert cause["what"].startswith(lowered["principal"]) and cause["time"] == lowered["time"]
    assert lowered["act"] in cause["evidence"] and f"klog undo {lowered['act']}" in cause["do"]
    cause = wait_for_cause(cluster, ("group", "g"), ("retention.ms", "1000"))
    assert lowered["act"] in cause["evidence"] and "klog group rewind g" in cause["do"]
    assert at("undo", lowered["act"], "-y").code == 0
    cause = wait_for_cause(cluster, ("message", "t-0", "0"), ("retention.ms", "1000"))
    assert lowered["act"] in cause["evidence"] and "klog undo" not in cause["do"], "it is undone"

    assert at("broker", "stop", 2).code == 0
    cluster.wait_until_unregistered(2)
    stopped = act("broker-stop")
    for subject in (("broker", "2"), ("t",)):
        cause = wait_for_cause(cluster, subject, (stopped["principal"], "stopped broker 2"))
        assert stopped["act"] in cause["evidence"] and cause["time"] == stopped["time"]
        assert "start broker 2" in cause["do"]
    cluster.start(2)
    cluster.wait_in_sync("t")
    cluster.kill(2)
    wait_for_cause(cluster, ("broker", "2"), ("broker 2 is dead",))
