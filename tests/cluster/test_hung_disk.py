"""Of two disks of a broker one answers no more: what lies on the other is served, and the rest is led by others."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from tests.cluster_fixture import RunningCluster
from tests.faulty_libc import FaultyLibc, build, compiler
from tests.server.asking import FIRST_MS, ask, error, offsets, produce, values

WITHIN_S = 40.0
pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")


def produced_by_whoever_leads(cluster: RunningCluster, topic: str, partition: int) -> bool:
    """Whether a message is acknowledged now."""
    leader = cluster.leader_of(topic, partition)
    if leader < 0:
        return False
    try:
        produce(cluster.brokers[leader].bootstrap, topic, [values(3)], partition)
    except (AssertionError, KlogError, OSError):
        return False
    return True


def test_partitions_on_the_other_disk_go_on(make_cluster: Callable[..., RunningCluster], tmp_path: Path) -> None:
    cluster = make_cluster(2, min__insync__replicas="1", log__dir__hung__ms="60000")
    one = cluster.brokers[1]
    good, bad = one.folder / "good", one.folder / "bad"
    one.extra_arguments = ["--dir", f"{good},{bad}"]
    disk = FaultyLibc(build(tmp_path), tmp_path / "page", bad)
    one.wrapper = disk.wrapper
    cluster.start()
    cluster.create("t", assignment=[[1, 2], [1, 2]])
    on_good = next(at for at in (0, 1) if (good / f"t-{at}").exists())
    on_bad = 1 - on_good
    assert (bad / f"t-{on_bad}").exists()
    for at in (0, 1):
        produce(one.bootstrap, "t", [values(5)], at)
    try:
        disk.hang("srn")
        begun_s = time.monotonic()
        cluster.wait_until(
            lambda: produced_by_whoever_leads(cluster, "t", on_bad), "the other broker leads what hangs", WITHIN_S
        )
        assert cluster.leader_of("t", on_bad) == 2
        disk.hang("srnw")  # the page cache is full by now
        assert cluster.leader_of("t", on_good) == 1
        for _ in range(3):
            produce(one.bootstrap, "t", [values(5)], on_good)
        asked = {"partition_index": on_good, "timestamp": FIRST_MS + 2}
        answer = ask(
            one.bootstrap, ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": "t", "partitions": [asked]}]
        )
        assert error(answer.topics[0].partitions[0]) == 0
        cluster.create("new", assignment=[[1]])  # LeaderAndIsr is obeyed, and the disk that answers is taken
        assert (good / "new-0").exists()
        produce(one.bootstrap, "new", [values(5)])
        session_s = int(one.settings["zookeeper.session.timeout.ms"]) / 1000
        while time.monotonic() - begun_s < 1.5 * session_s:  # for longer than the watchdog lets a loop wait
            produce(one.bootstrap, "t", [values(5)], on_good)
        assert one.process is not None
        assert one.process.poll() is None, one.log_text
        one.wait_for_log("replicas.disk_watch")
    finally:
        disk.hang("")
    one.wait_for_log("replicas.disk_watch", "again")
    cluster.wait_in_sync("t")
    assert offsets(one.bootstrap, "t", on_good)[1] > 0


def test_a_log_that_a_hung_disk_never_makes_holds_up_what_the_controller_says_for_a_while_only(
    make_cluster: Callable[..., RunningCluster], tmp_path: Path
) -> None:
    cluster = make_cluster(1, log__dir__hung__ms="2000")
    one = cluster.brokers[1]
    good, bad = one.folder / "good", one.folder / "bad"
    one.extra_arguments = ["--dir", f"{good},{bad}"]
    disk = FaultyLibc(build(tmp_path), tmp_path / "page", bad)
    one.wrapper = disk.wrapper
    cluster.start()
    disk.hang("sn")
    with contextlib.suppress(AssertionError, KlogError):
        cluster.try_create("t", assignment=[[1], [1]])
    cluster.wait_until(
        lambda: any(produced_by_whoever_leads(cluster, "t", at) for at in (0, 1)), "what the other has is led", WITHIN_S
    )
    cluster.create("later", assignment=[[1]])
    assert (good / "later-0").exists()
    one.wait_for_log("log.dir.hung.ms")
    assert one.stop(timeout_s=40) == 0, "a broker with a hung disk stops all the same"
