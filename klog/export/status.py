"""`klog export status`: how far an export is behind its topics. Blocks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from klog.client.positions import LATEST
from klog.client.raw_fetch import Range, RawCluster
from klog.errors import KlogError
from klog.export.manifest import ExportIdentity
from klog.export.root import ExportRoot
from klog.export.rows import ExportStatus
from klog.export.stores.store import Store
from klog.export.topics import check_same, describe, exported_to, partitions_of
from klog.names import TopicPartition
from klog.record.records import records_in


def status(bootstrap: str, root: str) -> list[ExportStatus]:
    """A row for each partition of the export's topics.

    NoSuchThing where there is no export, Refused where the cluster or a topic is not the one that was exported.
    """
    place = ExportRoot(root)
    known = place.existing_identity()
    with RawCluster(bootstrap) as cluster:
        exported = _exported(cluster, place, known)
        earliest, latest = cluster.bounds(exported)
        behind = {
            one: Range(one.topic, one.partition, max(exported[one], earliest[one]), latest[one])
            for one in exported
            if exported[one] < latest[one]
        }
        counts = cluster.counts(behind.values())
        undecodable = {} if known.decode is None else place.settled(lambda: _undecodable(place))
        return [
            ExportStatus(
                one.topic,
                one.partition,
                exported=exported[one],
                log_end_offset=latest[one],
                lag=counts[behind[one]] if one in behind else 0,
                lag_ms=_age_ms(cluster, behind[one]) if one in behind else 0,
                log_start_offset=earliest[one],
                undecodable=undecodable.get(one, 0),
            )
            for one in exported
        ]


def waiting_bytes(bootstrap: str, root: str | Store) -> int:
    """Bytes of log that the next run would export, by their addresses; 0 where that is not known: the run says why."""
    try:
        place = ExportRoot(root)
        known = place.existing_identity()
        with RawCluster(bootstrap) as cluster:
            exported = _exported(cluster, place, known)
            latest = cluster.offsets(dict.fromkeys(exported, LATEST))
    except KlogError:
        return 0
    return sum(latest[one] - offset for one, offset in exported.items())


def _exported(cluster: RawCluster, place: ExportRoot, known: ExportIdentity) -> dict[TopicPartition, int]:
    """The first offset that is not exported, of each partition. Refused for another cluster or topic."""
    facts = describe(cluster, place, known, ())
    check_same(place, known, facts, cluster.cluster_id)
    last = place.last()
    return exported_to(known, last[0] if last else None, partitions_of(facts))


def _undecodable(place: ExportRoot) -> Counter[TopicPartition]:
    """By partition, over all batches."""
    found: Counter[TopicPartition] = Counter()
    for batch in place.batch_numbers():
        manifest, _ = place.manifest(batch)
        found.update({one: part.undecodable for one, part in manifest.partitions.items()})
    return found


def losses(rows: Sequence[ExportStatus]) -> list[str]:
    """Messages that are gone, so no run can export them. The lag does not count them, and the next run fails."""
    found = []
    for row in rows:
        name = f"{row.topic}-{row.partition}"
        if row.log_start_offset is not None and row.exported < row.log_start_offset:
            lost = f"[{row.exported}, {row.log_start_offset})"
            found.append(f"{name}: {lost} was removed before it was exported; runs go on with --allow-gaps alone")
        if row.log_end_offset is not None and row.log_end_offset < row.exported:
            found.append(
                f"{name}: its log ends at {row.log_end_offset}, before {row.exported}, where the export stopped"
            )
    return found


def _age_ms(cluster: RawCluster, wanted: Range) -> int:
    """How old the first message of the range is; 0 where it holds none."""
    for records in cluster.fetch(wanted, max_bytes=1):  # one batch: the least that a broker sends
        for first in records_in(records, wanted.from_offset):
            return max(0, time.time_ns() // 1_000_000 - first.timestamp_ms)
    return 0
