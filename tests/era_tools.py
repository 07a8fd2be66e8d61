"""What ZooKeeper-era tools write to have something done: kafka-reassign-partitions and its like, up to Kafka 2.4."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from kazoo.client import KazooClient

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


def make_topic(
    client: KazooClient, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, str] | None = None
) -> None:
    """kafka-topics --create: the settings, if there are any, and then the assignment."""
    if config:
        _put(client, f"/config/topics/{topic}", {"version": 1, "config": dict(config)})
    client.create(f"/brokers/topics/{topic}", _json(_assigned(assignment)))


def grow_topic(client: KazooClient, topic: str, assignment: Mapping[int, Sequence[int]]) -> None:
    """kafka-topics --alter --partitions: the whole assignment, and nothing of what else stood there."""
    client.set(f"/brokers/topics/{topic}", _json(_assigned(assignment)))


def change_settings(client: KazooClient, topic: str, config: Mapping[str, str]) -> None:
    """kafka-topics --alter --config: the settings, and a notice of it."""
    _put(client, f"/config/topics/{topic}", {"version": 1, "config": dict(config)})
    notify(client, json.dumps(topic).encode())


def notify(client: KazooClient, data: bytes) -> None:
    """A notice of changed settings."""
    client.create("/config/changes/config_change_", data, sequence=True)


def delete_topic(client: KazooClient, topic: str) -> None:
    """kafka-topics --delete."""
    client.create(f"/admin/delete_topics/{topic}", b"")


def _assigned(assignment: Mapping[int, Sequence[int]]) -> dict[str, object]:
    return {"version": 1, "partitions": {str(number): list(ids) for number, ids in assignment.items()}}


def _put(client: KazooClient, path: str, entry: Mapping[str, object]) -> None:
    if client.exists(path):
        client.set(path, _json(entry))
    else:
        client.create(path, _json(entry))


def _json(entry: Mapping[str, object]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode()
