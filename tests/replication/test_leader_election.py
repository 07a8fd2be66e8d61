"""Who leads and who leaves the ISR: each rule by a case, and what always holds by drawn situations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.replication import leader_election
from klog.replication.leader_election import Decision, ElectionInput, NoLeader, Waiting
from tests.rows import each

REPLICAS = (1, 2, 3)
STATE = PartitionState(
    leader=1, leader_epoch=4, isr=(1, 2, 3), controller_epoch=9, version=7, incarnations=(10, 20, 30)
)
AS_BEFORE = {1: 10, 2: 20, 3: 30}


@dataclass(frozen=True)
class Facts:
    last_epoch: int = 4
    end_address: int = 1000
    is_whole: bool = True
    was_safe: bool = True
    is_online: bool = True


UNSAFE = Facts(was_safe=False)


def decided(found: Decision | NoLeader | None) -> Decision:
    assert isinstance(found, Decision), found
    return found


def settled(state: PartitionState, situation: ElectionInput, *, unclean: bool = False) -> Decision | NoLeader | None:
    return leader_election.reconcile(state, REPLICAS, situation, unclean_allowed=unclean)


# --- R5 ---------------------------------------------------------------------------------------------------------------


def test_nothing_changes_while_everybody_lives() -> None:
    assert settled(STATE, ElectionInput(AS_BEFORE)) is None


@each(
    "situation",
    [
        ElectionInput({1: 10, 2: 20}),
        ElectionInput({1: 10, 2: 20, 3: 31}),
        ElectionInput(AS_BEFORE, offline={3}),
        ElectionInput(AS_BEFORE, {3: Facts(is_online=False)}),
    ],
    ids=["dead", "new incarnation", "disk lost", "disk offline"],
)
def test_a_dead_follower_leaves_the_isr_under_the_same_epoch(situation: ElectionInput) -> None:
    after = decided(settled(STATE, situation))
    assert (after.leader, after.leader_epoch, after.isr, after.incarnations) == (1, 4, (1, 2), (10, 20))


def test_a_dead_leader_leaves_the_isr_by_the_election_of_the_next() -> None:
    after = decided(settled(STATE, ElectionInput({2: 20, 3: 30})))
    assert (after.leader, after.leader_epoch, after.isr, after.incarnations) == (2, 5, (2, 3), (20, 30))
    assert not after.unclean


def test_the_last_members_stay_in_the_isr_when_they_are_dead() -> None:
    after = decided(settled(replace(STATE, isr=(1, 2), incarnations=(10, 20)), ElectionInput({3: 30})))
    assert (after.leader, after.leader_epoch, after.isr, after.incarnations) == (NO_LEADER, 5, (1, 2), (10, 20))
    again = settled(after.applied(STATE, 9), ElectionInput({3: 30}))
    assert isinstance(again, NoLeader)
    assert "[1, 2]" in again.reason


def test_a_member_falsely_taken_for_dead_leads_again_under_a_new_epoch() -> None:
    alone = replace(STATE, isr=(1,), incarnations=(10,), leader=NO_LEADER, leader_epoch=5)
    after = decided(settled(alone, ElectionInput({1: 10})))
    assert (after.leader, after.leader_epoch, after.isr) == (1, 6, (1,))


# --- R1 ---------------------------------------------------------------------------------------------------------------


def test_a_new_incarnation_leads_only_under_a_new_epoch() -> None:
    after = decided(settled(STATE, ElectionInput({1: 11}, {1: Facts()})))
    assert (after.leader, after.leader_epoch, after.isr, after.incarnations) == (1, 5, (1,), (11,))


def test_of_those_that_are_back_the_one_that_has_most_leads_and_who_has_as_much_stays() -> None:
    facts = {1: UNSAFE, 2: Facts(), 3: Facts(end_address=800)}
    after = decided(settled(STATE, ElectionInput({1: 11, 2: 21, 3: 31}, facts)))
    assert (after.leader, after.isr, after.incarnations) == (2, (2,), (21,))
    facts = {1: Facts(), 2: Facts(), 3: UNSAFE}
    after = decided(settled(STATE, ElectionInput({1: 11, 2: 21, 3: 31}, facts)))
    assert (after.leader, after.isr, after.incarnations) == (1, (1, 2), (11, 21))
    facts = {1: Facts(), 2: replace(UNSAFE, last_epoch=5, end_address=900), 3: Facts(is_whole=False, last_epoch=6)}
    after = decided(settled(STATE, ElectionInput({1: 11, 2: 21, 3: 31}, facts)))
    assert (after.leader, after.isr) == (2, (2,))  # nobody flushed more than it, and nobody is whole beyond it


def test_a_disk_that_was_set_back_does_not_lead_before_the_others_are_back() -> None:
    """It looks as it did on that day: whole, and stopped in good order."""
    set_back, others = Facts(last_epoch=2, end_address=300), Facts(end_address=900)
    alone = ElectionInput({1: 11}, {1: set_back}, waited=False)
    after = decided(settled(STATE, alone))
    assert after.leader == NO_LEADER and after.isr == STATE.isr
    assert "brokers 2, 3" in after.reason
    state = replace(after.applied(STATE, 9), version=8)
    found = settled(state, alone)
    assert isinstance(found, Waiting)
    assert isinstance(settled(state, alone, unclean=True), Waiting)  # an unclean election is not before that either
    two = settled(state, ElectionInput({1: 11, 2: 21}, {1: set_back, 2: others}, waited=False))
    assert isinstance(two, Waiting) and "broker 3" in two.reason
    not_asked = ElectionInput({1: 11, 2: 21, 3: 31}, {1: set_back, 2: others}, waited=False)
    assert isinstance(settled(state, not_asked), Waiting)
    every = ElectionInput({1: 11, 2: 21, 3: 31}, {1: set_back, 2: others, 3: others}, waited=False)
    after = decided(settled(state, every))
    assert (after.leader, after.isr) == (2, (2, 3))


def test_when_the_time_is_over_the_best_of_those_that_are_back_leads() -> None:
    facts = {1: Facts(end_address=300), 2: Facts(end_address=900)}
    after = decided(settled(STATE, ElectionInput({1: 11, 2: 21}, facts, waited=True)))
    assert (after.leader, after.isr) == (2, (2,))
    after = decided(settled(STATE, ElectionInput({1: 11, 2: 21}, {1: UNSAFE, 2: UNSAFE}, waited=True)))
    assert after.leader == NO_LEADER  # who may have lost something still waits for all
    lost = ElectionInput({1: 11, 2: 21, 3: 31}, {1: Facts(), 2: Facts()}, offline={3}, waited=False)
    assert decided(settled(STATE, lost)).leader == 1  # whose disk is lost is not waited for


def test_nobody_is_waited_for_while_a_member_has_run_without_interruption() -> None:
    after = decided(settled(STATE, ElectionInput({2: 20}, {2: Facts()}, waited=False)))
    assert (after.leader, after.isr) == (2, (2,))
    alone = replace(STATE, isr=(1,), incarnations=(10,))
    after = decided(settled(alone, ElectionInput({1: 11}, {1: Facts()}, waited=False)))
    assert (after.leader, after.isr) == (1, (1,))


@each(
    "facts",
    [{}, {1: None}, {1: UNSAFE}, {1: Facts(is_whole=False)}, {1: Facts(is_online=False)}],
    ids=["not asked", "no log", "unsafe", "not whole", "offline"],
)
def test_a_new_incarnation_that_may_lack_something_waits_for_all(facts: dict[int, Facts | None]) -> None:
    after = decided(settled(STATE, ElectionInput({1: 11}, facts)))
    assert after.leader == NO_LEADER
    assert after.isr == STATE.isr


def test_when_all_are_back_the_highest_leads_alone() -> None:
    facts = {1: UNSAFE, 2: replace(UNSAFE, last_epoch=5, end_address=500), 3: replace(UNSAFE, end_address=2000)}
    after = decided(settled(STATE, ElectionInput({1: 11, 2: 21, 3: 31}, facts)))
    assert (after.leader, after.leader_epoch, after.isr, after.incarnations) == (2, 6, (2,), (21,))


def test_all_are_back_only_when_every_member_was_asked_and_serves() -> None:
    live = {1: 11, 2: 21, 3: 31}
    for missing in ({}, {3: Facts(is_online=False)}):
        facts = {1: UNSAFE, 2: UNSAFE, **missing}
        assert decided(settled(STATE, ElectionInput(live, facts))).leader == NO_LEADER


def test_a_log_that_lacks_something_leads_last_however_far_it_reaches() -> None:
    two = replace(STATE, isr=(1, 2), incarnations=(10, 20))
    facts = {1: replace(UNSAFE, end_address=2000, is_whole=False), 2: UNSAFE}
    assert decided(settled(two, ElectionInput({1: 11, 2: 21}, facts))).leader == 2


def test_nobody_leaves_the_isr_for_one_who_is_only_registered() -> None:
    facts = {1: Facts(), 2: Facts()}
    for state in (STATE, replace(STATE, leader=3)):
        silent = ElectionInput({1: 11, 2: 21, 3: 30}, facts, heard={1, 2})
        assert settled(state, silent) is None
        assert isinstance(leader_election.offline(state, REPLICAS, silent, unclean_allowed=False), NoLeader)
        assert decided(settled(state, replace(silent, heard={3}))).isr == (3,)
        gone = decided(settled(state, replace(silent, live={1: 11, 2: 21})))
        assert gone.isr == (1, 2)


def test_of_those_in_sync_one_that_answers_leads() -> None:
    after = decided(settled(STATE, ElectionInput({2: 20, 3: 30}, heard={3})))
    assert (after.leader, after.isr) == (3, (2, 3))
    assert isinstance(
        leader_election.preferred(replace(STATE, leader=2), REPLICAS, ElectionInput(AS_BEFORE, heard={2})), NoLeader
    )
    assert isinstance(leader_election.leaving(STATE, REPLICAS, 1, ElectionInput(AS_BEFORE, heard={1})), NoLeader)


def test_an_emptied_disk_is_back_with_nothing_and_never_leads() -> None:
    two = replace(STATE, isr=(1, 2), incarnations=(10, 20))
    after = decided(settled(two, ElectionInput({1: 11, 2: 21}, {1: None, 2: UNSAFE})))
    assert (after.leader, after.isr) == (2, (2,))
    alone = replace(STATE, isr=(1,), incarnations=(10,), leader=NO_LEADER)
    after_alone = settled(alone, ElectionInput({1: 11, 2: 20, 3: 30}, {1: None}))
    assert isinstance(after_alone, NoLeader)
    assert "gone" in after_alone.reason


def test_a_state_that_names_no_incarnations_trusts_nobody() -> None:
    old = replace(STATE, incarnations=())
    assert decided(settled(old, ElectionInput(AS_BEFORE))).leader == NO_LEADER
    after = decided(settled(old, ElectionInput(AS_BEFORE, {2: Facts()})))
    assert (after.leader, after.incarnations) == (2, (20,))


def test_the_epoch_exceeds_what_is_in_the_leaders_log_and_the_topics_first() -> None:
    situation = ElectionInput({1: 11}, {1: Facts(last_epoch=8)})
    assert decided(settled(STATE, situation)).leader_epoch == 9
    found = leader_election.offline(STATE, REPLICAS, situation, unclean_allowed=False, first_epoch=20)
    assert decided(found).leader_epoch == 20


def test_a_damaged_member_leads_only_when_no_whole_one_does() -> None:
    damaged = {2: Facts(is_whole=False)}
    assert decided(settled(STATE, ElectionInput({2: 20, 3: 30}, damaged))).leader == 3
    assert decided(settled(STATE, ElectionInput({2: 20}, damaged))).leader == 2


# --- Unclean ----------------------------------------------------------------------------------------------------------


def test_unclean_takes_the_longest_log_and_says_so() -> None:
    alone = replace(STATE, isr=(1,), incarnations=(10,))
    facts = {2: Facts(end_address=500), 3: Facts(end_address=700)}
    after = decided(settled(alone, ElectionInput({2: 20, 3: 30}, facts), unclean=True))
    assert (after.leader, after.isr, after.unclean, after.new) == (3, (3,), True, False)
    assert "unclean" in after.reason
    assert "[1]" in after.reason


def test_unclean_leads_empty_only_when_every_log_is_gone() -> None:
    gone = dict.fromkeys(REPLICAS)
    after = decided(settled(STATE, ElectionInput({1: 11, 2: 21, 3: 31}, gone), unclean=True))
    assert (after.leader, after.new, after.unclean) == (1, True, True)
    waits = decided(settled(STATE, ElectionInput({1: 11, 2: 21}, {1: None, 2: None}), unclean=True))
    assert waits.leader == NO_LEADER


# --- The other choices ------------------------------------------------------------------------------------------------


def test_a_new_partition_is_led_by_its_first_living_replica() -> None:
    after = decided(leader_election.new((3, 1, 2), ElectionInput({1: 10, 2: 20}), first_epoch=6))
    assert (after.leader, after.leader_epoch, after.isr, after.new) == (1, 6, (1, 2), True)
    assert isinstance(leader_election.new(REPLICAS, ElectionInput({})), NoLeader)


def test_a_partition_never_led_may_be_led_by_anybody() -> None:
    unmade = replace(STATE, isr=(1,), incarnations=(10,), new=True)
    after = decided(settled(unmade, ElectionInput({2: 20, 3: 30}, {2: None})))
    assert (after.leader, after.leader_epoch, after.isr, after.new) == (2, 5, (2, 3), True)


def test_reassigned_takes_an_in_sync_replica_that_stays() -> None:
    after = decided(leader_election.reassigned(STATE, (4, 3), ElectionInput({**AS_BEFORE, 4: 40})))
    assert (after.leader, after.leader_epoch, after.isr) == (3, 5, (1, 2, 3))
    assert isinstance(leader_election.reassigned(STATE, (4,), ElectionInput({**AS_BEFORE, 4: 40})), NoLeader)


def test_preferred() -> None:
    elsewhere = replace(STATE, leader=2)
    assert leader_election.preferred(STATE, REPLICAS, ElectionInput(AS_BEFORE)) is None
    assert decided(leader_election.preferred(elsewhere, REPLICAS, ElectionInput(AS_BEFORE))).leader == 1
    for situation in (
        ElectionInput({**AS_BEFORE, 1: 11}),
        ElectionInput({2: 20, 3: 30}),
        ElectionInput(AS_BEFORE, leaving={1}),
        ElectionInput(AS_BEFORE, {1: Facts(is_whole=False)}),
    ):
        assert isinstance(leader_election.preferred(elsewhere, REPLICAS, situation), NoLeader)


def test_leaving_moves_the_leader_and_leaves_the_isr() -> None:
    after = decided(leader_election.leaving(STATE, REPLICAS, 1, ElectionInput(AS_BEFORE, leaving={1, 2})))
    assert (after.leader, after.leader_epoch, after.isr) == (3, 5, (2, 3))
    follows = decided(leader_election.leaving(STATE, REPLICAS, 2, ElectionInput(AS_BEFORE, leaving={2})))
    assert (follows.leader, follows.leader_epoch, follows.isr) == (1, 4, (1, 3))
    alone = replace(STATE, isr=(1,), incarnations=(10,))
    assert isinstance(leader_election.leaving(alone, REPLICAS, 1, ElectionInput(AS_BEFORE)), NoLeader)


# --- What always holds ------------------------------------------------------------------------------------------------

_facts = st.builds(Facts, st.integers(0, 6), st.integers(0, 3), st.booleans(), st.booleans(), st.booleans())
_brokers = st.sampled_from(REPLICAS)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[PartitionState, ElectionInput]:
    isr = tuple(sorted(draw(st.sets(_brokers, min_size=1))))
    state = PartitionState(
        leader=draw(st.sampled_from((NO_LEADER, *isr))),
        leader_epoch=draw(st.integers(0, 6)),
        isr=isr,
        controller_epoch=1,
        new=draw(st.booleans()),
        version=3,
        incarnations=tuple(one * 10 for one in isr),
    )
    live = {one: one * 10 + draw(st.integers(0, 1)) for one in draw(st.sets(_brokers))}
    facts = draw(st.dictionaries(_brokers, st.none() | _facts))
    few = st.sets(_brokers, max_size=1)
    return state, ElectionInput(live, facts, draw(few), draw(few), draw(st.none() | st.sets(_brokers)))


@given(_cases(), st.booleans())
def test_what_every_decision_obeys(case: tuple[PartitionState, ElectionInput], unclean: bool) -> None:
    state, situation = case
    after = leader_election.reconcile(state, REPLICAS, situation, unclean_allowed=unclean)
    members = leader_election.uninterrupted(state, situation)
    if not isinstance(after, Decision):
        if after is None:
            waits = not any(situation.answers(one) for one in members)
            assert waits or (state.leader in members and state.isr == members)
        else:
            assert state.leader == NO_LEADER
            assert not members or state.new
        return
    assert len(after.isr) == len(set(after.isr)) == len(after.incarnations) > 0
    assert (after.leader_epoch > state.leader_epoch) == (after.leader != state.leader or state.leader not in members)
    assert unclean or not after.unclean
    if after.leader == NO_LEADER:
        assert after.isr == state.isr
        return
    assert after.leader in after.isr
    if members and not state.new:
        assert any(situation.answers(one) for one in members), "nobody leaves for one who is only registered"
        assert after.leader == state.leader or situation.answers(after.leader)
    for one, incarnation in zip(after.isr, after.incarnations, strict=True):
        assert situation.serves(one)
        assert situation.live[one] == incarnation
    if members and not state.new:
        assert after.isr == members
        assert not after.unclean
    elif not state.new and not after.new:
        assert situation.facts.get(after.leader) is not None
    if not after.unclean and not state.new:
        assert set(after.isr) <= set(state.isr)
        assert not after.new


def test_a_state_names_its_last_unclean_election_ever_after() -> None:
    """By any hand: what was written before it, and is cut after it, may have been acknowledged."""
    alone = ElectionInput({2: 21}, {2: UNSAFE})
    found = decided(settled(STATE, alone, unclean=True))
    assert found.unclean
    state = found.applied(STATE, 9)
    assert state.unclean_epoch == state.leader_epoch == 5
    moved = leader_election.leaving(
        replace(state, isr=(2, 3), incarnations=(21, 30)), REPLICAS, 2, ElectionInput({2: 21, 3: 30})
    )
    assert decided(moved).applied(state, 9).unclean_epoch == 5
    assert decided(settled(STATE, ElectionInput({2: 20, 3: 30}))).applied(STATE, 9).unclean_epoch == -1


def test_a_reason_says_how_and_when_the_leader_was_lost() -> None:
    how = {1: "stopped answering at 03:00:12"}
    after = decided(settled(STATE, ElectionInput({2: 20, 3: 30}, how_lost=how)))
    assert all(part in after.reason for part in ("broker 1 stopped answering at 03:00:12", "2 is the first in-sync"))
    assert "broker 1 " in decided(settled(STATE, ElectionInput({2: 20, 3: 30}))).reason
    follower = decided(settled(STATE, ElectionInput({1: 10, 2: 20}, how_lost={3: "shut down at 03:00:13"})))
    assert "broker 3 " in follower.reason and "03:00:13" in follower.reason
