"""Topics and states as they were, written into registries that are made anew (`klog registry rebuild`).

Nobody else writes there yet: no broker enters a cluster whose id is not there, and that is written last. So what is
found there is of a rebuild that was cut off, or of somebody else.
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
    """A topic under the id that it had, with its settings; one that is there already, just so, stays.

    Refused where another stands there.
    """
    written = [
        Create(paths.topic_config(known.name), entries.encode({"version": 1, "config": dict(settings)})),
        Create(paths.topic_epoch(known.name), b"0"),
        Create(paths.topic(known.name), topics.encode(known)),
    ]

    def stands() -> bool:
        found = zookeeper.get_many([one.path for one in written])
        return all(node is not None and node.data == one.data for node, one in zip(found, written, strict=True))

    try:
        zookeeper.commit(written, stands)
    except NodeExists:
        if not stands():
            raise Refused(
                f"ZooKeeper {zookeeper.address} has another topic {known.name!r}",
                hint="name an empty chroot: --zookeeper host:port/chroot",
            ) from None


def restore_states(zookeeper: ZooKeeper, states: Mapping[TopicPartition, PartitionState]) -> None:
    """States of partitions, at version 0; those that are there already, just so, stay.

    Refused where another stands there.
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
