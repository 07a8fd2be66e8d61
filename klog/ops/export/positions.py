"""``--from`` of an export as offsets: `klog.ops.positions` resolved over blocking connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klog.client.raw_fetch import EARLIEST, LATEST, RawCluster
from klog.names import TopicPartition
from klog.ops.positions import Anchor, Position, parse_range


class Limits(NamedTuple):
    """Where each partition begins, and the offset that it does not go beyond (none: as far as there is)."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]


def resolve(cluster: RawCluster, partitions: Sequence[TopicPartition], text: str) -> Limits:
    """The offsets that a position or range means in each partition, within its bounds; UsageError for other words."""
    wanted = parse_range(text)
    earliest = _offsets(cluster, partitions, EARLIEST)
    latest = _offsets(cluster, partitions, LATEST)

    def at(position: Position) -> dict[TopicPartition, int]:
        match position.anchor:
            case Anchor.START:
                found = earliest
            case Anchor.END:
                found = latest
            case Anchor.OFFSET:
                found = dict.fromkeys(partitions, position.value)
            case Anchor.TIME:
                times = _offsets(cluster, partitions, position.value)
                found = {one: latest[one] if times[one] < 0 else times[one] for one in partitions}
            case Anchor.FORWARD:
                found = {one: cluster.nth(one, earliest[one], position.value) for one in partitions}
            case Anchor.BACK if position.value == 0:
                found = latest
            case Anchor.BACK:
                found = {one: cluster.nth(one, latest[one], -position.value) for one in partitions}
        return {one: min(max(found[one], earliest[one]), latest[one]) for one in partitions}

    return Limits(at(wanted.begin), {} if wanted.end is None else at(wanted.end))


def _offsets(cluster: RawCluster, partitions: Sequence[TopicPartition], at: int) -> dict[TopicPartition, int]:
    return {one: found.offset for one, found in cluster.offsets(dict.fromkeys(partitions, at)).items()}
