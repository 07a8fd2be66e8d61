"""Replicas over brokers: even, on distinct brokers, over as many racks as there are."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import InvalidReplicationFactor
from klog.replication.placement import place, place_more

_ids = st.sets(st.integers(0, 1000), min_size=1, max_size=9)
_start = st.integers(0, 100)


def test_three_brokers() -> None:
    assert place({3: "", 1: "", 2: ""}, 4, 3, start=1) == {0: (2, 3, 1), 1: (3, 1, 2), 2: (1, 2, 3), 3: (2, 1, 3)}


def test_racks_are_taken_in_turn() -> None:
    brokers = {0: "a", 1: "a", 2: "b", 3: "b"}
    assert place(brokers, 4, 2, start=0) == {0: (0, 2), 1: (2, 1), 2: (1, 3), 3: (3, 0)}


@pytest.mark.parametrize(("factor", "words"), [(0, "at least 1"), (4, "larger than the number of live brokers: 3")])
def test_a_factor_that_cannot_be(factor: int, words: str) -> None:
    with pytest.raises(InvalidReplicationFactor, match=words):
        place({1: "", 2: "", 3: ""}, 1, factor, start=0)


@given(_ids, st.data(), _start, st.integers(1, 40))
def test_even_and_distinct(ids: set[int], data: st.DataObject, start: int, partitions: int) -> None:
    factor = data.draw(st.integers(1, len(ids)))
    placed = place(dict.fromkeys(ids, ""), partitions, factor, start=start)
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
    placed = place(brokers, 3 * len(ids), factor, start=start)
    racks = len(set(brokers.values()))
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert len({brokers[one] for one in replicas}) == min(factor, racks)
    assert _spread([replicas[0] for replicas in placed.values()], ids) == 0


@given(_ids, st.data(), _start, st.integers(1, 20), st.integers(1, 20))
def test_more_partitions_go_on_where_the_first_stopped(
    ids: set[int], data: st.DataObject, start: int, first: int, more: int
) -> None:
    brokers = dict.fromkeys(ids, "")
    factor = data.draw(st.integers(1, len(ids)))
    at_once = place(brokers, first + more, factor, start=start)
    begun = place(brokers, first, factor, start=start)
    assert {**begun, **place_more(brokers, begun, more)} == at_once


def test_more_partitions_when_the_first_ones_broker_is_gone() -> None:
    added = place_more({2: "", 3: ""}, {0: (1, 2), 1: (2, 3)}, 2)
    assert list(added) == [2, 3]
    assert all(set(replicas) == {2, 3} for replicas in added.values())


def test_racks_count_only_when_every_broker_has_one() -> None:
    assert place({1: "a", 2: "", 3: "a"}, 1, 2, start=0) == place({1: "", 2: "", 3: ""}, 1, 2, start=0)


def _spread(used: list[int], ids: set[int]) -> int:
    counts = Counter(used)
    return max(counts[one] for one in ids) - min(counts[one] for one in ids)
