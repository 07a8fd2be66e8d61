"""The steps of a reassignment: from every state that ZooKeeper can be left in, what is next, and that it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.coordination.topics import Topic
from klog.errors import InvalidReplicaAssignment, NoReassignmentInProgress
from klog.replication.leader_election import ElectionInput
from klog.replication.reassignment_steps import (
    Copying,
    Removal,
    ReplicaAssignment,
    Stalled,
    begin,
    cancel,
    check_target,
    entry_of,
    in_progress,
    next_step,
    with_entry,
)
from tests.rows import each


def state(leader: int, *isr: int, epoch: int = 5) -> PartitionState:
    return PartitionState(leader, epoch, isr, 1, version=3, incarnations=tuple(100 + one for one in isr))


def alive(*ids: int, offline: tuple[int, ...] = ()) -> ElectionInput:
    return ElectionInput(live={one: 100 + one for one in ids}, offline=set(offline))


EVERYBODY = alive(1, 2, 3, 4, 5, 6)
BEGUN = begin(ReplicaAssignment((1, 2, 3)), (4, 2, 5))


# --- Entries ----------------------------------------------------------------------------------------------------------


def test_new_and_old_replicas_stand_together_the_target_first() -> None:
    assert ReplicaAssignment((4, 2, 5, 1, 3), adding=(4, 5), removing=(1, 3), origin=(1, 2, 3)) == BEGUN
    assert BEGUN.in_progress and BEGUN.target == (4, 2, 5) and not BEGUN.abandoned


def test_a_new_order_alone_is_over_at_once() -> None:
    assert begin(ReplicaAssignment((1, 2, 3)), (3, 1, 2)) == ReplicaAssignment((3, 1, 2))


def test_another_target_takes_the_place_of_the_first() -> None:
    other = begin(BEGUN, (6, 2, 5), 1000)
    assert other == ReplicaAssignment((6, 2, 5, 1, 3, 4), (6, 5), (1, 3, 4), (1, 2, 3), 1000)
    assert other.abandoned == (4,)
    assert begin(BEGUN, BEGUN.target) == BEGUN


def test_cancel_goes_back_to_where_it_was_and_in_that_order() -> None:
    back = cancel(BEGUN)
    assert back == ReplicaAssignment((1, 2, 3, 4, 5), (), (4, 5), (1, 2, 3)) and back.is_cancelled
    assert not BEGUN.is_cancelled
    with pytest.raises(NoReassignmentInProgress, match="1, 2"):
        cancel(ReplicaAssignment((1, 2)))


def test_what_is_written_is_what_is_read() -> None:
    topic = Topic("t", None, {0: (1, 2, 3), 1: (1,)}, 0, 0)
    for entry in (BEGUN, begin(BEGUN, (6, 2, 5), 1000), cancel(BEGUN), ReplicaAssignment((9,))):
        written = with_entry(topic, 0, entry)
        assert entry_of(written, 0) == entry
        assert entry_of(written, 1) == ReplicaAssignment((1,))
        assert in_progress(written) == ([0] if entry.in_progress else [])
        assert with_entry(written, 0, ReplicaAssignment((1, 2, 3))) == topic


def test_an_origin_that_another_tool_left_out_is_what_is_not_added() -> None:
    topic = replace(Topic("t", None, {0: (3, 1, 2)}, 0, 0), adding={0: (3,)}, removing={0: (1,)})
    assert entry_of(topic, 0).origin == (1, 2)


@each(
    ("target", "words"),
    [
        ((), "no replicas"),
        ((1, 1), "twice"),
        ((1, 7), r"broker 7\b.* 1, 2$"),
        ((8, 7), "brokers 8, 7"),
        ((-1,), "broker -1"),
    ],
)
def test_a_target_that_cannot_be(target: tuple[int, ...], words: str) -> None:
    with pytest.raises(InvalidReplicaAssignment, match=words):
        check_target(ReplicaAssignment((1, 2, 3)), target, {1, 2})
    check_target(ReplicaAssignment((1, 2, 3)), (3, 2), {1, 2})  # 3 is dead, but nothing has to be put on it


# --- Steps ------------------------------------------------------------------------------------------------------------


def test_first_the_new_ones_catch_up() -> None:
    assert next_step(BEGUN, state(1, 1, 2, 3), EVERYBODY) == Copying((4, 5))
    assert next_step(BEGUN, state(1, 1, 2, 3, 5), EVERYBODY) == Copying((4,))


def test_then_the_old_ones_go_and_a_leader_that_goes_is_replaced_by_the_first_of_the_target() -> None:
    step = next_step(BEGUN, state(1, 1, 2, 3, 5, 4), EVERYBODY)
    assert isinstance(step, Removal)
    assert step.gone == (1, 3) and step.entry == ReplicaAssignment((4, 2, 5))
    assert (step.decision.leader, step.decision.leader_epoch) == (4, 6)
    assert step.decision.isr == (2, 5, 4) and step.decision.incarnations == (102, 105, 104)


def test_a_leader_that_stays_leads_on_under_a_new_epoch() -> None:
    step = next_step(BEGUN, state(2, 1, 2, 3, 4, 5), EVERYBODY)
    assert isinstance(step, Removal)
    assert (step.decision.leader, step.decision.leader_epoch) == (2, 6)


def test_old_replicas_that_are_dead_or_out_of_sync_hold_nothing_up() -> None:
    step = next_step(BEGUN, state(4, 4, 2, 5), alive(2, 4, 5))
    assert isinstance(step, Removal) and step.gone == (1, 3)


def test_a_dead_target_stalls_it_and_is_named() -> None:
    assert next_step(BEGUN, state(1, 1, 2, 3, 5), alive(1, 2, 3, 5)) == Stalled("broker 4 is not alive")
    assert next_step(BEGUN, state(1, 1, 2), alive(1, 2)) == Stalled("brokers 4, 5 are not alive")
    lost = next_step(BEGUN, state(1, 1, 2, 3, 5), alive(1, 2, 3, 4, 5, offline=(4,)))
    assert lost == Stalled("the disk of broker 4 does not serve")


def test_an_election_that_is_due_comes_first() -> None:
    assert next_step(BEGUN, None, EVERYBODY) == Stalled("it has no leader")
    assert next_step(BEGUN, state(NO_LEADER, 1), EVERYBODY) == Stalled("it has no leader")
    assert next_step(BEGUN, state(1, 1, 2), alive(2, 4, 5)) == Stalled("its leader 1 is not alive")
    again = ElectionInput(live={1: 999, 2: 102, 4: 104, 5: 105})
    assert next_step(BEGUN, state(1, 1, 2), again) == Stalled("its leader 1 is not alive")


def test_a_replica_that_restarted_since_it_was_in_sync_is_not_in_sync() -> None:
    restarted = ElectionInput(live={**EVERYBODY.live, 4: 999})
    assert next_step(BEGUN, state(1, 1, 2, 3, 5, 4), restarted) == Copying((4,))


def test_nothing_to_do_where_nothing_is_reassigned() -> None:
    assert next_step(ReplicaAssignment((1, 2)), state(1, 1), alive(1)) is None


def test_a_cancel_waits_for_nobody_but_a_leader() -> None:
    back = cancel(BEGUN)
    step = next_step(back, state(1, 1, 5), alive(1, 5))
    assert isinstance(step, Removal)
    assert step.entry == ReplicaAssignment((1, 2, 3)) and step.gone == (4, 5) and step.decision.isr == (1,)
    led_by_a_new_one = next_step(back, state(5, 5, 4), alive(4, 5))
    assert led_by_a_new_one == Stalled("brokers 1, 2, 3 are not alive")
    assert next_step(back, state(5, 5, 4), alive(3, 4, 5, 1, 2)) == Copying((1, 2, 3))


def test_fewer_replicas_are_dropped_at_once_if_those_that_stay_are_in_sync() -> None:
    fewer = begin(ReplicaAssignment((1, 2, 3)), (2, 3))
    step = next_step(fewer, state(1, 1, 2, 3), alive(1, 2, 3))
    assert isinstance(step, Removal) and step.decision.leader == 2 and step.decision.isr == (2, 3)
    assert next_step(fewer, state(1, 1, 2), alive(1, 2)) == Stalled("broker 3 is not alive")


def test_what_an_earlier_target_was_filling_goes_first() -> None:
    other = begin(BEGUN, (6, 2, 5), 1000)
    step = next_step(other, state(4, 1, 2, 3, 4), EVERYBODY)
    assert isinstance(step, Removal)
    assert step.gone == (4,) and step.decision.leader != 4 and 4 not in step.decision.isr
    assert step.entry == ReplicaAssignment((6, 2, 5, 1, 3), (6, 5), (1, 3), (1, 2, 3), 1000)


def test_what_an_earlier_target_was_filling_stays_while_it_alone_is_in_sync() -> None:
    other = begin(BEGUN, (6, 2, 5))
    assert next_step(other, state(4, 4), alive(4, 6, 2, 5)) == Copying((6, 2, 5))


# --- It always ends, and never without a replica that has everything -----------------------------------------------


targets = st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True).map(tuple)


@given(targets, st.lists(targets | st.none(), min_size=1, max_size=3), st.data())
def test_however_brokers_catch_up_or_restart_it_ends_at_the_last_target(
    origin: tuple[int, ...], wanted: list[tuple[int, ...] | None], data: st.DataObject
) -> None:
    """Targets follow one another (None: cancel); brokers restart meanwhile; at last all live and catch up."""
    entry, now = ReplicaAssignment(origin), state(origin[0], *origin)
    live = {one: 100 + one for one in range(1, 7)}
    todo = list(wanted)
    goal: tuple[int, ...] = origin
    for turn in range(100):
        drawn = data.draw(st.sampled_from(["step", "grow", "restart", "ask"])) if turn < 20 else None
        act = drawn or ("step", "grow")[turn % 2]
        if act == "ask" or (turn == 20 and todo):
            target = todo.pop(0) if todo else None
            if target is None and not entry.in_progress:
                continue
            goal = entry.origin if target is None else target
            entry = cancel(entry) if target is None else begin(entry, target)
        elif act == "grow":
            members = dict(zip(now.isr, now.incarnations, strict=True))
            behind = [one for one in entry.replicas if members.get(one) != live[one]]
            if behind:
                grown = {**members, behind[0]: live[behind[0]]}
                now = replace(now, isr=tuple(grown), incarnations=tuple(grown.values()))
        elif act == "restart":
            one = data.draw(st.sampled_from(entry.replicas))
            if one != now.leader:
                live[one] += 1000
        else:
            step = next_step(entry, now, ElectionInput(live=live))
            if isinstance(step, Removal):
                before = now
                now = step.decision.applied(now, 1)
                assert set(now.isr) <= set(before.isr) and now.leader in now.isr
                assert now.leader_epoch > before.leader_epoch
                assert set(step.gone) == set(entry.replicas) - set(step.entry.replicas)
                assert not set(now.isr) & set(step.gone)
                entry = step.entry
    assert entry == ReplicaAssignment(goal)
    assert set(now.isr) == set(goal)
