"""Elections of preferred leaders, on request: the first of each assignment leads, where it is in sync."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from klog.client.cluster import Cluster
from klog.client.metadata import Metadata
from klog.client.reassignments import elect_leaders
from klog.errors import ElectionNotNeeded, PreferredLeaderNotAvailable
from klog.names import TopicPartition
from klog.render.columns import MayFail


@dataclass(frozen=True, slots=True)
class ElectionRow(MayFail):
    """`old` and `new` lead before and after, None: no leader. A row fails where the preferred replica may not lead."""

    topic: str
    partition: int
    old: int | None
    new: int | None


async def elect_preferred(cluster: Cluster, subjects: Sequence[str] = ()) -> list[ElectionRow]:
    """Give partitions back to their preferred leaders: all that are led by others, or those of ``subjects``.

    A subject is a topic, ``orders``, or a partition, ``orders-3``; where both could be meant it is the topic. Raises
    UnknownTopicOrPartition if it is neither.
    """
    before = await cluster.metadata(fresh=True)
    names = await _named(cluster, before, subjects)
    outcome = await elect_leaders(cluster, names)
    if not outcome:
        return []
    after = await cluster.metadata(sorted({name.topic for name in outcome}), fresh=True)
    rows = []
    for name, error in sorted(outcome.items(), key=lambda one: one[0]):
        failed = None if isinstance(error, ElectionNotNeeded) else error
        rows.append(ElectionRow(*name, before.leader_of(name), after.leader_of(name)).failed_by(failed))
    return rows


async def preview_preferred(cluster: Cluster, subjects: Sequence[str] = ()) -> list[ElectionRow]:
    """The rows that `elect_preferred` would have, by the metadata: nothing is elected."""
    metadata = await cluster.metadata(fresh=True)
    names = await _named(cluster, metadata, subjects)
    rows = []
    for name in _all(metadata) if names is None else names:
        one = metadata.topics[name.topic].partitions[name.partition]
        preferred = one.replicas[0]
        if names is None and one.leader == preferred:
            continue
        if one.leader == preferred or (preferred in one.isr and preferred in metadata.brokers):
            rows.append(ElectionRow(*name, one.leader, preferred))
            continue
        why = "is not in sync" if preferred in metadata.brokers else "is not alive"
        error = PreferredLeaderNotAvailable(f"{name}: the preferred replica {preferred} {why}")
        rows.append(ElectionRow(*name, one.leader, one.leader).failed_by(error))
    return rows


def _all(metadata: Metadata) -> list[TopicPartition]:
    return [name for topic in metadata.topics.values() for name in topic.names()]


async def _named(cluster: Cluster, metadata: Metadata, subjects: Sequence[str]) -> list[TopicPartition] | None:
    """The partitions of the subjects, sorted; None without one, for all."""
    if not subjects:
        return None
    return sorted({one for subject in subjects for one in await _partitions(cluster, metadata, subject)})


async def _partitions(cluster: Cluster, metadata: Metadata, subject: str) -> list[TopicPartition]:
    name, _, number = subject.rpartition("-")
    if subject not in metadata.topics and name in metadata.topics and number.isdecimal():
        metadata.topics[name].check([int(number)])
        return [TopicPartition(name, int(number))]
    return (await cluster.topic(subject)).names()
