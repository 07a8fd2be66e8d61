"""Partitions: who leads, who follows, what is in them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.client.positions import EARLIEST, LATEST
from klog.errors import KlogError, LeaderNotAvailable
from klog.names import TopicPartition

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.client.metadata import TopicNode

CLEANUP_POLICY: Final = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class PartitionRow:
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
    error: str | None = None
    message: str | None = None


class Extent(NamedTuple):
    """A leader's answer about its log; ``messages`` and ``bytes`` are None on plain Kafka, or while it is counting.

    ``failure``: why its leader could not be asked. A missing leader does not count as a failure.
    """

    start_offset: int | None
    end_offset: int | None
    messages: int | None
    bytes: int | None
    failure: KlogError | None = None


UNKNOWN = Extent(None, None, None, None)


async def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[PartitionRow]:
    """One row per partition of these topics; UnknownTopicOrPartition names the first that is missing."""
    await cluster.metadata(names)
    topics = [await cluster.topic(name) for name in dict.fromkeys(names)]
    return await _rows(cluster, topics)


async def replica_bytes(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    """Topic -> bytes of all its replicas together, as far as its leaders answer."""
    sizes = dict.fromkeys(names, 0)
    for row in await describe_topics(cluster, names):
        sizes[row.topic] += (row.bytes or 0) * len(row.replicas)
    return sizes


async def uncompacted(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    """`replica_bytes` of those among these topics whose cleanup.policy has compact: klog compacts nothing yet."""
    from klog.admin.settings import describe_settings

    told = await describe_settings(cluster, names, names=[CLEANUP_POLICY])
    asking = [name for name, settings in told.items() if any("compact" in (one.value or "") for one in settings)]
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
        rows = await _rows(cluster, list((await cluster.metadata()).topics.values()))
    if not (under_replicated or offline or under_min_isr or at_min_isr):
        return rows
    from klog.admin.settings import min_isr
    from klog.config.topic import effective_min_isr

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


async def extents(cluster: Cluster, topics: Sequence[TopicNode]) -> dict[TopicPartition, Extent]:
    """Start, end, messages and bytes of every partition, each asked of its leader; UNKNOWN where it has none."""
    from klog.client import leader_requests

    wanted = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
    if not wanted:
        return {}
    if cluster.is_klog:  # one question brings all four, of one moment
        span = (EARLIEST, LATEST)
        counted = await cluster.to_leaders(dict.fromkeys(wanted, span), leader_requests.count_messages)
        return {one: _extent(counted[one]) for one in wanted}
    starts, ends = await asyncio.gather(
        cluster.to_leaders(dict.fromkeys(wanted, EARLIEST), leader_requests.list_offsets),
        cluster.to_leaders(dict.fromkeys(wanted, LATEST), leader_requests.list_offsets),
    )
    return {
        one: Extent(_offset(starts[one]), _offset(ends[one]), None, None, _failure(starts[one]) or _failure(ends[one]))
        for one in wanted
    }


def _extent(counted: object) -> Extent:
    from klog.client.leader_requests import Counted

    if not isinstance(counted, Counted):
        return UNKNOWN._replace(failure=_failure(counted))
    return Extent(counted.from_offset, counted.to_offset, counted.messages, counted.bytes)


def _offset(found: object) -> int | None:
    return None if isinstance(found, KlogError) else getattr(found, "offset", None)


def _failure(found: object) -> KlogError | None:
    return found if isinstance(found, KlogError) and not isinstance(found, LeaderNotAvailable) else None


def told(failure: KlogError | None) -> tuple[str | None, str | None]:
    """``error`` and ``message`` of a row."""
    return (None, None) if failure is None else (failure.code, failure.message)


async def _rows(cluster: Cluster, topics: Sequence[TopicNode]) -> list[PartitionRow]:
    found = await extents(cluster, topics)
    rows = []
    for topic in topics:
        for one in topic.partitions.values():
            extent = found[TopicPartition(topic.name, one.partition)]
            rows.append(
                PartitionRow(
                    topic.name,
                    one.partition,
                    one.leader,
                    one.leader_epoch,
                    one.replicas,
                    one.isr,
                    extent.start_offset,
                    extent.end_offset,
                    extent.messages,
                    extent.bytes,
                    *told(extent.failure),
                )
            )
    return rows
