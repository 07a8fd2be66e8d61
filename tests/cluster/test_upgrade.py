"""A cluster of an earlier klog on this one's brokers, and back: one at a time under load.

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


def read_by_group(bootstrap: str, topic: str, count: int) -> list[tuple[int, int]]:
    """(partition, offset) of so many messages that a member of the topic's group is given, and commits."""
    settings = {"group.id": f"g-{topic}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    consumer.subscribe([topic])
    seen: list[tuple[int, int]] = []
    while len(seen) < count:
        message = consumer.poll(GROUP_WAIT_S)
        assert message is not None, f"{len(seen)} of {count} messages"
        if message.error() is None:
            seen.append((message.partition(), message.offset()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return seen


@pytest.mark.long("sources of the release before; test_earlier_tree.py has a tree of the first version")
@pytest.mark.timeout(300)
def test_from_the_last_release_and_back_under_load(
    make_cluster: Callable[..., RunningCluster], topic: str, tmp_path: Path
) -> None:
    try:
        sources = release(LAST, tmp_path / "sources")
    except PeerMissing as error:
        pytest.skip(str(error))
    earlier = ["env", f"PYTHONPATH={sources}", "PYTHONSAFEPATH=1"]
    cluster = make_cluster(default__replication__factor="3", min__insync__replicas="2")
    for broker in cluster.brokers.values():
        broker.wrapper = earlier
    cluster.start()
    cluster.create(topic, PARTITIONS)
    seen: list[tuple[int, int]] = []
    with load(cluster.bootstrap, topic, PARTITIONS) as running:
        for wrapper in ([], earlier):
            for broker_id, broker in cluster.brokers.items():
                assert cluster.stop(broker_id) == 0
                broker.wrapper = wrapper
                cluster.start(broker_id)
                running.wait_for_more(50 * PARTITIONS)
                cluster.wait_in_sync(topic)
            seen += read_by_group(cluster.bootstrap, topic, 100)  # another member each time: the offsets are kept
    assert len(set(seen)) == len(seen)
    judge(running, cluster.bootstrap)
