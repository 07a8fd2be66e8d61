"""Elections of preferred leaders, on request: the first of each assignment leads, where it is in sync."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.errors import ElectionNotNeeded
from klog.names import TopicPartition

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.client.metadata import Metadata


@dataclass(frozen=True, slots=True)
class ElectionRow:
    """`old` and `new` lead before and after, None: no leader. A row fails where the preferred replica may not lead."""

    topic: str
    partition: int
    old: int | None
    new: int | None
    error: str | None = None
    message: str | None = None


async def elect_preferred(cluster: Cluster, topic: str | None = None) -> list[ElectionRow]:
    """Give partitions back to their preferred leaders: all that are led by others, or those of one topic, all of it.

    UnknownTopicOrPartition where there is no such topic.
    """
    from klog.client.reassignments import elect_leaders

    if topic is not None:
        await cluster.topic(topic, fresh=True)
    before = await cluster.metadata(None if topic is None else [topic], fresh=True)
    names = None
    if topic is not None:
        names = [TopicPartition(topic, number) for number in before.topics[topic].partitions]
    outcome = await elect_leaders(cluster, names)
    if not outcome:
        return []
    after = await cluster.metadata(sorted({name.topic for name in outcome}), fresh=True)
    rows = []
    for name, error in sorted(outcome.items(), key=lambda one: one[0]):
        failed = None if isinstance(error, ElectionNotNeeded) else error
        rows.append(
            ElectionRow(
                *name,
                _leader(before, name),
                _leader(after, name),
                failed.code if failed else None,
                failed.message if failed else None,
            )
        )
    return rows


def _leader(metadata: Metadata, name: TopicPartition) -> int | None:
    topic = metadata.topics.get(name.topic)
    found = None if topic is None else topic.partitions.get(name.partition)
    return None if found is None else found.leader
