"""Brokers are stopped in order and started again, one after the other, under load: clients notice nothing.

A client with retries sees no failed request, each message is there once, and leaders have moved before their broker
left, so that no partition was without one for as long as a dead broker takes to be noticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.cluster.load import judge, load, produce
from tests.cluster.replica_bytes import assert_identical
from tests.cluster_fixture import RunningCluster

Record = Callable[[str, object], None]
PARTITIONS = 3


def test_a_rolling_restart_under_load(three: RunningCluster, topic: str, record_property: Record) -> None:
    """The last replica of a partition, which has nobody to give it to, stops in time too and leads again."""
    three.create(topic, PARTITIONS)
    alone = three.create(f"{topic}-alone", assignment=[[2]])
    offsets = produce(three.bootstrap, alone, [b"one", b"two"])
    begun = time.monotonic()
    with load(three.bootstrap, topic, PARTITIONS) as running:
        for broker_id in three.brokers:
            assert three.stop(broker_id) == 0
            check_moved(three, topic, broker_id)
            running.wait_for_more(10 * PARTITIONS)
            three.start(broker_id)
            three.wait_in_sync(topic)
        record_property("s_in_all", round(time.monotonic() - begun, 3))
        record_property("longest_s_without_ack", round(running.longest_gap_s(), 3))
        running.wait_for_more(30)
    judge(running, three.bootstrap)
    assert_identical(three, topic, PARTITIONS)
    assert produce(three.bootstrap, alone, [b"three"])[0] > offsets[-1]


def check_moved(three: RunningCluster, topic: str, leaving: int) -> None:
    """When its process has ended all that it led is led by others, it is out of every ISR, and soon listed no more."""
    rest = set(three.brokers) - {leaving}
    for one in rest:
        for number, part in three.partitions(topic, one).items():
            assert part.leader_id in rest, f"partition {number} by broker {one}: {part}"
            assert set(part.isr_nodes) == rest, f"partition {number} by broker {one}: {part}"
    three.wait_until(lambda: leaving not in listed(three), "it is listed no more")


def listed(three: RunningCluster) -> set[int]:
    """The brokers that Metadata names."""
    return {int(broker.node_id) for broker in three.metadata(topics=[]).brokers}
