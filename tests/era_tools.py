"""What ZooKeeper-era tools write to have something done: kafka-reassign-partitions and its like, up to Kafka 2.4."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition


def ask_reassignments(zookeeper: ZooKeeper, wanted: Mapping[TopicPartition, Sequence[int]]) -> None:
    """kafka-reassign-partitions --zookeeper --execute; NodeExists while an earlier request stands there."""
    partitions = [
        {"topic": one.topic, "partition": one.partition, "replicas": list(ids)} for one, ids in wanted.items()
    ]
    _make(zookeeper, "/admin/reassign_partitions", partitions)


def ask_elections(zookeeper: ZooKeeper, wanted: Iterable[TopicPartition]) -> None:
    """kafka-preferred-replica-election; NodeExists while an earlier request stands there."""
    partitions = [{"topic": one.topic, "partition": one.partition} for one in wanted]
    _make(zookeeper, "/admin/preferred_replica_election", partitions)


def _make(zookeeper: ZooKeeper, path: str, partitions: list[dict[str, object]]) -> None:
    zookeeper.create(path, json.dumps({"version": 1, "partitions": partitions}).encode(), parents=True)
