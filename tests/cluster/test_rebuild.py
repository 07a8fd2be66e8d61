"""ZooKeeper's data are lost, and the registries are made anew from the brokers' disks: nothing acknowledged is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.coordination import embedded, producer_ids, topics
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.registry_copy import FILE, RegistryCopy
from klog.coordination.zookeeper import ZooKeeper
from klog.tools import registry_facts
from tests.cli.runner import klog
from tests.cluster.load import judge, load
from tests.cluster.replica_bytes import assert_identical
from tests.cluster_fixture import RunningCluster
from tests.zookeeper_fixture import klog_home, session_of

PARTITIONS = 3


class OwnZooKeeper:
    """A server of the test's own, whose data can be lost."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = self._start(None)
        self.address = self.server.address

    def _start(self, port: int | None) -> ZooKeeperServer:
        server = embedded.start(self.folder, port=port, cache=klog_home() / "cache")
        server.await_serving()
        return server

    def lose_everything(self) -> None:
        """The server is back on its port, and empty."""
        port = self.server.port
        self.server.stop()
        shutil.rmtree(self.folder / "data")
        self.server = self._start(port)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnZooKeeper]:
    made = OwnZooKeeper(tmp_path / "zookeeper")
    try:
        yield made
    finally:
        made.server.stop()


@pytest.fixture
def cluster(own: OwnZooKeeper, tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path / "cluster", f"{own.address}/lost", 3, min__insync__replicas="2").started() as made:
        yield made


def dirs(cluster: RunningCluster, *brokers: int) -> list[str]:
    return [word for one in brokers for word in ("--dir", str(cluster.brokers[one].folder / "data"))]


def copied(cluster: RunningCluster, broker_id: int, topic: str) -> tuple[str, dict[int, tuple[int, ...]]] | None:
    """The topic's assignment in the copy that the broker keeps."""
    path = cluster.brokers[broker_id].folder / "data" / FILE
    found = RegistryCopy.parse(path.read_bytes(), str(path)).topics.get(topic) if path.exists() else None
    return None if found is None else (topic, {number: one.replicas for number, one in found.partitions.items()})


def test_the_cluster_comes_back_from_its_log_dirs(own: OwnZooKeeper, cluster: RunningCluster, topic: str) -> None:
    """Without those of one broker."""
    given = (1, 2)
    cluster.create(topic, PARTITIONS, retention_ms="7654321")
    with session_of(cluster.zookeeper) as session:
        before = topics.find(session, topic)
        block = producer_ids.claim_block(session, 1)
    assert before is not None
    known = (topic, before.partitions)
    cluster.wait_until(
        lambda: all(copied(cluster, one, topic) == known for one in (1, 2, 3)), "copies of the registries"
    )
    with load(cluster.bootstrap, topic, PARTITIONS) as running:
        running.wait_for_more(100)
        cluster.kill(1, 2, 3)
        own.lose_everything()

        cluster.brokers[1].start(expect_ready=False)
        assert cluster.brokers[1].process is not None
        assert cluster.brokers[1].process.wait(20) == 1, cluster.brokers[1].log_text
        assert "klog zookeeper rebuild" in cluster.brokers[1].log_text

        count = registry_facts.Count()
        registry_facts.read_dirs([cluster.brokers[one].folder / "data" for one in given], count)
        assert count.done == count.total and count.done >= PARTITIONS * len(given)
        at = ("-z", cluster.zookeeper, *dirs(cluster, *given))
        planned = klog("zookeeper", "rebuild", *at, "--dry-run", "-o", "json")
        assert planned.code == 0, planned.stderr
        done = klog("zookeeper", "rebuild", *at, "--yes", "-o", "json")
        assert done.code == 0, done.stderr
        assert done.rows == planned.rows, "a dry run says what is done, and does none of it"
        named = {(row["kind"], row["name"]): row for row in done.rows}
        assert all(named["partition", f"{topic}-{number}"]["found_on"] == list(given) for number in range(PARTITIONS))

        again = klog("zookeeper", "rebuild", *at, "--yes", "-o", "json")
        assert again.code == 1 and "rebuild" in again.error["message"]

        cluster.start(*given)
        acked = running.count()
        running.wait_for_more(100)
        assert running.count() > acked
    judge(running, cluster.bootstrap)
    cluster.start()
    cluster.wait_in_sync(topic)
    assert_identical(cluster, topic, PARTITIONS)
    with session_of(cluster.zookeeper) as session:
        after = topics.find(session, topic)
        assert after is not None
        assert (after.topic_id, after.partitions) == (before.topic_id, before.partitions)
        assert topics.configs(session, [topic])[topic].settings == {"retention.ms": "7654321"}
        assert producer_ids.claim_block(session, 1).start > block.stop + 2000, "no id is given out twice"


@pytest.mark.long("test_the_cluster_comes_back_from_its_log_dirs is the rebuild")
def test_a_rebuild_that_was_cut_off_is_run_again(
    own: OwnZooKeeper, cluster: RunningCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written last before it was killed: until all of it is there no broker starts on it."""
    for number in range(3):
        cluster.create(f"{topic}-{number}")
    for one in (1, 2, 3):
        assert cluster.stop(one) == 0
    own.lose_everything()
    at = ("-z", cluster.zookeeper, *dirs(cluster, 1, 2, 3), "--yes", "-o", "json")
    real, done = ZooKeeper.commit, 0
    cut_at = 1

    def commit(self: ZooKeeper, *arguments: object, **named: object) -> object:
        nonlocal done
        if done == cut_at:
            raise KeyboardInterrupt
        done += 1
        return real(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(ZooKeeper, "commit", commit)
    while klog("zookeeper", "rebuild", *at).code != 0:
        cut_at, done = cut_at + 1, 0
        assert cut_at < 50
    assert cut_at >= 4
    monkeypatch.undo()
    cluster.start()
    for number in range(3):
        cluster.wait_in_sync(f"{topic}-{number}")


def test_what_is_no_log_dir_and_what_is_of_another_cluster_is_refused(three: RunningCluster, tmp_path: Path) -> None:
    other = klog("zookeeper", "rebuild", "-z", three.zookeeper, "--dir", tmp_path, "--yes", "-o", "json")
    assert other.code != 0 and "meta.properties" in other.error["message"]
    nameless = klog("zookeeper", "rebuild", "--dir", tmp_path, "--yes", "-o", "json", env={"KLOG_HOME": str(tmp_path)})
    assert nameless.code == 2 and "-z HOST:PORT" in nameless.error["hint"]
