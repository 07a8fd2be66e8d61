"""One broker of three hangs (it is stopped by a signal): commands say what they do not know, and `check` says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

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
