"""Plans of a reassignment: lawful, in balance, spread over racks, with hardly more moves than a search of all finds."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import InvalidReplicationFactor, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.replication.placement import Site
from klog.replication.reassignment import Goal, Move, Placement, choose, plan
from tests.chance import seed_of
from tests.rows import each


def topic(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", number): ids for number, ids in enumerate(replicas)}


def bare(*ids: int) -> dict[int, Site]:
    return dict.fromkeys(ids, Site())


def racked(racks: Mapping[int, str]) -> dict[int, Site]:
    return {one: Site(rack) for one, rack in racks.items()}


def after(current: Placement, moves: list[Move]) -> dict[TopicPartition, tuple[int, ...]]:
    for move in moves:
        assert move.before == current[move.partition] != move.after
    return {**current, **{move.partition: move.after for move in moves}}


def loads(placement: Placement, brokers: object = ()) -> Counter[int]:
    found = Counter(one for ids in placement.values() for one in ids)
    for one in brokers:  # type: ignore[attr-defined]
        found.setdefault(one, 0)
    return found


def copied(moves: list[Move]) -> int:
    return sum(len(move.copied) for move in moves)


# --- What is wanted ---------------------------------------------------------------------------------------------------


def test_a_new_broker_takes_its_share_and_nothing_else_moves() -> None:
    current = topic((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    moves = plan(current, bare(1, 2, 3), goal=Goal.BALANCE)
    then = after(current, moves)
    assert sorted(loads(then).values()) == [4, 4, 4]
    assert copied(moves) == 4 and all(move.copied == (3,) for move in moves if move.copied)
    assert sorted(Counter(ids[0] for ids in then.values()).values()) == [2, 2, 2], "the new one leads its share too"


def test_what_is_balanced_stays_as_it_is() -> None:
    current = topic((1, 2), (2, 3), (3, 1))
    for goal in Goal:
        assert plan(current, bare(1, 2, 3), goal=goal) == []


def test_a_broker_that_goes_is_emptied_and_only_it_loses_replicas() -> None:
    current = topic((1, 2), (2, 3), (3, 1), (1, 4), (2, 1))
    moves = plan(current, bare(1, 2, 3, 4), goal=Goal.KEEP, emptied=[1])
    then = after(current, moves)
    assert 1 not in loads(then)
    assert {move.partition.partition for move in moves} == {0, 2, 3, 4}
    for move in moves:
        assert set(move.before) - set(move.after) == {1} and len(move.copied) == 1
    assert sorted(loads(then).values()) == [3, 3, 4]


def test_the_first_replica_keeps_its_place_unless_it_goes() -> None:
    current = topic((3, 1, 2), (1, 2, 3))
    then = after(current, plan(current, bare(1, 2, 3, 4), goal=Goal.KEEP, emptied=[1]))
    assert then[TopicPartition("t", 0)] == (3, 2, 4)
    assert then[TopicPartition("t", 1)][0] in (2, 4)


def test_each_partition_spreads_over_racks() -> None:
    current = topic((1, 2), (2, 1), (3, 4), (4, 3))
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    moves = plan(current, racked(racks), goal=Goal.BALANCE)
    then = after(current, moves)
    assert all({racks[one] for one in ids} == {"a", "b"} for ids in then.values())
    assert set(loads(then).values()) == {2} and copied(moves) == 4
    assert plan(current, racked({**racks, 4: ""}), goal=Goal.BALANCE) == [], (
        "racks count only where every broker has one"
    )


def test_a_dead_broker_keeps_its_replicas_and_gets_no_more() -> None:
    current = topic((9, 1), (1, 9), (1, 2), (1, 2))
    then = after(current, plan(current, bare(1, 2, 3), goal=Goal.BALANCE))
    assert loads(then)[9] == 2
    assert then[TopicPartition("t", 0)][0] == 9
    assert loads(after(current, plan(current, bare(1, 2, 3), goal=Goal.KEEP, emptied=[9])))[9] == 0


@each("factor", [0, 4, -1])
def test_a_factor_that_cannot_be(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor, match=r"t-0\b") as caught:
        plan(topic((1,)), bare(1, 2, 3), goal=Goal.KEEP, factor=factor)
    assert "klog reassign plan" not in (caught.value.hint or ""), "that is what was typed"


def test_a_factor_that_cannot_be_where_there_are_no_topics() -> None:
    with pytest.raises(InvalidReplicationFactor, match=r"4 replicas.*at most 3"):
        plan({}, bare(1, 2, 3), goal=Goal.KEEP, factor=4)
    assert plan({}, bare(1, 2, 3), goal=Goal.KEEP, factor=3) == []


def test_too_few_brokers_are_left() -> None:
    with pytest.raises(InvalidReplicationFactor, match="brokers 2"):
        plan(topic((1, 2)), bare(1, 2), goal=Goal.KEEP, emptied=[1])


def test_a_topic_that_may_have_fewer_replicas_gets_as_many_as_there_can_be() -> None:
    current = {TopicPartition("klog.events", 0): (1, 2, 3), TopicPartition("a", 0): (1, 2)}
    moves = plan(current, bare(1, 2, 3), goal=Goal.KEEP, emptied=[1], may_shrink=["klog.events"])
    assert {move.partition.topic: set(move.after) for move in moves} == {"klog.events": {2, 3}, "a": {2, 3}}
    current = {TopicPartition("klog.events", 0): (1, 2, 3), TopicPartition("orders", 0): (1, 2, 3)}
    with pytest.raises(InvalidReplicationFactor, match=r"orders-0\b.*\b3\b") as caught:
        plan(current, bare(1, 2, 3), goal=Goal.KEEP, emptied=[1], may_shrink=["klog.events"])
    assert "--topics orders" in (caught.value.hint or "")


def test_only_the_chosen_topics() -> None:
    current = {TopicPartition("a", 0): (1,), TopicPartition("b", 0): (2,)}
    assert choose(current, ["b"]) == {TopicPartition("b", 0): (2,)}
    with pytest.raises(UnknownTopicOrPartition, match="'c'"):
        choose(current, ["b", "c"])


# --- Against a search of all placements -------------------------------------------------------------------------------


Case = tuple[dict[TopicPartition, tuple[int, ...]], dict[int, Site], list[int], int | None]


def drawn(chance: random.Random) -> Case:
    """Small ones: at most 5 brokers, 4 partitions; some brokers to be emptied; racks and hosts or none."""
    count = chance.randint(2, 5)
    ids = list(range(1, count + 1))
    emptied = chance.sample(ids, chance.randrange(count))
    possible = count - len(emptied)
    factor = chance.choice([None, chance.randint(1, min(3, possible))])
    most = min(2 if count > 3 else 3, possible if factor is None else count)
    partitions = chance.randint(1, 4 if count < 4 else 3)
    current = topic(*(tuple(chance.sample(ids, chance.randint(1, most))) for _ in range(partitions)))
    racks, hosts = chance.choice(["", "abc"]), chance.choice(["", "xyz"])
    brokers = {}
    for one in ids:
        rack = racks and chance.choice(racks)
        brokers[one] = Site(rack, hosts and rack + chance.choice(hosts))
    return current, brokers, emptied, factor


def crowding(placement: Placement, names: dict[int, str]) -> int:
    if not all(names.values()):
        return 0
    return sum(
        count * (count - 1) // 2 for ids in placement.values() for count in Counter(names[one] for one in ids).values()
    )


def spread(placement: Placement, brokers: object) -> int:
    return sum(load**2 for load in loads(placement, brokers).values())


def worths(case: Case, goal: Goal) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of a plan and of the best placement that a search of all finds: what is wanted, in the goal's order."""
    current, brokers, emptied, factor = case
    usable = {one: site for one, site in brokers.items() if one not in emptied}
    then = after(current, plan(current, brokers, goal=goal, emptied=emptied, factor=factor))
    for name, ids in then.items():
        assert len(set(ids)) == len(ids) == (factor or len(current[name]))
        assert set(ids) <= usable.keys()

    def worth(placement: Placement) -> tuple[int, int, int, int]:
        new = sum(len(set(ids) - set(current[name])) for name, ids in placement.items())
        racks = crowding(placement, {one: site.rack for one, site in usable.items()})
        hosts = crowding(placement, {one: site.host for one, site in usable.items()})
        balance = spread(placement, usable)
        return (racks, hosts, balance, new) if goal is Goal.BALANCE else (new, racks, hosts, balance)

    every = itertools.product(
        *(itertools.combinations(usable, factor or len(ids)) for ids in current.values())  # order does not count
    )
    return worth(then), min(worth(dict(zip(current, ids, strict=True))) for ids in every)


@given(st.randoms(use_true_random=False), st.sampled_from(Goal))
def test_no_other_placement_is_better_but_by_the_moves_of_a_balance(chance: random.Random, goal: Goal) -> None:
    found, best = worths(drawn(chance), goal)
    assert found[:3] == best[:3]
    assert goal is Goal.BALANCE or found == best


def test_a_balance_has_at_most_five_percent_more_moves_than_the_best() -> None:
    chance = random.Random(seed_of("moves of a balance"))
    pairs = [worths(drawn(chance), Goal.BALANCE) for _ in range(300)]
    moves, fewest = (sum(worth[3] for worth in side) for side in zip(*pairs, strict=True))
    assert 300 < fewest <= moves <= 1.05 * fewest


@given(st.integers(2, 9), st.integers(1, 3), st.integers(1, 60), st.randoms(use_true_random=False))
def test_brokers_end_within_one_replica_and_one_leader_of_each_other(
    count: int, factor: int, partitions: int, chance: random.Random
) -> None:
    ids = list(range(count))
    factor = min(factor, count)
    current = topic(*(tuple(chance.sample(ids[: max(factor, count // 2)], factor)) for _ in range(partitions)))
    then = after(current, plan(current, bare(*ids), goal=Goal.BALANCE))
    found = loads(then, ids)
    assert max(found.values()) - min(found.values()) <= 1
    leaders = Counter(ids[0] for ids in then.values())
    assert max(leaders[one] for one in ids) - min(leaders[one] for one in ids) <= 1


def test_hundreds_of_partitions_are_planned_while_one_waits() -> None:
    current = topic(*(((n % 3) + 1, (n + 1) % 3 + 1, (n + 2) % 3 + 1) for n in range(400)))
    begun = time.monotonic()
    moves = plan(current, bare(1, 2, 3, 4), goal=Goal.BALANCE)
    assert time.monotonic() - begun < 20
    assert copied(moves) == 300
    assert set(loads(after(current, moves)).values()) == {300}
