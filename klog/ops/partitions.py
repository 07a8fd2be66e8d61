"""Partitions: who leads, who follows, what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klog.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition. What only its leader knows is None where there is no leader, or where it is no klog."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int | None
    log_end_offset: int | None
    messages: int | None
    bytes: int | None


async def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[PartitionRow]:
    """A row a partition of these topics; UnknownTopicOrPartition names the first that is missing."""
    raise NotImplementedError


async def list_partitions(
    cluster: Cluster,
    topics: Sequence[str] | None = None,
    *,
    under_replicated: bool = False,
    offline: bool = False,
    under_min_isr: bool = False,
) -> list[PartitionRow]:
    """All partitions, or those that any of the chosen filters is about."""
    raise NotImplementedError
