"""Which brokers get a partition's replicas: 0.8's placement, and KIP-36's where the brokers have racks. Pure.

The brokers form a ring. Partition i is led by broker (start + i) of it; its followers are the next ones behind, and
one further with every round, so that the leaders of a broker that dies move to all the others and not to one. The first
of a partition's replicas is its preferred leader, and every broker is that within one as often as any other.

With racks the ring takes one broker of each rack in turn, and a follower's place is skipped while its rack has a
replica of the partition already and another rack has none. Racks count only when every broker has one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from klog.errors import InvalidReplicationFactor


def place(
    brokers: Mapping[int, str],
    partitions: int,
    factor: int,
    *,
    start: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Partition -> broker ids, the preferred leader first; the partitions ``first_partition`` and up.

    ``brokers`` is broker id -> rack ("": none), of those that live. ``start``: where in the ring partition 0 begins,
    any number, drawn at random for a new topic so that small topics do not all lie on the first brokers.
    InvalidReplicationFactor below 1 or above the brokers there are.
    """
    check_factor(factor, len(brokers))
    ring = list(_ring(brokers))
    racks = brokers if all(brokers.values()) else dict.fromkeys(brokers, "")
    return {
        number: _replicas(ring, racks, factor, start, number)
        for number in range(first_partition, first_partition + partitions)
    }


def place_more(
    brokers: Mapping[int, str], assignment: Mapping[int, Sequence[int]], partitions: int
) -> dict[int, tuple[int, ...]]:
    """``partitions`` more for a topic, going on where its own placement stopped, with the factor of partition 0."""
    factor = len(assignment[0])
    ring = list(_ring(brokers))
    first = assignment[0][0]
    start = ring.index(first) if first in brokers else 0
    return place(brokers, partitions, factor, start=start, first_partition=len(assignment))


def check_factor(factor: int, brokers: int) -> None:
    """InvalidReplicationFactor unless that many brokers are there."""
    if factor < 1:
        raise InvalidReplicationFactor(f"replication factor {factor}; it must be at least 1")
    if factor > brokers:
        raise InvalidReplicationFactor(
            f"replication factor {factor} is larger than the number of live brokers: {brokers}",
            hint="start more brokers, or choose a smaller factor",
        )


def _ring(brokers: Mapping[int, str]) -> Iterator[int]:
    """By id; with racks one of each rack in turn, racks by name."""
    if not all(brokers.values()):
        yield from sorted(brokers)
        return
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker_id in sorted(brokers):
        by_rack[brokers[broker_id]].append(broker_id)
    for round_ in zip_longest(*(by_rack[rack] for rack in sorted(by_rack))):
        yield from (broker_id for broker_id in round_ if broker_id is not None)


def _replicas(ring: Sequence[int], racks: Mapping[int, str], factor: int, start: int, number: int) -> tuple[int, ...]:
    count = len(ring)
    at = (start + number) % count
    chosen = [ring[at]]
    if factor == 1:
        return tuple(chosen)
    shift = number // count
    others = [ring[(at + 1 + (shift + step) % (count - 1)) % count] for step in range(count - 1)]
    while len(chosen) < factor:
        used = {racks[one] for one in chosen}
        free = [one for one in others if one not in chosen]
        # The first in a rack without a replica yet; when every rack has one, the first there is.
        chosen.append(next((one for one in free if racks[one] not in used), free[0]))
    return tuple(chosen)
