"""Places a partition's replicas on brokers: 0.8's placement, and KIP-36's by racks and by hosts. Pure.

The brokers form a ring. Partition i is led by broker (start + i) of it; its followers are the next ones behind, shifted
by one with every round, so that the leaders of a broker that dies move to all the others and not to one. A partition's
first replica is its preferred leader; every broker is that equally often, within one.

With racks the ring takes one broker of each rack in turn, and in each rack one of each host. A follower's place is
skipped while its rack has a replica of the partition already and another rack has none, and then likewise for hosts.
With one broker per host this is 0.8's placement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from klog.errors import InvalidReplicationFactor
from klog.names import counted


class Site(NamedTuple):
    """Where a broker runs: its rack, and its registered host; "" is unknown.

    Brokers of one host are those with the same registered name: processes of `klog broker start --processes`, or
    brokers started side by side.
    """

    rack: str = ""
    host: str = ""


def sites_that_count(sites: Mapping[int, Site]) -> dict[int, Site]:
    """The sites by which replicas are spread: racks count only if every broker has one, hosts likewise."""
    racks = all(site.rack for site in sites.values())
    hosts = all(site.host for site in sites.values())
    return {one: Site(site.rack if racks else "", site.host if hosts else "") for one, site in sites.items()}


def place(
    brokers: Mapping[int, Site],
    partitions: int,
    factor: int,
    *,
    start: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Partition -> broker ids, the preferred leader first; for partitions ``first_partition`` and up.

    ``brokers``: broker id -> site of live brokers. ``start``: place in the ring of partition 0, any number, drawn at
    random for a new topic so that small topics do not all lie on the first brokers. Raises InvalidReplicationFactor
    below 1 or above the number of brokers.
    """
    check_factor(factor, brokers)
    sites = sites_that_count(brokers)
    ring = list(_ring(sites))
    racks_there = len({site.rack for site in sites.values()})
    return {
        number: _replicas(ring, sites, factor, start, number, racks_there)
        for number in range(first_partition, first_partition + partitions)
    }


def place_more(
    brokers: Mapping[int, Site], assignment: Mapping[int, Sequence[int]], partitions: int
) -> dict[int, tuple[int, ...]]:
    """Placement of ``partitions`` more for a topic, continuing its own, with the factor of partition 0."""
    factor = len(assignment[0])
    ring = list(_ring(sites_that_count(brokers)))
    first = assignment[0][0]
    start = ring.index(first) if first in brokers else 0
    return place(brokers, partitions, factor, start=start, first_partition=len(assignment))


def check_factor(factor: int, brokers: Collection[int]) -> None:
    """Raise InvalidReplicationFactor unless there are that many live brokers."""
    if factor < 1:
        raise InvalidReplicationFactor(f"replication factor {factor}; it must be at least 1")
    if factor > len(brokers):
        raise InvalidReplicationFactor(
            f"replication factor {factor} needs as many live brokers, and {counted(len(brokers), 'broker')} "
            f"{'is' if len(brokers) == 1 else 'are'} live: {', '.join(map(str, sorted(brokers))) or 'none'}",
            hint=factor_hint(brokers),
        )


def factor_hint(brokers: Collection[int]) -> str:
    """What helps against a factor that is too large."""
    return f"at most {len(brokers)} is possible now; `klog status brokers` shows which brokers are dead: start them"


def _ring(sites: Mapping[int, Site]) -> Iterator[int]:
    """One broker of each rack in turn, racks by name; in each rack one of each host, hosts by their first broker."""
    by_rack = _grouped(sorted(sites), lambda one: sites[one].rack)
    racks = [list(_in_turn(_grouped(by_rack[rack], lambda one: sites[one].host).values())) for rack in sorted(by_rack)]
    return _in_turn(racks)


def _grouped(brokers: Iterable[int], name: Callable[[int], str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in brokers:
        found.setdefault(name(one), []).append(one)
    return found


def _in_turn(groups: Iterable[Sequence[int]]) -> Iterator[int]:
    for round_ in zip_longest(*groups):
        yield from (one for one in round_ if one is not None)


def _replicas(
    ring: Sequence[int], sites: Mapping[int, Site], factor: int, start: int, number: int, racks_there: int
) -> tuple[int, ...]:
    count = len(ring)
    at = (start + number) % count
    chosen = [ring[at]]
    if factor == 1:
        return tuple(chosen)
    shift = number // count
    while len(chosen) < factor:
        racks, hosts = {sites[one].rack for one in chosen}, {sites[one].host for one in chosen}
        best, best_rank = None, (True, True)
        for step in range(count - 1):
            one = ring[(at + 1 + (shift + step) % (count - 1)) % count]
            if one in chosen:
                continue
            # A new rack first, then a new host, then any.
            rank = (sites[one].rack in racks, sites[one].host in hosts)
            if best is None or rank < best_rank:
                best, best_rank = one, rank
            if not rank[1] and (not rank[0] or len(racks) == racks_there):
                break  # no later one is better
        assert best is not None
        chosen.append(best)
    return tuple(chosen)
