"""`klog why` does not know what the test did to brokers, topics and messages: it has to find out.

`test_why_groups` does the same to groups, and has most of the situations in which only the cause's name is asserted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from klog.protocol.apis import ApiKey
from tests.cli.runner import klog
from tests.cluster.load import produce
from tests.cluster.test_reassign_commands import BIG, SMALL_BATCHES
from tests.cluster.test_reassignment import move
from tests.cluster.test_why_groups import wait_for_cause
from tests.cluster_fixture import RunningCluster
from tests.hung_disk import HungDisk
from tests.tools.verbs import send


@pytest.mark.parametrize(("harm", "words"), [
    ("kill", ("is dead", "start broker 2")),
    ("pause", ("hangs", "kill -CONT")),
])  # fmt: skip
def test_the_cause_is_found(three: RunningCluster, topic: str, harm: str, words: tuple[str, str]) -> None:
    both = three.create(f"{topic}-both", assignment=[[1, 2]])
    alone = three.create(f"{topic}-alone", assignment=[[2]])
    others = f"{three.brokers[1].bootstrap},{three.brokers[3].bootstrap},{three.brokers[2].bootstrap}"
    getattr(three, harm)(2)
    three.wait_until_unregistered(2)
    three.wait_until(
        lambda: three.partitions(alone, 1)[0].leader_id < 0 and len(three.partitions(both, 1)[0].isr_nodes) < 2,
        "harmed",
    )
    found = {name: klog("why", name, "-B", others, "-o", "json") for name in (both, alone)}
    three.heal()
    for name, ran in found.items():
        assert ran.code == 1, ran.stderr
        cause = ran.rows[-1]
        assert "broker 2" in cause["what"] and words[0] in cause["what"] and words[1] in cause["do"], ran.rows
        assert [row["do"] for row in ran.rows[:-1]] == [None] * (len(ran.rows) - 1)
        told = [
            row for row in ran.rows if row["evidence"].startswith(("event partition-", "event isr-", "event broker-"))
        ]
        assert all("stopped answering" in row["evidence"] for row in told)
        assert any("acks=all" in row["what"] for row in ran.rows) == (name == both), "min.insync.replicas is 2"


def test_who_leads_and_since_when(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[2, 1]])
    ran = klog("why", "partition", f"{topic}-0", "-B", three.bootstrap, "-o", "json")
    assert ran.code == 0, ran
    assert "broker 2 leads" in ran.rows[0]["what"] and all(row["do"] is None for row in ran.rows)

    def is_known() -> bool:
        rows = klog("why", "partition", f"{topic}-0", "-B", three.bootstrap, "-o", "json").rows
        return rows[1]["time"] is not None and "leader-elected" in rows[1]["evidence"]

    three.wait_until(is_known, "the election is an event")


def test_a_reassignment_that_stands_still(three: RunningCluster, topic: str) -> None:
    three.create(topic, assignment=[[1]], min_insync_replicas="1")
    produce(three.bootstrap, topic, BIG, **SMALL_BATCHES)
    assert move(three, topic, (3,), throttle=1000) == 0
    cause = wait_for_cause(three, ("topic", topic), ("stands still", "broker 3"))
    assert "throttle" in cause["evidence"] and "reassign cancel" in cause["do"]
    three.kill(3)
    cause = wait_for_cause(three, ("topic", topic), ("broker 3", "is dead"))
    assert "start broker 3" in cause["do"] and "reassign cancel" in cause["do"]


def test_a_topic_that_is_gone(three: RunningCluster, topic: str) -> None:
    three.create(topic)
    assert klog("topic", "delete", topic, "-y", "-B", three.bootstrap).code == 0
    three.wait_until(lambda: not three.partitions(topic), "deleted")
    cause = wait_for_cause(three, (topic,), ("deleted topic", topic))
    assert cause["time"] is not None and cause["what"].startswith("klog@")
    ran = klog("why", "never-there", "-B", three.bootstrap, "-o", "json")
    assert ran.code == 1 and "never-there" in ran.error["message"]


def test_produce_requests_that_wait_for_a_disk(make_cluster: Callable[..., RunningCluster], tmp_path: Path) -> None:
    cluster = make_cluster(2, min__insync__replicas="2", replica__lag__time__max__ms="60000")
    follower = cluster.brokers[2]
    disk = HungDisk(tmp_path, follower.folder / "data")
    disk.to(follower)
    cluster.start()
    cluster.create("t", assignment=[[1, 2]])
    assert klog("why", "t", "-B", cluster.bootstrap).code == 0
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    disk.hang("s")
    try:
        producer.produce("t", b"v")
        producer.poll(0)
        cause = wait_for_cause(cluster, ("topic", "t"), ("broker 2", "flush"))
        assert "disk of" in cause["do"]
    finally:
        disk.heal()
    assert producer.flush(20) == 0


def test_messages(three: RunningCluster, topic: str) -> None:
    three.create(topic)
    for _ in range(3):
        send(three.bootstrap, topic, b"0123456789\n" * 10)
    rows = klog("tail", topic, "-o", "start", "-e", "--output", "jsonl", "-B", three.bootstrap).stdout.splitlines()
    offsets = [int(json.loads(row)["offset"]) for row in rows]
    assert len(offsets) == 30

    def why(offset: int) -> tuple[int, dict[str, Any]]:
        ran = klog("why", "message", f"{topic}-0", offset, "-B", three.bootstrap, "-o", "json")
        return ran.code, ran.rows[-1]

    code, row = why(offsets[12])
    assert code == 0 and "is there" in row["what"] and row["do"] is None
    code, row = why(offsets[9] + 1)
    assert code == 1 and "never given" in row["what"] and str(offsets[10]) in row["do"]
    code, row = why(offsets[29] + 1_000_000)
    assert code == 1 and "not written yet" in row["what"]
    cut = [{"partition_index": 0, "offset": offsets[10]}]
    leader = three.leader_of(topic, 0)
    three.ask(leader, ApiKey.DELETE_RECORDS, 2, topics=[{"name": topic, "partitions": cut}], timeout=10_000)
    wait_for_cause(three, ("message", f"{topic}-0", str(offsets[9])), ("DeleteRecords",))
