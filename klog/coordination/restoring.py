"""Restores topics and partition states in rebuilt registries (`klog zookeeper rebuild`).

There is no other writer yet: a broker enters a cluster only if its id is in ZooKeeper, and the id is written last. So
anything found there is from an interrupted rebuild, or belongs to another cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from klog.coordination import entries, partition_states, paths, topics
from klog.coordination.partition_states import PartitionState
from klog.coordination.topics import Topic
from klog.coordination.zookeeper import Create, ZooKeeper
from klog.errors import NodeExists, Refused
from klog.names import TopicPartition


def restore_topic(zookeeper: ZooKeeper, known: Topic, settings: Mapping[str, str]) -> None:
    """Create a topic under its old id, with its settings. The same topic may already exist.

    Raises Refused if another topic of that name exists.
    """
    written = [
        Create(paths.topic_config(known.name), entries.encode({"version": 1, "config": dict(settings)})),
        Create(paths.topic_epoch(known.name), b"0"),
        Create(paths.topic(known.name), topics.encode(known)),
    ]
    try:
        zookeeper.commit(written)
    except NodeExists:
        if not zookeeper.holds(written):
            raise Refused(
                f"ZooKeeper {zookeeper.address} has another topic {known.name!r}",
                hint="name an empty chroot: --zookeeper host:port/chroot",
            ) from None


def restore_states(zookeeper: ZooKeeper, states: Mapping[TopicPartition, PartitionState]) -> None:
    """Create states of partitions, at version 0. The same states may already exist.

    Raises Refused if a partition has another state.
    """
    there = partition_states.read_many(zookeeper, states)
    for name, found in there.items():
        if found is not None and replace(found, version=-1) != states[name]:
            raise Refused(
                f"ZooKeeper node {paths.partition_state(name.topic, name.partition)} holds another state",
                hint="name an empty chroot: --zookeeper host:port/chroot",
            )
    missing = {name: states[name] for name, found in there.items() if found is None}
    if missing:
        partition_states.create_many(zookeeper, missing, ())
