"""The state of one partition, for tests that look at one."""

from __future__ import annotations

from collections.abc import Sequence

from klog.coordination import partition_states
from klog.coordination.partition_states import PartitionState
from klog.coordination.zookeeper import Check, ZooKeeper
from klog.names import TopicPartition


def read_state(zookeeper: ZooKeeper, name: TopicPartition) -> PartitionState | None:
    return partition_states.read_many(zookeeper, [name])[name]


def write_state(
    zookeeper: ZooKeeper, name: TopicPartition, state: PartitionState, fence: Sequence[Check] = ()
) -> PartitionState:
    return partition_states.write_many(zookeeper, {name: state}, fence)[name]
