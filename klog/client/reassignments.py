"""Requests to the controller about the placement and leaders of replicas, and to brokers about the bytes they hold.

A plain Kafka cluster gets Kafka's requests. Values that only klog sends (origin, throttle, the reason of a stall) are
then None or empty, and a throttle is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from klog.client.answers import check, error_in
from klog.client.cluster import Cluster
from klog.client.partition_requests import by_partition, by_topic
from klog.errors import BrokerNotAvailable, CannotConnect, KlogError, Refused, TimedOut
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.protocol.klog_apis import COPYING

DESCRIBE_LOG_DIRS_MAX = 4
PREFERRED = 0
"""The protocol's kind of election."""


class Reassigning(NamedTuple):
    """One reassignment in progress. `missing`: target replicas that are not in sync; `throttle`: bytes/s, or 0.

    `state`: copying or stalled; then `reason` is half a sentence. `leader` is None without a leader.
    """

    partition: TopicPartition
    origin: tuple[int, ...]
    target: tuple[int, ...]
    missing: tuple[int, ...]
    leader: int | None
    throttle: int
    state: str
    reason: str

    @property
    def copied(self) -> tuple[int, ...]:
        """The brokers that need a copy."""
        return tuple(one for one in self.target if one not in self.origin)


async def alter_reassignments(
    cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[int] | None], throttle: int = 0
) -> dict[TopicPartition, KlogError | None]:
    """Begin, replace or (None) cancel reassignments. Returns partition -> error or None. Refused: a throttle on plain
    Kafka."""
    if not wanted:
        return {}
    topics = by_topic((name, {"replicas": replicas}) for name, replicas in wanted.items())
    if cluster.is_klog:
        answer = await cluster.to_controller(ApiKey.ALTER_REASSIGNMENTS, 0, throttle=throttle, topics=topics)
        check(answer)
        return {TopicPartition(str(one.topic), int(one.partition_index)): error_in(one) for one in answer.outcomes}
    if throttle:
        raise Refused(
            "this is not a klog cluster: it sets throttles by settings of brokers and topics",
            hint="`kafka-reassign-partitions --throttle` sets them, `--verify` removes them",
        )
    answer = await cluster.to_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics)
    check(answer)
    return {name: error_in(one) for name, one in by_partition(answer.responses)}


async def describe_reassignments(cluster: Cluster) -> list[Reassigning]:
    """Every reassignment in progress, in order."""
    if cluster.is_klog:
        answer = await cluster.to_controller(ApiKey.DESCRIBE_REASSIGNMENTS, 0)
        check(answer)
        return [
            Reassigning(
                TopicPartition(str(one.topic), int(one.partition_index)),
                tuple(one.origin),
                tuple(one.target),
                tuple(one.missing),
                int(one.leader) if one.leader >= 0 else None,
                int(one.throttle),
                str(one.state),
                str(one.reason),
            )
            for one in answer.reassignments
        ]
    answer = await cluster.to_controller(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)
    check(answer)
    metadata = await cluster.metadata([str(topic.name) for topic in answer.topics], fresh=True)
    found = []
    for name, one in by_partition(answer.topics):
        known = metadata.topics[name.topic].partitions[name.partition]
        adding, removing = set(one.adding_replicas), set(one.removing_replicas)
        origin = tuple(int(replica) for replica in one.replicas if replica not in adding)
        target = tuple(int(replica) for replica in one.replicas if replica not in removing)
        missing = tuple(replica for replica in target if replica not in known.isr)
        found.append(Reassigning(name, origin, target, missing, known.leader, 0, COPYING, ""))
    return sorted(found)


async def elect_leaders(
    cluster: Cluster, names: Iterable[TopicPartition] | None
) -> dict[TopicPartition, KlogError | None]:
    """Elect preferred leaders of these partitions, or of all that need it. Returns partition -> error or None."""
    wanted = None if names is None else _numbers(names)
    answer = await cluster.to_controller(ApiKey.ELECT_LEADERS, 2, 1, election_type=PREFERRED, topic_partitions=wanted)
    check(answer)
    return {
        TopicPartition(str(topic.topic), int(one.partition_id)): error_in(one)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }


async def elect_replicas(
    cluster: Cluster, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, KlogError | None]:
    """Have these brokers lead these partitions; they must have in-sync replicas. Partition -> error or None."""
    replicas = [
        {"topic": name.topic, "partition_index": name.partition, "broker_id": broker_id}
        for name, broker_id in wanted.items()
    ]
    answer = await cluster.to_controller(ApiKey.ELECT_REPLICAS, 0, replicas=replicas)
    check(answer)
    return {TopicPartition(str(one.topic), int(one.partition_index)): error_in(one) for one in answer.outcomes}


async def replica_bytes(
    cluster: Cluster, broker_ids: Iterable[int], names: Iterable[TopicPartition]
) -> dict[int, dict[TopicPartition, int]]:
    """Broker id -> the bytes of its replicas of these partitions; brokers that do not answer are left out."""
    wanted = list(dict.fromkeys(broker_ids))
    topics = _numbers(names)
    found = await asyncio.gather(*(_bytes_of(cluster, one, topics) for one in wanted))
    return {one: sizes for one, sizes in zip(wanted, found, strict=True) if sizes is not None}


async def _bytes_of(cluster: Cluster, broker_id: int, topics: list[dict[str, Any]]) -> dict[TopicPartition, int] | None:
    try:
        answer = await cluster.to_broker(broker_id, ApiKey.DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_MAX, 1, topics=topics)
    except (BrokerNotAvailable, CannotConnect, TimedOut):
        return None
    return {name: int(one.partition_size) for folder in answer.results for name, one in by_partition(folder.topics)}


def _numbers(names: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """Partitions by topic, in a request that says nothing else of them."""
    topics: dict[str, list[int]] = {}
    for one in dict.fromkeys(names):
        topics.setdefault(one.topic, []).append(one.partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]
