"""One broker of three hangs (it is stopped by a signal): commands say what they do not know, and `check` says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from klog.tools.why.steps import BROKER_KINDS
from tests.cli.runner import klog
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import check, send

KEPT_MS = "60000"
"""The hung broker's entry in ZooKeeper outlives the test."""


def resumes(cluster: RunningCluster, broker_id: int) -> str:
    """The command that lets a paused broker of this machine go on."""
    process = cluster.brokers[broker_id].process
    assert process is not None
    return f"`kill -CONT {process.pid}`"


@pytest.mark.long("minutes of a hung broker; test_failover.py::test_the_leader_hangs")
def test_while_its_entry_is_there(make_cluster: Callable[..., RunningCluster]) -> None:
    cluster = make_cluster(3, zookeeper__session__timeout__ms=KEPT_MS).start()
    cluster.create("led", assignment=[[1]], min_insync_replicas="1")
    cluster.create("hung", assignment=[[3]], min_insync_replicas="1")
    assert send(cluster.bootstrap, "led", b"a\nb\n").is_complete
    at = ["-B", cluster.brokers[1].bootstrap]
    cluster.pause(3)

    listed = klog("topic", "list", "-o", "json", "--timeout", "3s", *at)
    assert listed.code == 1, listed.stdout
    rows = {row["topic"]: row for row in listed.rows}
    assert (rows["led"]["messages"], rows["led"]["error"]) == (2, None)
    assert (rows["hung"]["messages"], rows["hung"]["error"]) == (None, "CANNOT_CONNECT")
    assert cluster.brokers[3].bootstrap in rows["hung"]["message"]
    for words in (["topic", "describe", "hung"], ["topic", "describe", "hung"]):
        ran = klog(*words, "-o", "json", "--timeout", "3s", *at)
        assert [ran.code, *((row["leader"], row["error"]) for row in ran.rows)] == [1, (3, "CANNOT_CONNECT")], words
    assert klog("topic", "describe", "led", *at).code == 0

    (first, *_) = asyncio.run(check(cluster.brokers[1].bootstrap, None, timeout_s=5))
    assert (first.severity, first.what, first.kind) == ("critical", "broker 3", "silent-broker")
    assert first.found.startswith(f"hangs: {cluster.brokers[3].bootstrap} ")
    assert "ZooKeeper" in first.found
    assert resumes(cluster, 3) in first.do


@pytest.mark.long("the same after its session; test_while_its_entry_is_there has it before")
def test_when_its_entry_has_gone(make_cluster: Callable[..., RunningCluster]) -> None:
    """It leads no more, and lacks everywhere: that is said behind it."""
    cluster = make_cluster(3, default__replication__factor="3").start()
    cluster.create("led", assignment=[[1, 2, 3]], min_insync_replicas="1")
    cluster.create("alone", assignment=[[3]], min_insync_replicas="1")
    cluster.pause(3)
    cluster.wait_until(lambda: cluster.leader_of("alone") == -1, "its entry has gone")
    cluster.wait_until(lambda: cluster.isr_of("led") == {1, 2}, "it is out of the ISR")

    first, *others = asyncio.run(check(cluster.bootstrap, None))
    assert (first.what, first.kind) == ("broker 3", "dead-broker") and resumes(cluster, 3) in first.do
    assert cluster.brokers[3].bootstrap in first.found
    assert {"offline-partitions", "under-replicated"} <= {one.kind for one in others}
    assert not [one for one in others if "start" in one.do], "it runs"

    # Known by its event, where its address was not given; a second one is dead.
    at = cluster.brokers[1].bootstrap
    told = ("events", "broker", 3, "-B", at, "-o", "json")
    cluster.wait_until(
        lambda: {*BROKER_KINDS} & {row["kind"] for row in klog(*told).rows} - {"broker-up"}, "its end is an event"
    )
    ran = klog("status", "broker", 3, "-B", at, "-o", "json")
    assert ran.code == 1 and "hangs" in ran.rows[-1]["what"] and resumes(cluster, 3) in ran.rows[-1]["do"]
    cluster.kill(2)
    cluster.wait_until_unregistered(2)
    rows = {row["what"]: row for row in klog("status", "brokers", "-B", at, "-o", "json").rows}
    assert resumes(cluster, 3) in rows["broker 3"]["do"] and cluster.brokers[3].bootstrap in rows["broker 3"]["found"]
    command = f"klog broker start --id 2 --dir DIR --listen {cluster.brokers[2].bootstrap} -z {cluster.zookeeper}"
    assert command in rows["broker 2"]["do"] and "hangs" not in rows["broker 2"]["found"]


@pytest.mark.long("test_failover.py::test_the_leader_hangs")
def test_when_it_is_the_only_one(make_cluster: Callable[..., RunningCluster]) -> None:
    cluster = make_cluster(1, zookeeper__session__timeout__ms=KEPT_MS).start()
    cluster.pause(1)
    for bootstrap, zookeeper in ((cluster.bootstrap, None), (None, cluster.zookeeper)):
        (first, *_) = asyncio.run(check(bootstrap, zookeeper))
        assert first.kind == "no-brokers" and resumes(cluster, 1) in first.do, (bootstrap, zookeeper)
