"""Leaders go back to where placement wanted them by themselves (``auto.leader.rebalance.enable``)."""

from __future__ import annotations

import re
from collections.abc import Callable

from klog.protocol.apis import ApiKey
from tests.cluster_fixture import RunningCluster


def test_preferred_leaders_lead_again_by_themselves(make_cluster: Callable[..., RunningCluster], topic: str) -> None:
    """Nobody asks for it. A broker that lacks no more than its share of what it is preferred for is let be."""
    cluster = make_cluster(
        2, leader__imbalance__check__interval__seconds="1", leader__imbalance__per__broker__percentage="50"
    ).start()
    cluster.create(topic, assignment=[[1, 2], [1, 2], [2, 1]])
    other = cluster.create(f"{topic}-other", assignment=[[1, 2]])
    move(cluster, topic, 2, [1, 2])
    move(cluster, other, 0, [2, 1])
    # Broker 2 leads nothing of the one partition it is preferred for, broker 1 two of its three.
    cluster.wait_until(lambda: cluster.leader_of(other) == 2, f"{other} is given back to broker 2")
    assert leaders(cluster, topic) == [1, 1, 2]

    assert cluster.stop(1) == 0
    cluster.wait_until(lambda: leaders(cluster, topic) == [2, 2, 2], "broker 2 leads all")
    cluster.start(1)
    cluster.wait_in_sync(topic)
    # All at once, or what was in sync when it was looked: one of three is let be.
    cluster.wait_until(lambda: leaders(cluster, topic).count(1) >= 2, "broker 1 gets its share again")
    assert cluster.leader_of(other) == 2
    told = "\n".join(broker.log_text for broker in cluster.brokers.values())
    assert re.search(r"controller\.elections: .*\b1 partitions?\b", told)


def leaders(cluster: RunningCluster, topic: str) -> list[int]:
    return [int(one.leader_id) for _, one in sorted(cluster.partitions(topic).items())]


def move(cluster: RunningCluster, topic: str, partition: int, wanted: list[int]) -> None:
    """The same replicas in another order: who leads stays, who is preferred does not."""
    cluster.ask(
        1,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "replicas": wanted}]}],
    )
    cluster.wait_until(
        lambda: list(map(int, cluster.partitions(topic)[partition].replica_nodes)) == wanted, "reassigned"
    )
