"""A cluster of an earlier klog on this one's brokers, and back: one at a time under load, or all at once.

The earlier klog is taken from the repository's history; it runs with the packages that are installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from bench.klog_system import LAST, release
from bench.maven import PeerMissing
from tests.cluster.load import judge, load
from tests.cluster_fixture import RunningCluster

PARTITIONS = 3
GROUP_WAIT_S = 30.0


def earlier(name: str, folder: Path) -> list[str]:
    """What a command of that klog is run by."""
    try:
        sources = release(name, folder)
    except PeerMissing as error:
        pytest.skip(str(error))
    return ["env", f"PYTHONPATH={sources}", "PYTHONSAFEPATH=1"]


def run_by(cluster: RunningCluster, broker_id: int, wrapper: list[str]) -> None:
    """Stop that broker in order, and start it again as that klog's."""
    assert cluster.stop(broker_id) == 0
    cluster.brokers[broker_id].wrapper = wrapper
    cluster.start(broker_id)


@pytest.fixture
def started(make_cluster: Callable[..., RunningCluster], tmp_path: Path) -> Callable[..., RunningCluster]:
    """Starts three brokers of an earlier klog; what runs them is `wrapper` of each."""

    def start(name: str, **settings: str) -> RunningCluster:
        wrapper = earlier(name, tmp_path / "sources")
        cluster = make_cluster(default__replication__factor="3", **settings)
        for broker in cluster.brokers.values():
            broker.wrapper = wrapper
        return cluster.start()

    return start


class Member:
    """A stock consumer of a group, which commits what it has been given."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.seen: list[tuple[int, int]] = []
        settings = {"group.id": f"g-{topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
        self._consumer.subscribe([topic])

    def read_up_to(self, count: int) -> None:
        """Until it has been given so many messages in all, and committed them."""
        while len(self.seen) < count:
            message = self._consumer.poll(GROUP_WAIT_S)
            assert message is not None, f"{len(self.seen)} of {count} messages"
            if message.error() is None:
                self.seen.append((message.partition(), message.offset()))
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.long("sources of the release before; test_earlier_tree.py has a tree of the first version")
@pytest.mark.timeout(300)
def test_from_the_last_release_and_back_under_load(started: Callable[..., RunningCluster], topic: str) -> None:
    cluster = started(LAST, min__insync__replicas="2")
    wrapper = cluster.brokers[1].wrapper
    cluster.create(topic, PARTITIONS)
    seen: list[tuple[int, int]] = []
    with load(cluster.bootstrap, topic, PARTITIONS) as running:
        for version in ([], wrapper):
            for broker_id in cluster.brokers:
                run_by(cluster, broker_id, version)
                running.wait_for_more(50 * PARTITIONS)
                cluster.wait_in_sync(topic)
            member = Member(cluster.bootstrap, topic)  # another one each time: the group's offsets are kept
            member.read_up_to(100)
            member.close()
            seen += member.seen
    assert len(set(seen)) == len(seen)
    judge(running, cluster.bootstrap)
