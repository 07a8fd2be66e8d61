"""Positions of `--from` as offsets, by asking the brokers over blocking connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klog.client.raw_fetch import EARLIEST, LATEST, RawCluster
from klog.errors import UsageError
from klog.names import TopicPartition


class Limits(NamedTuple):
    """Where each partition begins, and the offset that it does not go beyond (none: as far as there is)."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]


def resolve(cluster: RawCluster, partitions: Sequence[TopicPartition], text: str) -> Limits:
    """The offsets that a position or range means in each partition; UsageError where it is neither."""
    if text == "start":
        return Limits(_offsets(cluster, partitions, EARLIEST), {})
    if text == "end":
        return Limits(_offsets(cluster, partitions, LATEST), {})
    if text.isdigit():
        return Limits(dict.fromkeys(partitions, int(text)), {})
    raise UsageError(f"{text!r} is no position")


def _offsets(cluster: RawCluster, partitions: Sequence[TopicPartition], at: int) -> dict[TopicPartition, int]:
    return {one: found.offset for one, found in cluster.offsets(dict.fromkeys(partitions, at)).items()}
