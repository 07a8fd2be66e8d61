"""The topics of an export as the cluster has them now, and where each partition goes on."""

from __future__ import annotations

from collections.abc import Sequence

from klog.client.metadata import TopicNode
from klog.client.raw_fetch import RawCluster
from klog.errors import Refused, UnknownTopicOrPartition, UsageError
from klog.export.manifest import ExportIdentity, Manifest
from klog.export.root import ExportRoot
from klog.names import TopicPartition, near_hint


def describe(
    cluster: RawCluster, place: ExportRoot, known: ExportIdentity | None, topics: Sequence[str]
) -> dict[str, TopicNode]:
    """The topics of this export as the cluster has them."""
    wanted = sorted(set(topics)) or sorted(known.topic_ids if known else ())
    if not wanted:
        raise UsageError("name the topics to export")
    if known is not None and wanted != sorted(known.topic_ids):
        raise Refused(
            f"{place} is the export of {', '.join(sorted(known.topic_ids))}, not of {', '.join(wanted)}",
            hint="the topics of an export are fixed by its first run; export others to another folder",
        )
    facts = cluster.describe(wanted)
    missing = [topic for topic in wanted if topic not in facts]
    if missing:
        hint = near_hint(missing[0], cluster.describe(), "klog topic list shows all")
        raise UnknownTopicOrPartition.of_topics(*missing, hint=hint)
    return facts


def partitions_of(facts: dict[str, TopicNode]) -> list[TopicPartition]:
    return [TopicPartition(one.name, partition) for one in facts.values() for partition in sorted(one.partitions)]


def check_same(place: ExportRoot, known: ExportIdentity, facts: dict[str, TopicNode], cluster_id: str | None) -> None:
    """Refused where the cluster or a topic is not the one that this export began with."""
    if sorted(known.topic_ids) != sorted(facts):  # another first run was quicker
        raise Refused(f"{place} is the export of {', '.join(sorted(known.topic_ids))}")
    if known.cluster_id is not None and cluster_id is not None and known.cluster_id != cluster_id:
        raise Refused(
            f"{place} was exported from cluster {known.cluster_id}; this one is {cluster_id}",
            hint="its offsets mean nothing here; export to another folder",
        )
    for topic, topic_id in known.topic_ids.items():
        now = facts[topic].topic_id
        if topic_id is not None and now is not None and topic_id != now:
            raise Refused(
                f"topic {topic} was deleted and made again: {place} was exported from {topic_id}, it is now {now}",
                hint="the old offsets mean nothing in the new topic; export to another folder",
            )


def exported_to(
    known: ExportIdentity, last: Manifest | None, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where each partition goes on: behind the last batch, else where the export began, else (a partition that the
    topic has got since) at its very beginning."""
    return {
        one: last.partitions[one].to_offset if last and one in last.partitions else known.initial.get(one, 0)
        for one in partitions
    }
