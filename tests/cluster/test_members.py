"""Who may be a broker of a cluster: not one with another cluster's data, nor one whose id another has."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from tests.cluster.load import produce
from tests.cluster_fixture import RunningCluster

MakeCluster = Callable[..., RunningCluster]
REFUSED_WITHIN_S = 20.0


def test_the_data_of_another_cluster(three: RunningCluster, make_cluster: MakeCluster) -> None:
    other = make_cluster(1).start()
    other.stop(1)
    stranger = three.add(4, other.brokers[1].folder)
    try:
        stranger.start(expect_ready=False)
        assert stranger.process is not None
        assert stranger.process.wait(REFUSED_WITHIN_S) != 0
        assert "cluster" in stranger.log_text.splitlines()[-1] or "cluster" in stranger.log_text[-1000:]
        assert len(three.metadata(topics=[]).brokers) == 3
    finally:
        del three.brokers[4]


def test_an_id_that_a_living_broker_has(three: RunningCluster, topic: str) -> None:
    three.create(topic)
    living = three.brokers[2]
    double = three.add(2, living.folder.with_name("double"))
    try:
        double.start(expect_ready=False)
        assert double.process is not None
        assert double.process.wait(REFUSED_WITHIN_S) != 0
        assert double.logged("broker id 2", living.bootstrap)
    finally:
        three.brokers[2] = living
        three.retired.remove(living)
        shutil.rmtree(double.folder)
    produce(three.bootstrap, topic, [b"undisturbed"])
    three.wait_in_sync(topic)


def test_a_broker_is_added(make_cluster: MakeCluster, topic: str) -> None:
    """It is known to all at once, and gets replicas of what is made from then on; one that joins rules nothing."""
    cluster = make_cluster(1).start()
    cluster.create(topic, factor=1)
    produce(cluster.bootstrap, topic, [b"alone"])
    cluster.add(2)
    cluster.add(3)
    cluster.start()
    assert cluster.controller() == 1
    later = cluster.create(topic + "-later", partitions=3)
    assert {part.leader_id for part in cluster.partitions(later).values()} == {1, 2, 3}
    produce(cluster.brokers[3].bootstrap, later, [b"together"])
