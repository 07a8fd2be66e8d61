"""Which replicas that a reassignment fills get nothing: looked at until each has moved, or could have.

A follower takes over whole batches, and all partitions that a broker fills under a throttle share its rate. So one of
them may stand still for as long as a batch of another takes, and the broker moves if any of them does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klog.client.cluster import Cluster
from klog.client.metadata import Metadata
from klog.client.partition_requests import by_partition, by_topic
from klog.coordination.topics import Topic
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey

MOVING_S: Final = 1.0
"""How long a replica that is being filled may stand still before it counts as stalled, beside what a throttle costs."""
LOOK_EVERY_S: Final = 0.25
LOOK_MAX_S: Final = 5.0
"""A throttle at which a batch takes longer is judged by what comes within this time."""

Replica = tuple[int, TopicPartition]
"""Of a broker."""


class Watched(NamedTuple):
    """Partitions whose new replicas get nothing -> these brokers; and for how long they were looked at."""

    still: dict[TopicPartition, list[int]]
    seconds: float


async def watch_reassignments(
    cluster: Cluster, metadata: Metadata, topics: Collection[Topic], max_bytes: Mapping[str, int]
) -> Watched:
    """Find new replicas that get nothing although their broker lives. It ends as soon as all of them move.

    ``max_bytes``: topic -> the largest batch that it takes.
    """
    rates: dict[int, dict[TopicPartition, int]] = {}
    patience: dict[Replica, float] = {}
    if cluster.is_klog:
        filling = [one for topic in topics for one in _filling(topic, metadata)]
        rates = _rates(filling)
        patience = {(broker, name): _patience_s(name, rates.get(broker, {}), max_bytes) for broker, name, _ in filling}
    still, waited_s = set(patience), 0.0
    before = await _ends(cluster, sorted(still))
    while any(waited_s < patience[one] for one in still):
        await asyncio.sleep(LOOK_EVERY_S)
        waited_s += LOOK_EVERY_S
        after = await _ends(cluster, sorted(still))
        moved = {one for one in still if before.get(one) != after.get(one)}
        sharing = {(broker, name) for broker, one in moved if one in rates.get(broker, {}) for name in rates[broker]}
        still -= moved | sharing
    found: dict[TopicPartition, list[int]] = {}
    for broker, name in sorted(still):
        found.setdefault(name, []).append(broker)
    return Watched(found, waited_s)


def _filling(topic: Topic, metadata: Metadata) -> Iterator[tuple[int, TopicPartition, int]]:
    """New replicas of live brokers that are not in sync: broker, partition and throttle."""
    known = metadata.topics.get(topic.name)
    for number, adding in topic.adding.items():
        in_sync = known.partitions[number].isr if known is not None and number in known.partitions else ()
        for broker in adding:
            if broker in metadata.brokers and broker not in in_sync:
                yield broker, TopicPartition(topic.name, number), topic.throttles.get(number, 0)


def _rates(filling: Iterable[tuple[int, TopicPartition, int]]) -> dict[int, dict[TopicPartition, int]]:
    """Broker -> what it fills under a throttle -> bytes a second; the lowest is for all of them together."""
    found: dict[int, dict[TopicPartition, int]] = {}
    for broker, name, rate in filling:
        if rate:
            found.setdefault(broker, {})[name] = rate
    return found


def _patience_s(name: TopicPartition, rates: Mapping[TopicPartition, int], max_bytes: Mapping[str, int]) -> float:
    """How long a replica may get nothing: under a throttle, the time that the largest batch takes."""
    if name not in rates:
        return MOVING_S
    largest = max(max_bytes.get(one.topic, 0) for one in rates)
    return min(MOVING_S + largest / min(rates.values()), LOOK_MAX_S)


async def _ends(cluster: Cluster, wanted: Sequence[Replica]) -> dict[Replica, int]:
    """Where the logs of these replicas end; those that cannot be asked are left out."""
    shares: dict[int, list[TopicPartition]] = {}
    for broker, name in wanted:
        shares.setdefault(broker, []).append(name)
    found: dict[Replica, int] = {}

    async def ask(broker: int, share: Sequence[TopicPartition]) -> None:
        topics = [
            {
                "name": topic,
                "partitions": [{"partition_index": one, "probe_address": -1, "ranges": []} for one, _ in partitions],
            }
            for topic, partitions in by_topic(dict.fromkeys(share))
        ]
        try:
            answer = await cluster.to_broker(broker, ApiKey.CHECKSUM_RANGES, 0, topics=topics)
        except KlogError:
            return
        for name, one in by_partition(answer.topics):
            if not int(one.error_code):
                found[broker, name] = int(one.end_address)

    await asyncio.gather(*(ask(broker, share) for broker, share in shares.items()))
    return found
