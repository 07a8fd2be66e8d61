"""Replicas over brokers: even, on distinct brokers, over as many racks as there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import InvalidReplicationFactor
from klog.replication.placement import Site, place, place_more
from tests.rows import each

_ids = st.sets(st.integers(0, 1000), min_size=1, max_size=9)
_start = st.integers(0, 100)


def racked(racks: Mapping[int, str]) -> dict[int, Site]:
    return {one: Site(rack) for one, rack in racks.items()}


def hosted(hosts: Mapping[int, str]) -> dict[int, Site]:
    return {one: Site("", host) for one, host in hosts.items()}


def bare(ids: Iterable[int]) -> dict[int, Site]:
    return dict.fromkeys(ids, Site())


def test_three_brokers() -> None:
    assert place(bare([3, 1, 2]), 4, 3, start=1) == {0: (2, 3, 1), 1: (3, 1, 2), 2: (1, 2, 3), 3: (2, 1, 3)}


def test_racks_are_taken_in_turn() -> None:
    brokers = racked({0: "a", 1: "a", 2: "b", 3: "b"})
    assert place(brokers, 4, 2, start=0) == {0: (0, 2), 1: (2, 1), 2: (1, 3), 3: (3, 0)}


@each(("factor", "bound"), [(0, r"\b1\b"), (4, r"\b3 brokers\b")])
def test_a_factor_that_cannot_be(factor: int, bound: str) -> None:
    with pytest.raises(InvalidReplicationFactor, match=bound):
        place(bare([1, 2, 3]), 1, factor, start=0)


@given(_ids, st.data(), _start, st.integers(1, 40))
def test_even_and_distinct(ids: set[int], data: st.DataObject, start: int, partitions: int) -> None:
    factor = data.draw(st.integers(1, len(ids)))
    placed = place(bare(ids), partitions, factor, start=start)
    assert list(placed) == list(range(partitions))
    for replicas in placed.values():
        assert len(set(replicas)) == factor == len(replicas)
        assert set(replicas) <= ids
    assert _spread([replicas[0] for replicas in placed.values()], ids) <= 1
    whole_rounds = partitions // len(ids) * len(ids)
    everywhere = [one for number in range(whole_rounds) for one in placed[number]]
    assert _spread(everywhere, ids) == 0


@given(_ids, st.data(), _start)
def test_over_all_racks(ids: set[int], data: st.DataObject, start: int) -> None:
    brokers = {one: data.draw(st.sampled_from("abc")) for one in ids}
    factor = data.draw(st.integers(1, len(ids)))
    placed = place(racked(brokers), 3 * len(ids), factor, start=start)
    racks = len(set(brokers.values()))
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert len({brokers[one] for one in replicas}) == min(factor, racks)
    assert _spread([replicas[0] for replicas in placed.values()], ids) == 0


@given(_ids, st.data(), _start, st.integers(1, 20), st.integers(1, 20))
def test_more_partitions_go_on_where_the_first_stopped(
    ids: set[int], data: st.DataObject, start: int, first: int, more: int
) -> None:
    brokers = bare(ids)
    factor = data.draw(st.integers(1, len(ids)))
    at_once = place(brokers, first + more, factor, start=start)
    begun = place(brokers, first, factor, start=start)
    assert {**begun, **place_more(brokers, begun, more)} == at_once


def test_more_partitions_when_the_first_ones_broker_is_gone() -> None:
    added = place_more(bare([2, 3]), {0: (1, 2), 1: (2, 3)}, 2)
    assert list(added) == [2, 3]
    assert all(set(replicas) == {2, 3} for replicas in added.values())


def test_racks_count_only_when_every_broker_has_one() -> None:
    assert place(racked({1: "a", 2: "", 3: "a"}), 1, 2, start=0) == place(bare([1, 2, 3]), 1, 2, start=0)


def test_hosts_are_taken_in_turn() -> None:
    brokers = hosted({1: "x", 2: "x", 3: "y", 4: "y"})
    assert place(brokers, 4, 2, start=0) == {0: (1, 3), 1: (3, 2), 2: (2, 4), 3: (4, 1)}


@given(_ids, _start, st.integers(1, 20), st.data())
def test_a_broker_a_host_is_placed_as_without_hosts(
    ids: set[int], start: int, partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(ids)))
    hosts = data.draw(st.permutations([f"h{one}" for one in ids]))
    alone = hosted(dict(zip(ids, hosts, strict=True)))
    assert place(alone, partitions, factor, start=start) == place(bare(ids), partitions, factor, start=start)


@given(_ids, st.data(), _start)
def test_over_all_hosts_and_racks_above_them(ids: set[int], data: st.DataObject, start: int) -> None:
    """A host lies in one rack. No two replicas share a host while another one has none, nor a rack likewise."""
    with_racks = data.draw(st.booleans())
    brokers = {}
    for one in ids:
        host = data.draw(st.sampled_from("pqrstu"))
        brokers[one] = Site("abc"[ord(host) % 3] if with_racks else "", host)
    factor = data.draw(st.integers(1, len(ids)))
    placed = place(brokers, 3 * len(ids), factor, start=start)
    racks, hosts = len({site.rack for site in brokers.values()}), len({site.host for site in brokers.values()})
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert len({brokers[one].rack for one in replicas}) == min(factor, racks)
        if not with_racks:
            assert len({brokers[one].host for one in replicas}) == min(factor, hosts)
    assert _spread([replicas[0] for replicas in placed.values()], ids) == 0


@each(("hosts", "processes"), [(2, 2), (3, 2), (3, 4), (4, 16)])
def test_replicas_are_nearly_even_with_processes_on_hosts(hosts: int, processes: int) -> None:
    brokers = hosted({host * processes + one: f"h{host}" for host in range(hosts) for one in range(processes)})
    placed = place(brokers, 10 * len(brokers), min(3, hosts), start=0)
    counts = Counter(one for replicas in placed.values() for one in replicas)
    assert max(counts.values()) <= 1.2 * min(counts[one] for one in brokers)


def _spread(used: list[int], ids: set[int]) -> int:
    counts = Counter(used)
    return max(counts[one] for one in ids) - min(counts[one] for one in ids)
