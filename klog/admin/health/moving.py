"""Which replicas that a reassignment fills get nothing: looked at until each has moved, or could have.

A follower takes over whole batches, and all partitions that a broker fills under a throttle share its rate. So one of
them may stand still for as long as a batch of another takes, and the broker moves if any of them does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from klog.client.cluster import Cluster
from klog.client.metadata import Metadata
from klog.client.reassignments import replica_bytes
from klog.coordination.topics import Topic
from klog.names import TopicPartition

MOVING_S: Final = 1.0
"""How long a replica that is being filled may stand still before it counts as stalled, beside what a throttle costs."""
LOOK_EVERY_S: Final = 0.25
LOOK_MAX_S: Final = 5.0
"""A throttle at which a batch takes longer is judged by what comes within this time."""

Replica = tuple[int, TopicPartition]
"""Of a broker."""


async def watch_reassignments(
    cluster: Cluster, metadata: Metadata, topics: Collection[Topic], max_bytes: Mapping[str, int]
) -> tuple[dict[TopicPartition, list[int]], float]:
    """Partitions whose new replicas get nothing although their broker lives -> these brokers; and for how many seconds
    they were looked at, which ends as soon as all move. ``max_bytes``: topic -> the largest batch that it takes."""
    filling = [one for topic in topics for one in _filling(topic, metadata)] if cluster.is_klog else []
    rates: dict[int, dict[TopicPartition, int]] = {}
    """Broker -> what it fills under a throttle -> bytes a second; the lowest is for all of them together."""
    for broker, name, rate in filling:
        if rate:
            rates.setdefault(broker, {})[name] = rate
    patience = {(broker, name): _patience_s(name, rates.get(broker, {}), max_bytes) for broker, name, _ in filling}
    still, waited_s = set(patience), 0.0
    before = await _sizes(cluster, still)
    while any(waited_s < patience[one] for one in still):
        await asyncio.sleep(LOOK_EVERY_S)
        waited_s += LOOK_EVERY_S
        after = await _sizes(cluster, still)
        moved = {one for one in still if before.get(one) != after.get(one)}
        sharing = {(broker, name) for broker, one in moved if one in rates.get(broker, {}) for name in rates[broker]}
        still -= moved | sharing
    found: dict[TopicPartition, list[int]] = {}
    for broker, name in sorted(still):
        found.setdefault(name, []).append(broker)
    return found, waited_s


def _filling(topic: Topic, metadata: Metadata) -> Iterator[tuple[int, TopicPartition, int]]:
    """New replicas of live brokers that are not in sync: broker, partition and throttle."""
    known = metadata.topics.get(topic.name)
    for number, adding in topic.adding.items():
        in_sync = known.partitions[number].isr if known is not None and number in known.partitions else ()
        for broker in adding:
            if broker in metadata.brokers and broker not in in_sync:
                yield broker, TopicPartition(topic.name, number), topic.throttles.get(number, 0)


def _patience_s(name: TopicPartition, rates: Mapping[TopicPartition, int], max_bytes: Mapping[str, int]) -> float:
    """How long a replica may get nothing: under a throttle, the time that the largest batch takes."""
    if name not in rates:
        return MOVING_S
    largest = max(max_bytes.get(one.topic, 0) for one in rates)
    return min(MOVING_S + largest / min(rates.values()), LOOK_MAX_S)


async def _sizes(cluster: Cluster, wanted: Collection[Replica]) -> dict[Replica, int]:
    """The bytes of these replicas; those of brokers that do not answer are left out."""
    brokers, names = {broker for broker, _ in wanted}, {name for _, name in wanted}
    sizes = await replica_bytes(cluster, brokers, names)
    return {(broker, name): size for broker, some in sizes.items() for name, size in some.items()}
