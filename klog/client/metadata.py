"""A cluster's metadata: brokers, topics, partitions, leaders. Plain values, immutable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from klog.errors import BrokerNotAvailable, UnknownTopicOrPartition
from klog.names import TopicPartition, counted, host_port

NO_TOPIC_ID = "00000000-0000-0000-0000-000000000000"


class BrokerNode(NamedTuple):
    """A broker at the address that it advertises to clients."""

    broker_id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> str:
        return host_port(self.host, self.port)


class PartitionNode(NamedTuple):
    """``leader`` is None without a leader; ``leader_epoch`` is None if the broker is too old to give it."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


class TopicNode(NamedTuple):
    """``partitions`` by their number, in order. ``topic_id`` is None if the broker does not send one."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: Mapping[int, PartitionNode]

    @property
    def replication_factor(self) -> int:
        """The first partition's, as other tools show it."""
        return len(next(iter(self.partitions.values())).replicas) if self.partitions else 0

    def names(self, only: Iterable[int] | None = None) -> list[TopicPartition]:
        """Its partitions, or those of these numbers."""
        return [TopicPartition(self.name, one) for one in (self.partitions if only is None else only)]

    def lacking(self, wanted: Iterable[int]) -> UnknownTopicOrPartition | None:
        """The error that names those of these partitions that it does not have."""
        missing = sorted({one for one in wanted if one not in self.partitions})
        if not missing:
            return None
        count = len(self.partitions)
        return UnknownTopicOrPartition(
            f"topic {self.name!r} has {counted(count, 'partition')} (0 to {count - 1}),"
            f" no partition {','.join(map(str, missing))}"
        )

    def check(self, wanted: Iterable[int]) -> None:
        """UnknownTopicOrPartition for those that it does not have."""
        error = self.lacking(wanted)
        if error is not None:
            raise error


class Metadata(NamedTuple):
    """One answer of one broker."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerNode]
    topics: Mapping[str, TopicNode]
    errors: Mapping[str, int]
    """Requested topic -> the error's number on the wire, if it does not exist or cannot be described."""

    @property
    def partitions(self) -> list[PartitionNode]:
        """Those of all topics."""
        return [one for topic in self.topics.values() for one in topic.partitions.values()]

    @property
    def dead(self) -> set[int]:
        """The brokers that have replicas and are not alive."""
        return {broker for one in self.partitions for broker in one.replicas} - self.brokers.keys()

    def live(self, broker_id: int) -> BrokerNode:
        """A live broker; BrokerNotAvailable, naming those there are."""
        node = self.brokers.get(broker_id)
        if node is None:
            live = ", ".join(map(str, self.brokers)) or "none"
            raise BrokerNotAvailable(f"no live broker {broker_id}", hint=f"live brokers: {live}")
        return node

    def lacking(self, name: TopicPartition) -> UnknownTopicOrPartition | None:
        """The error where there is no such topic, or no such partition of it."""
        topic = self.topics.get(name.topic)
        if topic is None:
            return UnknownTopicOrPartition.of_topics(name.topic)
        return topic.lacking([name.partition])

    def leader_of(self, name: TopicPartition) -> int | None:
        """The leader's id; None without a leader, and for a partition that is not here."""
        topic = self.topics.get(name.topic)
        found = None if topic is None else topic.partitions.get(name.partition)
        return None if found is None else found.leader


def metadata_fields(topics: Iterable[str] | None) -> dict[str, Any]:
    """Of a Metadata request for these topics, or all, which makes none."""
    return {
        "topics": None if topics is None else [{"name": name, "topic_id": None} for name in topics],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def metadata_of(answer: Any) -> Metadata:
    """The plain values of a Metadata response of version 4 or later."""
    topics, errors = {}, {}
    for topic in answer.topics:
        if topic.error_code != 0 and not topic.partitions:
            errors[str(topic.name)] = int(topic.error_code)
            continue
        topic_id = getattr(topic, "topic_id", None)
        topics[str(topic.name)] = TopicNode(
            str(topic.name),
            None if topic_id is None or str(topic_id) == NO_TOPIC_ID else str(topic_id),
            bool(topic.is_internal),
            {one.partition: one for one in sorted(map(_partition_of, topic.partitions))},
        )
    controller_id = int(answer.controller_id)
    return Metadata(
        answer.cluster_id,
        controller_id if controller_id >= 0 else None,
        {
            int(one.node_id): BrokerNode(int(one.node_id), str(one.host), int(one.port), one.rack)
            for one in sorted(answer.brokers, key=lambda one: int(one.node_id))
        },
        dict(sorted(topics.items())),
        errors,
    )


def _partition_of(answer: Any) -> PartitionNode:
    leader, epoch = int(answer.leader_id), int(getattr(answer, "leader_epoch", -1))
    return PartitionNode(
        int(answer.partition_index),
        leader if leader >= 0 else None,
        epoch if epoch >= 0 else None,
        tuple(map(int, answer.replica_nodes)),
        tuple(map(int, answer.isr_nodes)),
    )
