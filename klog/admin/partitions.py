"""Partitions: who leads, who follows, what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from klog.admin.settings import min_isr, topic_values
from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.metadata import TopicNode
from klog.config.topic import effective_min_isr
from klog.errors import KlogError, LeaderNotAvailable
from klog.names import TopicPartition
from klog.render.columns import MayFail

CLEANUP_POLICY: Final = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class PartitionRow(MayFail):
    """One partition. What only its leader knows is None where there is no leader, or where the leader is not klog.

    Where its leader did not answer, ``error`` is the code of why, and ``message`` the sentence.
    """

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None = field(metadata={"rank": 4})
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int | None = field(metadata={"rank": 3})
    log_end_offset: int | None
    messages: int | None
    bytes: int | None = field(metadata={"rank": 2})


async def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[PartitionRow]:
    """One row per partition of these topics; UnknownTopicOrPartition names the first that is missing."""
    await cluster.metadata(names)
    topics = [await cluster.topic(name) for name in dict.fromkeys(names)]
    return await rows_of(cluster, topics)


async def replica_bytes(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    """Topic -> bytes of all its replicas together, as far as its leaders answer."""
    sizes = dict.fromkeys(names, 0)
    for row in await describe_topics(cluster, names):
        sizes[row.topic] += (row.bytes or 0) * len(row.replicas)
    return sizes


async def uncompacted(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    """`replica_bytes` of those among these topics whose cleanup.policy has compact: klog compacts nothing yet."""
    found = await topic_values(cluster, names, [CLEANUP_POLICY])
    asking = [name for name, values in found.items() if "compact" in (values.get(CLEANUP_POLICY) or "")]
    return await replica_bytes(cluster, asking)


async def list_partitions(
    cluster: Cluster,
    topics: Sequence[str] | None = None,
    *,
    under_replicated: bool = False,
    offline: bool = False,
    under_min_isr: bool = False,
    at_min_isr: bool = False,
) -> list[PartitionRow]:
    """All partitions, or those that any of the chosen filters is about."""
    if topics:
        rows = await describe_topics(cluster, topics)
    else:
        rows = await rows_of(cluster, (await cluster.metadata()).topics.values())
    if not (under_replicated or offline or under_min_isr or at_min_isr):
        return rows
    topic_names = sorted({row.topic for row in rows})
    minimum = await min_isr(cluster, topic_names) if under_min_isr or at_min_isr else {}

    def spare(row: PartitionRow) -> int:
        """In-sync replicas beyond the least that acks=all needs."""
        return len(row.isr) - effective_min_isr(minimum.get(row.topic, 1), len(row.replicas))

    return [
        row
        for row in rows
        if (under_replicated and len(row.isr) < len(row.replicas))
        or (offline and row.leader is None)
        or (under_min_isr and spare(row) < 0)
        or (at_min_isr and spare(row) == 0)
    ]


async def rows_of(cluster: Cluster, topics: Iterable[TopicNode]) -> list[PartitionRow]:
    """Every partition of these topics, with what its leader says of the log."""
    nodes = {TopicPartition(topic.name, one.partition): one for topic in topics for one in topic.partitions.values()}
    if not nodes:
        return []
    answers = await cluster.to_leaders(dict.fromkeys(nodes, ()), leader_requests.measure)
    rows = []
    for name, one in nodes.items():
        answer = answers[name]
        if isinstance(answer, KlogError):
            failed = None if isinstance(answer, LeaderNotAvailable) else answer
            rows.append(PartitionRow(name.topic, *one, None, None, None, None).failed_by(failed))
        else:
            rows.append(PartitionRow(name.topic, *one, *answer[:4]))
    return rows
