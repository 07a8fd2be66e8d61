"""Who holds which slot, as a pure decision: every slot with a live broker, evenly, and with no move too many."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from klog.coordination.group_slots import SLOTS, SlotHolder, slot_of
from klog.server.controller.group_slots import decide
from klog.server.image import BrokerImage, ClusterImage

Holders = dict[int, SlotHolder]
Live = dict[int, int]


def spread(live: Live, holders: Holders | None = None) -> Holders:
    """The slots after what is decided while all of these live and answer."""
    return applied(holders or {}, live, set(live))


def applied(holders: Holders, staying: Live, takers: set[int]) -> Holders:
    given_to = decide(holders, staying, takers)
    return holders | {slot: SlotHolder(slot, one, staying[one], 1, 0) for slot, one in given_to.items()}


def counts(holders: Holders) -> list[int]:
    return sorted(Counter(one.broker_id for one in holders.values()).values())


def moved(before: Holders, after: Holders) -> int:
    """Slots that another broker holds now."""
    return sum(before[slot].broker_id != one.broker_id for slot, one in after.items())


# --- cases ---


def test_a_broker_that_was_back_before_it_was_missed_holds_its_slots_under_its_new_incarnation() -> None:
    before = spread({1: 10, 2: 20})
    after = spread({1: 11, 2: 20}, before)
    assert moved(before, after) == 0
    assert {(one.broker_id, one.incarnation) for one in after.values()} == {(1, 11), (2, 20)}


def test_who_does_not_answer_keeps_what_it_holds_and_is_given_nothing() -> None:
    three = spread({1: 10, 2: 20, 3: 30})
    silent = applied(three, {1: 10, 2: 20, 3: 30}, {1, 2})
    assert silent == three
    without = applied(three, {1: 10, 3: 30}, {1})  # 2 has died, 3 is paused
    assert {slot for slot, one in without.items() if one.broker_id == 3} == {
        slot for slot, one in three.items() if one.broker_id == 3
    }
    assert counts(without) == [21, 43]


# --- any cluster ---

BROKERS = st.dictionaries(st.integers(1, 9), st.integers(100, 103), max_size=7)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Holders, Live, set[int]]:
    staying = draw(BROKERS)
    takers = draw(st.sets(st.sampled_from(sorted(staying)))) if staying else set()
    once = draw(BROKERS)
    anybody = [None, *sorted((once | staying).items()), *sorted(once.items())]
    held = draw(st.lists(st.sampled_from(anybody), min_size=SLOTS, max_size=SLOTS))
    return {slot: SlotHolder(slot, *who, 1, 0) for slot, who in enumerate(held) if who is not None}, staying, takers


@given(clusters())
def test_every_slot_has_a_live_holder_as_evenly_and_with_as_few_moves_as_can_be(
    cluster: tuple[Holders, Live, set[int]],
) -> None:
    holders, staying, takers = cluster
    after = applied(holders, staying, takers)
    if not takers:
        assert after == holders
        return
    assert after.keys() == set(range(SLOTS))
    assert all(staying[one.broker_id] == one.incarnation for one in after.values())
    assert decide(after, staying, takers) == {}, "it is at rest"

    def kept_by(broker_id: int) -> int:
        return sum(one.broker_id == broker_id for one in holders.values())

    count = Counter(one.broker_id for one in after.values())
    for one in staying.keys() - takers:
        lived_on = sum((held.broker_id, held.incarnation) == (one, staying[one]) for held in holders.values())
        assert count[one] <= lived_on, "it does not answer and was given a slot"
    assert max(count.values()) - min(count[one] for one in takers) <= 1

    # No holder takes from another without need: whoever lost a slot has no fewer than whoever was given one,
    # give or take one, so that each move was for the dead or for the balance.
    gave = {
        held.broker_id
        for slot, held in holders.items()
        if staying.get(held.broker_id) == held.incarnation and after[slot].broker_id != held.broker_id
    }
    got = {
        one.broker_id for slot, one in after.items() if slot not in holders or holders[slot].broker_id != one.broker_id
    }
    assert not gave & got, "a slot was taken from a broker that another was given to"
    for one in gave:
        assert count[one] >= max(count.values()) - 1
    for one in got:
        assert kept_by(one) <= count[one]


# --- what a broker answers from it ---


def test_a_group_has_the_live_holder_of_its_slot_and_no_other() -> None:
    image = ClusterImage()
    assert image.coordinator("g") is None
    slot = slot_of("g")
    image.group_slots = {slot: SlotHolder(slot, 2, 20, 3, 5)}
    assert image.coordinator("g") is None
    image.brokers = {2: BrokerImage(2, "two", 9092, incarnation=21)}
    assert image.coordinator("g") is None, "an earlier incarnation held it"
    image.brokers = {2: BrokerImage(2, "two", 9092, incarnation=20)}
    assert image.coordinator("g") is image.brokers[2]
