"""The rules by which a leader counts its followers, each with the loss or the wait that it prevents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from klog.config import LogConfig
from klog.errors import (
    FencedLeaderEpoch,
    InvalidConfig,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    ReplicaNotAvailable,
    StaleBrokerEpoch,
    UnknownLeaderEpoch,
)
from klog.replication.isr import LagMarks, check_flush_rule, due_after_s
from klog.storage.log import LogEnd
from tests.replication.led import ALIVE, LAG_S, NEVER, Led, Reader, lead, records, state_of
from tests.rows import each

START = LogEnd(0, 0)


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path / "t-0")


# --- The high watermark -----------------------------------------------------------------------------------------------


def test_committed_is_flushed_by_every_member_of_the_isr(led: Led) -> None:
    end, waiter = led.append()
    led.flush()
    led.fetched(2, end)
    assert waiter.told == []  # 3 has it not
    led.fetched(3, START, end_address=end.address)
    assert waiter.told == []  # 3 has it, and no disk of his
    led.fetched(3, end)
    assert waiter.told == [None]
    assert led.partition.high_watermark == end


def test_the_leader_waits_for_its_own_flush_too(led: Led) -> None:
    end, waiter = led.append()
    led.fetched(2, end)
    led.fetched(3, end)
    assert waiter.told == []
    led.flush()
    assert waiter.told == [None]


def test_r8_a_member_that_has_said_nothing_under_this_epoch_holds_the_high_watermark(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", before=5)
    assert led.partition.high_watermark == START
    led.fetched(2, led.log.end)
    assert led.partition.high_watermark == START
    assert not led.partition.end_is_known
    led.fetched(3, led.log.end)
    assert led.partition.high_watermark == led.log.end
    assert led.partition.end_is_known


def test_r8_a_leader_begins_with_the_high_watermark_that_it_knew(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", before=5)
    middle = led.log.floor(led.log.end.address // 2)
    again = lead(led.log, replace(led.partition.state, leader_epoch=4), high_watermark=middle)
    assert again.high_watermark == middle
    assert not again.end_is_known


def test_alone_in_the_isr_what_it_has_flushed_is_committed(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", isr=(1,), before=5)
    assert led.partition.high_watermark == led.log.end


def test_who_is_not_in_the_isr_does_not_hold_it_up(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", isr=(1, 2))
    end, waiter = led.append()
    led.flush()
    led.fetched(3, START)
    led.fetched(2, end)
    assert waiter.told == [None]


# --- R2: a change under way -------------------------------------------------------------------------------------------


def shrink(led: Led) -> None:
    """2 and 3 are in sync; 3 stops fetching for longer than the lag time, so that it is to leave."""
    led.fetched(2, led.log.end)
    led.fetched(3, led.log.end)
    led.partition.append(records())
    led.partition.mark(100.0, LAG_S)
    led.flush()
    led.fetched(2, led.log.end)


def test_r2_who_is_to_leave_counts_until_that_is_written(led: Led) -> None:
    shrink(led)
    end, waiter = led.append()
    led.flush()
    led.fetched(2, end)
    change = led.propose(100.0 + LAG_S + 0.1)
    assert change is not None and change.isr == (1, 2)
    assert waiter.told == []
    assert led.partition.isr_size == 3  # min.insync.replicas counts the old one
    led.settle(change)
    assert waiter.told == [None]
    assert led.partition.isr == (1, 2) and led.partition.state_version == 8


def test_r2_who_is_to_join_counts_from_the_moment_on_that_it_is_sent(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", isr=(1, 2))
    led.fetched(2, START)
    led.fetched(3, START)
    change = led.propose()
    assert change is not None and change.isr == (1, 2, 3)
    end, waiter = led.append()
    led.flush()
    led.fetched(2, end)
    assert waiter.told == []  # in ZooKeeper 3 may be in the ISR already, and be elected
    assert led.partition.isr_size == 2
    led.fetched(3, end)
    assert waiter.told == [None]
    led.settle(change)
    assert led.partition.isr == (1, 2, 3)
    assert led.partition.state.incarnations == (11, 22, 33)


def test_r2_one_change_at_a_time(led: Led) -> None:
    shrink(led)
    assert led.propose(200.0) is not None
    assert led.propose(300.0) is None


def test_r2_another_hand_decides_what_was_under_way(led: Led) -> None:
    shrink(led)
    change = led.propose(200.0)
    assert change is not None
    end, waiter = led.append()
    led.flush()
    led.fetched(2, end)
    assert not led.partition.adopt((1, 2, 3), state_of((1,), (11,), 7))  # as old as what we know
    assert waiter.told == [] and led.partition.change is change
    assert led.partition.adopt((1, 2, 3), state_of((1, 3), (11, 33), 9))
    assert waiter.told == []  # now it is 3 that counts
    led.partition.isr_written(change, 8)  # the answer to what is over
    assert led.partition.isr == (1, 3)
    led.fetched(3, end)
    assert waiter.told == [None]


def test_r2_who_resigns_acknowledges_nothing_any_more(led: Led) -> None:
    """Rule R9 as well: what is told after the epoch is over is told to nobody."""
    reader = Reader()
    led.partition.watch_appends(reader)
    end, waiter = led.append()
    assert reader.times == 1
    led.partition.resign(NotLeader("another leads"))
    assert reader.times == 2
    led.flush()
    led.fetched(2, end)
    led.fetched(3, end)
    assert [type(error) for error in waiter.told] == [NotLeader]
    assert led.partition.high_watermark == START
    with pytest.raises(NotLeader):
        led.partition.check_replica(3, 2, 22)
    with pytest.raises(NotLeader):
        led.partition.append(records())


def test_r1_a_suspended_leader_appends_and_acknowledges_nothing_but_can_be_read(led: Led) -> None:
    end, _ = led.append()
    led.flush()
    led.fetched(2, end)
    led.fetched(3, end)
    _, waiter = led.append()
    led.partition.suspend(NotLeader("the session has expired"))
    assert [type(error) for error in waiter.told] == [NotLeader]
    with pytest.raises(NotLeader):
        led.partition.append(records())
    assert not led.partition.resigned and led.partition.high_watermark == end
    assert led.propose(1000.0) is None


# --- Joining ----------------------------------------------------------------------------------------------------------


def test_a_follower_joins_when_it_has_flushed_all_that_is_committed(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", isr=(1,), before=5)
    led.fetched(2, START, end_address=led.log.end.address)
    assert led.noticed == 0 and led.propose() is None
    led.fetched(2, led.log.end)
    assert led.noticed == 1
    change = led.propose()
    assert change is not None and change.isr == (1, 2) and change.incarnations == (11, 22)
    assert "2 " in change.reason


def test_r8_nobody_joins_below_the_start_of_the_leaders_epoch(tmp_path: Path) -> None:
    """The high watermark may be stale: what lies between it and the epoch's start may be committed."""
    led = Led(tmp_path / "t-0", isr=(1, 2), before=5)
    assert led.partition.high_watermark == START
    led.fetched(3, START)
    assert led.propose() is None
    led.fetched(3, led.log.end)
    change = led.propose()
    assert change is not None and change.isr == (1, 2, 3)


@each("alive", [{1: 11, 2: 22}, {1: 11, 2: 22, 3: 34}])
def test_r5_only_who_lives_joins_as_the_incarnation_that_fetched(tmp_path: Path, alive: dict[int, int]) -> None:
    led = Led(tmp_path / "t-0", isr=(1, 2))
    led.fetched(3, START)
    assert led.propose(alive=alive) is None


def test_r5_who_was_put_out_by_the_controller_joins_only_after_it_has_fetched_again(led: Led) -> None:
    """KIP-841: what a dead broker said before it died must not bring it back."""
    led.fetched(2, START)
    led.fetched(3, START)
    assert led.partition.adopt((1, 2, 3), state_of((1, 2), (11, 22), 8))
    assert led.propose() is None
    led.fetched(3, START)
    change = led.propose()
    assert change is not None and change.isr == (1, 2, 3)


def test_r3_a_new_incarnation_starts_without_what_the_old_one_said(led: Led) -> None:
    end, waiter = led.append()
    led.flush()
    led.fetched(2, end)
    led.fetched(3, START)
    led.fetched(2, START, incarnation=23)  # it came back without
    led.fetched(3, end)
    assert waiter.told == []
    led.fetched(2, end, incarnation=23)
    assert waiter.told == [None]
    with pytest.raises(StaleBrokerEpoch):
        led.partition.check_replica(3, 2, 22)


def test_r1_a_member_that_registered_again_leaves_until_it_has_caught_up(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", before=5)
    led.fetched(3, led.log.end)
    led.fetched(2, START, incarnation=23)
    assert led.noticed == 1
    change = led.propose(alive={1: 11, 2: 23, 3: 33})
    assert change is not None and change.isr == (1, 3)
    led.settle(change)
    led.fetched(2, led.log.end, incarnation=23)
    change = led.propose(alive={1: 11, 2: 23, 3: 33})
    assert change is not None and (change.isr, change.incarnations) == ((1, 3, 2), (11, 33, 23))


def test_r1_a_member_that_registered_again_and_lacks_nothing_is_named_anew(led: Led) -> None:
    led.fetched(3, START)
    led.fetched(2, START, incarnation=23)
    change = led.propose(alive={1: 11, 2: 23, 3: 33})
    assert change is not None and (change.isr, change.incarnations) == ((1, 2, 3), (11, 23, 33))


# --- Lag --------------------------------------------------------------------------------------------------------------


def test_r4_a_member_leaves_when_it_was_behind_for_the_lag_time_and_not_before(led: Led) -> None:
    led.fetched(2, START)
    led.fetched(3, START)
    led.partition.mark(0.0, LAG_S)
    assert led.propose(1000.0) is None  # idle: nobody is behind, however long ago he fetched
    end, _ = led.append()
    led.flush()
    led.partition.mark(1000.0, LAG_S)
    led.fetched(2, end)
    assert led.propose(1000.0 + LAG_S) is None
    change = led.propose(1000.0 + LAG_S + 0.1)
    assert change is not None and change.isr == (1, 2)
    assert "10.1 s" in change.reason


def test_r4_one_that_is_always_a_little_behind_stays(led: Led) -> None:
    before = START
    led.fetched(3, START)
    for now in range(100):
        end, _ = led.append()
        led.flush()
        led.partition.mark(float(now), LAG_S)
        led.fetched(2, before)
        led.fetched(3, end)
        before = end
        assert led.propose(float(now)) is None


def test_r4_what_is_fetched_and_not_flushed_is_behind(led: Led) -> None:
    end, _ = led.append()
    led.flush()
    led.partition.mark(0.0, LAG_S)
    led.fetched(2, end)
    led.fetched(3, START, end_address=end.address)
    change = led.propose(LAG_S + 1)
    assert change is not None and change.isr == (1, 2)


def test_r4_lag_counts_from_the_moment_on_at_which_the_flush_falls_due(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", flush_messages=1000, flush_ms=4000)
    end, _ = led.append()
    led.partition.mark(0.0, LAG_S)
    led.fetched(2, START, end_address=end.address)
    led.fetched(3, START, end_address=end.address)
    assert led.propose(LAG_S + 3.9) is None
    change = led.propose(LAG_S + 4.1)
    assert change is not None and change.isr == (1,)


def test_r4_without_a_time_for_flushes_what_is_fetched_counts(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", flush_messages=1000)
    end, _ = led.append()
    led.partition.mark(0.0, LAG_S)
    led.fetched(2, START, end_address=end.address)
    led.fetched(3, START)
    change = led.propose(LAG_S + 1)
    assert change is not None and change.isr == (1, 2)


def test_when_a_flush_falls_due() -> None:
    assert due_after_s(LogConfig()) == 0.0
    assert due_after_s(LogConfig(flush_messages=NEVER)) == 0.0  # never flushed: what is appended counts
    assert due_after_s(LogConfig(flush_messages=100, flush_ms=1500)) == 1.5
    assert due_after_s(LogConfig(flush_messages=100)) is None


@each(
    ("messages", "flush_ms", "is_right"),
    [(1, NEVER, True), (NEVER, NEVER, True), (100, 10_000, True), (100, 10_001, False), (100, NEVER, False)],
)
def test_r4_flushes_too_rare_for_replicas_are_refused(messages: int, flush_ms: int, is_right: bool) -> None:
    config = LogConfig(flush_messages=messages, flush_ms=flush_ms)
    if is_right:
        check_flush_rule(config, 10_000)
    else:
        with pytest.raises(InvalidConfig):
            check_flush_rule(config, 10_000)


def test_r4_a_leader_whose_own_flush_is_overdue_knows_it(led: Led) -> None:
    led.append()
    led.partition.mark(0.0, LAG_S)
    assert not led.partition.own_flush_is_overdue(LAG_S, LAG_S)
    assert led.partition.own_flush_is_overdue(LAG_S + 1, LAG_S)
    led.flush()
    assert not led.partition.own_flush_is_overdue(LAG_S + 1, LAG_S)


def test_r6_a_leader_that_nobody_fetches_from_knows_it(led: Led) -> None:
    led.partition.mark(0.0, LAG_S)
    assert led.partition.is_deserted(6.0, 5.0)  # nobody has come under this epoch
    led.fetched(2, START)
    assert not led.partition.is_deserted(6.0, 5.0)
    end, _ = led.append()
    led.partition.mark(10.0, LAG_S)
    assert led.partition.is_deserted(16.0, 5.0)
    led.fetched(2, end)
    assert not led.partition.is_deserted(16.0, 5.0)


def deserted(led: Led) -> None:
    """Both followers were heard of at second 0, and never again; a message has come since."""
    led.partition.mark(0.0, LAG_S)
    led.fetched(2, START)
    led.fetched(3, START)
    led.append()
    led.flush()
    led.partition.mark(1.0, LAG_S)


def test_a_leader_that_no_follower_reaches_knows_that_others_could_go_on(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", min_insync_replicas=2)
    deserted(led)
    assert not led.partition.is_cut_off(1.0 + LAG_S, ALIVE, LAG_S)  # nobody is to leave yet
    assert led.partition.is_cut_off(1.1 + LAG_S, ALIVE, LAG_S)
    assert not led.partition.is_cut_off(1.1 + LAG_S, {1: 11, 2: 22}, LAG_S)  # 2 alone is too few
    assert not led.partition.is_cut_off(1.1 + LAG_S, {**ALIVE, 3: 34}, LAG_S)  # another 3, not the one in sync
    assert led.propose(1.1 + LAG_S) is not None
    assert not led.partition.is_cut_off(1.1 + LAG_S, ALIVE, LAG_S)  # on its way to be alone in the ISR


@each(("least", "isr"), [(1, (1, 2, 3)), (2, (1, 2)), (3, (1, 2, 3))])
def test_it_stays_where_it_can_go_on_alone_or_nobody_could_without_it(
    tmp_path: Path, least: int, isr: tuple[int, ...]
) -> None:
    led = Led(tmp_path / "t-0", isr, min_insync_replicas=least)
    deserted(led)
    assert not led.partition.is_cut_off(100.0, ALIVE, LAG_S)


def test_a_follower_that_is_slow_is_heard_of_all_the_same(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", min_insync_replicas=2)
    deserted(led)
    for now in range(2, 13):
        led.partition.mark(float(now), LAG_S)
        led.fetched(2, START)
    assert not led.partition.is_cut_off(12.0, ALIVE, LAG_S)


def test_an_idle_partition_is_not_cut_off(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", min_insync_replicas=2)
    led.partition.mark(0.0, LAG_S)
    led.fetched(2, START)
    led.fetched(3, START)
    led.partition.mark(1000.0, LAG_S)
    assert not led.partition.is_cut_off(1000.0, ALIVE, LAG_S)


def test_lag_by_messages_where_it_is_set(led: Led) -> None:
    led.fetched(2, START)
    for _ in range(5):
        led.append()
    led.flush()
    led.fetched(3, led.log.end)
    assert led.partition.propose_isr(0.0, ALIVE, LAG_S, 5) is None
    change = led.partition.propose_isr(0.0, ALIVE, LAG_S, 4)
    assert change is not None and change.isr == (1, 3)
    assert "5 messages" in change.reason


def test_marks_keep_what_decides_and_no_more() -> None:
    marks = LagMarks()
    for now in range(1000):
        marks.note(float(now), now * 10, 20.0)
    assert marks.behind_since(9990) is None
    assert marks.behind_since(9985) == 999.0
    since = marks.behind_since(0)
    assert since is not None and since > 950  # older ones are dropped: behind for long enough is enough
    marks.note(1000.0, 50, 20.0)  # cut back
    assert marks.behind_since(50) is None


# --- min.insync.replicas ----------------------------------------------------------------------------------------------


def test_min_insync_replicas_before_and_after_the_append(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", isr=(1, 2), min_insync_replicas=2)
    led.partition.check_in_sync()
    _, waiter = led.append()
    led.flush()
    led.partition.mark(0.0, LAG_S)
    change = led.propose(LAG_S + 1)
    assert change is not None and change.isr == (1,)
    led.settle(change)
    assert [type(error) for error in waiter.told] == [NotEnoughReplicasAfterAppend]
    with pytest.raises(NotEnoughReplicas):
        led.partition.check_in_sync()


@each(("isr", "least", "refused"), [((1,), 2, True), ((1, 2), 5, True), ((1, 2, 3), 5, False)])
def test_no_more_are_needed_in_sync_than_there_are_replicas(
    tmp_path: Path, isr: tuple[int, ...], least: int, refused: bool
) -> None:
    led = Led(tmp_path / "t-0", isr=isr, min_insync_replicas=least)
    assert led.partition.min_isr == min(least, 3)
    if refused:
        with pytest.raises(NotEnoughReplicas):
            led.partition.check_in_sync()
    else:
        led.partition.check_in_sync()


def test_the_only_replica_is_enough(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", isr=(1,), min_insync_replicas=2)
    led.partition.adopt((1,), state_of((1,), (ALIVE[1],), led.partition.state_version + 1))
    assert led.partition.min_isr == 1
    led.partition.check_in_sync()
    _, waiter = led.append()
    led.flush()
    assert waiter.told == [None]


# --- Whose fetch it is ------------------------------------------------------------------------------------------------


def test_a_replica_fetch_names_the_very_epoch_and_is_a_replicas(led: Led) -> None:
    led.partition.check_replica(3, 2, 22)
    with pytest.raises(FencedLeaderEpoch):
        led.partition.check_replica(2, 2, 22)
    with pytest.raises(FencedLeaderEpoch):
        led.partition.check_replica(-1, 2, 22)  # consumers may leave it out, replicas may not
    with pytest.raises(UnknownLeaderEpoch):
        led.partition.check_replica(4, 2, 22)
    for stranger in (1, 4):
        with pytest.raises(ReplicaNotAvailable):
            led.partition.check_replica(3, stranger, 1)


def test_a_replica_that_is_none_any_more_is_forgotten(led: Led) -> None:
    led.fetched(3, START)
    assert led.partition.adopt((1, 2), state_of((1, 2), (11, 22), 8))
    assert led.partition.position(3) is None
    with pytest.raises(ReplicaNotAvailable):
        led.partition.check_replica(3, 3, 33)
    assert led.partition.adopt((1, 2, 4), state_of((), (), 8))  # the assignment alone has changed
    assert led.partition.replicas == (1, 2, 4) and led.partition.isr == (1, 2)
    assert led.partition.adopt((4, 1), state_of((1, 2), (11, 22), 6)), "the list is the controller's, the rest is old"
    assert led.partition.replicas == (4, 1) and led.partition.isr == (1, 2)
    assert not led.partition.adopt((4, 1), state_of((1,), (11,), 6))
