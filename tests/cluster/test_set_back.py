"""A disk that is set back to an earlier day: a virtual machine's snapshot, a backup that was put in place.

It looks as it did on that day, a clean stop included, so its broker must not lead before the others are back.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.broker_fixture import ROOT, RunningBroker
from tests.cluster.load import produce, read
from tests.cluster.replica_bytes import assert_identical
from tests.cluster_fixture import RunningCluster


@pytest.mark.long("tests/rules has each rule")
def test_nothing_is_lost_where_it_comes_back_first(make_cluster: Callable[..., RunningCluster], topic: str) -> None:
    cluster = make_cluster(min__insync__replicas="2", unclean__restart__wait__ms="120000").start()
    cluster.create(topic, assignment=[[1, 2, 3]])
    wanted = produce(cluster.bootstrap, topic, [b"%d" % number for number in range(300)])
    data, copy = cluster.brokers[1].folder / "data", cluster.folder / "snapshot"
    assert cluster.stop(1) == 0
    shutil.copytree(data, copy)
    cluster.start(1)
    cluster.wait_in_sync(topic)
    wanted += produce(cluster.bootstrap, topic, [b"%d" % number for number in range(300, 600)])

    cluster.kill(1, 2, 3)
    shutil.rmtree(data)
    shutil.move(copy, data)
    cluster.start(1)
    awaits(cluster.brokers[1], topic, "brokers 2, 3")
    assert cluster.leader_of(topic) == -1
    said = klog("status", "topics", "-B", cluster.brokers[1].bootstrap)
    assert "brokers 2,3" in said
    cluster.start(2)
    cluster.wait_until(
        lambda: any(one.logged("WARNING", "controller", f"{topic}-0", "broker 3") for one in cluster.brokers.values()),
        "broker 3 is waited for, too",
    )
    assert cluster.leader_of(topic) == -1
    cluster.start(3)
    cluster.wait_in_sync(topic)
    assert [offset for offset, _ in read(cluster.bootstrap, topic)[0]] == wanted
    assert_identical(cluster, topic)


def klog(*arguments: str) -> str:
    """What a command prints that finds something wrong."""
    command = [sys.executable, "-m", "klog", *arguments, "-o", "jsonl"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done
    return done.stdout


def awaits(broker: RunningBroker, topic: str, whom: str) -> None:
    broker.wait_for_log(f"{topic}-0 ", whom, timeout_s=30)
