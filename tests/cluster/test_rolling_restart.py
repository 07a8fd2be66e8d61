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
PARTITIONS = 6


def test_a_rolling_restart_under_load(three: RunningCluster, topic: str, record_property: Record) -> None:
    three.create(topic, PARTITIONS)
    begun = time.monotonic()
    with load(three.bootstrap, topic, PARTITIONS) as running:
        for broker_id in three.brokers:
            assert three.stop(broker_id) == 0
            running.wait_for_more(20 * PARTITIONS)
            three.start(broker_id)
            three.wait_in_sync(topic)
        record_property("s_in_all", round(time.monotonic() - begun, 3))
        record_property("longest_s_without_ack", round(running.longest_gap_s(), 3))
        running.wait_for_more(100)
    assert running.failed == []
    judge(running, three.bootstrap)
    assert_identical(three, topic, PARTITIONS)


def test_leaders_move_before_a_broker_leaves(three: RunningCluster, topic: str) -> None:
    """When its process has ended all that it led is led by others, and it is out of every ISR."""
    three.create(topic, PARTITIONS)
    leaving = three.leader_of(topic)
    assert three.stop(leaving) == 0
    rest = set(three.brokers) - {leaving}
    for one in rest:
        for number, part in three.partitions(topic, one).items():
            assert part.leader_id in rest, f"partition {number} by broker {one}: {part}"
            assert set(part.isr_nodes) == rest, f"partition {number} by broker {one}: {part}"
    three.wait_until(lambda: leaving not in listed(three), "it is listed no more")


def listed(three: RunningCluster) -> set[int]:
    """The brokers that Metadata names."""
    return {int(broker.node_id) for broker in three.metadata(topics=[]).brokers}


def test_the_last_broker_of_a_partition_stops_in_order_too(three: RunningCluster, topic: str) -> None:
    """It has nobody to give its partitions to; it stops in time and leads again when it is back, with all it had."""
    three.create(topic, assignment=[[2]])
    offsets = produce(three.bootstrap, topic, [b"one", b"two"])
    assert three.stop(2) == 0
    three.wait_until(lambda: three.leader_of(topic) == -1, "nobody leads it")
    three.start(2)
    three.wait_for_leader(topic)
    assert produce(three.bootstrap, topic, [b"three"])[0] > offsets[-1]
