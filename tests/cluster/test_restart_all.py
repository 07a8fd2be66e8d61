"""All brokers die at once, and come back: everything that was acknowledged is there, and it goes on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import pytest

from tests.cli.runner import klog
from tests.cluster.load import judge, load, produce, read
from tests.cluster.replica_bytes import assert_identical
from tests.cluster_fixture import RunningCluster

Record = Callable[[str, object], None]
PARTITIONS = 3


def test_all_three(three: RunningCluster, topic: str, record_property: Record) -> None:
    three.create(topic, PARTITIONS)
    with load(three.bootstrap, topic, PARTITIONS) as running:
        three.kill(1, 2, 3)
        acked = running.count()
        begun = time.monotonic()
        three.start()
        running.wait_for_more(1)
        record_property("s_from_start_to_first_ack", round(time.monotonic() - begun, 3))
        running.wait_for_more(60)
        assert running.count() > acked
    judge(running, three.bootstrap)
    three.wait_in_sync(topic)
    assert_identical(three, topic, PARTITIONS)


@pytest.mark.long("tests/rules has each rule")
def test_a_disk_that_was_set_back_comes_back_first(make_cluster: Callable[..., RunningCluster], topic: str) -> None:
    """By a virtual machine's snapshot, or a backup that was put in place: it looks as it did on that day, a clean stop
    included, so its broker must not lead before the others are back (rule R1)."""
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
    cluster.brokers[1].wait_for_log(f"{topic}-0 ", "brokers 2, 3", timeout_s=30)
    assert cluster.leader_of(topic) == -1
    said = klog("status", "topics", "-B", cluster.brokers[1].bootstrap, "-o", "jsonl")
    assert said.code == 1 and "brokers 2,3" in said.stdout
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
