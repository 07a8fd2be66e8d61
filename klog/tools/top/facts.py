"""What `klog top` shows of one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from klog.admin.brokers import shares
from klog.admin.group_lag import LagRow, of_groups
from klog.admin.health.snapshot import Snapshot
from klog.admin.health.verdict import broker_states, count_partitions, fullest_dir
from klog.client.metadata import Metadata, PartitionNode
from klog.tools.events import numbers_text


@dataclass(frozen=True, slots=True)
class BrokerLine:
    """A broker. Rates are per second, since the look before; None: not known.

    ``state``: controller, or as in `klog status`: up, silent, hangs, dead, never. ``lag_bytes``: how far its slowest
    replica is behind its leader. ``cpu``: the event loop's share of a core.
    """

    broker: int
    address: str | None
    state: str
    messages_in: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None
    leaders: int | None = None
    replicas: int | None = None
    lag_bytes: int | None = None
    disk_free: int | None = None
    disk_total: int | None = None
    memory: int | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic; rates as in `BrokerLine`."""

    topic: str
    partitions: int
    under_replicated: int
    offline: int
    messages_in: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A partition with too few in-sync replicas, or without a leader."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    trouble: str


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group's lag in all partitions; ``trend``: messages per second by which it grows, over the last minutes."""

    group: str
    lag: int | None
    lag_bytes: int | None
    lag_ms: int | None
    trend: float | None
    partitions: int


@dataclass(frozen=True, slots=True)
class TopTick:
    """The cluster at one moment.

    ``verdict``: what users feel of it, in the words of `klog status`. ``groups``: None where they are not known, which
    ``no_groups`` gives the reason for. ``events``: those since the line before. ``trouble``: why the rest is of
    earlier.
    """

    time: datetime
    cluster: str
    verdict: str
    controller: int | None
    partitions: int
    under_replicated: int
    offline: int
    brokers: tuple[BrokerLine, ...]
    topics: tuple[TopicLine, ...]
    in_trouble: tuple[PartitionLine, ...]
    groups: tuple[GroupLine, ...] | None
    events: tuple[Mapping[str, Any], ...]
    trouble: str | None = None
    no_groups: str | None = None


def broker_lines(snapshot: Snapshot, numbers: Mapping[int, Mapping[str, Any]]) -> list[BrokerLine]:
    """Every broker; ``numbers``: of those that are up, what else is known of them."""
    led, kept = shares(snapshot.metadata)
    found = []
    for broker, state, address in broker_states(snapshot):
        if state != "up":
            found.append(BrokerLine(broker, address, state))
            continue
        room = fullest_dir(snapshot, broker)
        found.append(
            BrokerLine(
                broker,
                address,
                "controller" if snapshot.metadata.controller_id == broker else state,
                leaders=led[broker],
                replicas=kept[broker],
                disk_free=None if room is None else room.free_bytes,
                disk_total=None if room is None else room.total_bytes,
                **numbers.get(broker, {}),
            )
        )
    return found


def topic_lines(snapshot: Snapshot, rates: Mapping[str, Mapping[str, Any]]) -> list[TopicLine]:
    """Every topic; ``rates``: by field, where they are known."""
    found = []
    for name in snapshot.metadata.topics:
        counts = count_partitions(snapshot, name)
        numbers = counts.partitions, counts.under_replicated, counts.offline
        found.append(TopicLine(name, *numbers, **rates.get(name, {})))
    return found


def group_lines(rows: Sequence[LagRow], trends: Mapping[str, float | None]) -> list[GroupLine]:
    """Every group, the furthest behind first."""
    partitions = Counter(one.group for one in rows)
    return [
        GroupLine(name, one.lag, one.lag_bytes, one.lag_ms, trends.get(name), partitions[one.group])
        for one in of_groups(rows)
        for name in (str(one.group),)
    ]


def partition_lines(metadata: Metadata, only: str | None = None) -> list[PartitionLine]:
    """Those in trouble, or all of one topic; the worst first."""
    found = [
        PartitionLine(topic.name, one.partition, one.leader, one.replicas, one.isr, trouble_of(one))
        for topic in metadata.topics.values()
        for one in topic.partitions.values()
        if topic.name == only or (only is None and (one.leader is None or one.is_under_replicated))
    ]
    return sorted(found, key=lambda one: (one.leader is not None, len(one.isr), one.topic, one.partition))


def trouble_of(partition: PartitionNode) -> str:
    if partition.leader is None:
        return "no leader"
    missing = [one for one in partition.replicas if one not in partition.isr]
    return f"not in sync: {numbers_text(missing)}" if missing else "in sync"
