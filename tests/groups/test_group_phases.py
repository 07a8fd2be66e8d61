"""A group by itself: what each event does, and what each request is told in each phase."""

from __future__ import annotations

import pytest

from klog.coordination.group_states import COORDINATOR, GroupState, MemberState
from klog.errors import ZooKeeperError
from klog.groups import bounds, members, phases
from klog.groups.bounds import GroupLimits
from klog.groups.group import NEW_MEMBER_S, Group
from klog.groups.members import PENDING_S
from klog.groups.phases import Event, Phase
from tests.groups.group_world import REBALANCE_MS, SESSION_MS, GroupWorld

ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
SESSION_S = SESSION_MS / 1000
REBALANCE_S = REBALANCE_MS / 1000


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


# --- The table --------------------------------------------------------------------------------------------------------


def test_every_phase_can_be_reached_and_left_and_answers_everything() -> None:
    reached = {Phase.EMPTY} | set(phases.FOLLOWS.values())
    assert reached == set(Phase) - {Phase.DEAD}
    assert {phase for phase, _ in phases.FOLLOWS} == set(Phase) - {Phase.DEAD}
    for answers in (phases.HEARTBEAT, phases.SYNC, phases.COMMIT):
        assert set(answers) == set(Phase)
    with pytest.raises(KeyError):
        phases.after(Phase.EMPTY, Event.ASSIGNED)


# --- Joining ----------------------------------------------------------------------------------------------------------


def test_one_member_joins_syncs_and_leaves(world: GroupWorld) -> None:
    joined = world.joined(world.join())
    assert (joined.generation, joined.leader, joined.protocol) == (1, joined.member_id, "range")
    assert joined.members == ((joined.member_id, None, b"r"),)
    assert world.group.phase is Phase.COMPLETING
    assert world.synced(world.sync(joined.member_id, 1, {joined.member_id: b"a"})) == b"a"
    assert world.group.phase is Phase.STABLE
    assert world.heartbeat(joined.member_id, 1) == 0
    assert world.left(world.leave((joined.member_id, None))) == [0]
    assert (world.group.phase, world.registry.members, world.registry.generation) == (Phase.EMPTY, (), 2)


def test_a_member_that_must_ask_twice_counts_when_it_comes_again(world: GroupWorld) -> None:
    first = world.join(twice=True)
    assert world.refused(first) == MEMBER_ID_REQUIRED
    given = world.answers[first].member_id  # type: ignore[union-attr]
    assert world.names == []
    assert world.joined(world.join(given, twice=True)).member_id == given
    assert world.refused(world.join("never given")) == UNKNOWN_MEMBER_ID
    assert world.refused(world.join(given, instance="i")) == UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_who_was_given_an_id_but_not_for_long(world: GroupWorld) -> None:
    world.refused(world.join(twice=True))
    waiting = world.join()
    assert waiting not in world.answers
    world.pass_time(PENDING_S)
    assert world.joined(waiting).generation == 1
    world.pass_time(SESSION_S)
    assert world.group.pending == {}


def test_who_leaves_before_it_has_come_is_not_waited_for(world: GroupWorld) -> None:
    asked = world.join(twice=True)
    waiting = world.join()
    assert world.left(world.leave((world.answers[asked].member_id, None))) == [0]  # type: ignore[union-attr]
    assert world.joined(waiting).generation == 1


def test_a_second_member_makes_a_generation_of_both(world: GroupWorld) -> None:
    world.settle("")
    second = world.join()
    assert world.heartbeat("m1", 1) == REBALANCE_IN_PROGRESS
    assert world.commit("m1", 1) == 0, "it commits what it has read before it joins again"
    first = world.join("m1")
    assert world.joined(first).generation == world.joined(second).generation == 2
    assert [one[0] for one in world.joined(first).members] == ["m1", "m2"]
    assert world.joined(second).members == ()
    assert world.commit("m1", 2) == REBALANCE_IN_PROGRESS, "nobody knows yet who reads what"
    assert world.heartbeat("m1", 1) == ILLEGAL_GENERATION
    world.share_out(world.joined(first), world.joined(second))
    assert world.commit("m1", 2) == world.commit("m2", 2) == 0
    assert [one.assignment for one in world.registry.members] == [b"m1", b"m2"]


def test_who_does_not_join_again_in_time_is_out(world: GroupWorld) -> None:
    world.settle("")
    second = world.join()
    for _ in range(5):
        world.pass_time(REBALANCE_S / 5 - 0.1)
        assert world.heartbeat("m1", 1) == REBALANCE_IN_PROGRESS  # alive, and never joins: max.poll.interval.ms
    assert second not in world.answers
    world.pass_time(1)
    assert world.joined(second).generation == 2
    assert world.names == ["m2"]
    assert world.heartbeat("m1", 1) == UNKNOWN_MEMBER_ID


def test_a_new_member_that_waits_is_told_to_ask_again_before_long(world: GroupWorld) -> None:
    """Nobody hears of a member that does not know its id yet, so its wait is bounded by itself."""
    world.joined(world.join(rebalance_ms=2_000_000, session_ms=1_000_000))
    world.sync("m1", 1, {"m1": b"a"})
    token = world.join()
    world.pass_time(NEW_MEMBER_S - 1)
    assert token not in world.answers
    world.pass_time(1)
    assert world.refused(token) == UNKNOWN_MEMBER_ID
    assert world.names == ["m1"]


@pytest.mark.parametrize("session_ms", [5999, 1_800_001])
def test_sessions_outside_of_the_settings_are_refused(world: GroupWorld, session_ms: int) -> None:
    assert world.refused(world.join(session_ms=session_ms)) == INVALID_SESSION_TIMEOUT


def test_members_agree_on_a_protocol(world: GroupWorld) -> None:
    world.settle("")
    assert world.refused(world.join(protocols=(("roundrobin", b""),))) == INCONSISTENT_GROUP_PROTOCOL
    assert world.refused(world.join(protocols=())) == INCONSISTENT_GROUP_PROTOCOL
    assert world.refused(world.join(type="connect")) == INCONSISTENT_GROUP_PROTOCOL
    assert world.refused(world.join(type="")) == INCONSISTENT_GROUP_PROTOCOL
    second = world.join(protocols=(("roundrobin", b"x"), ("range", b"y")))
    first = world.join("m1")
    assert world.joined(first).protocol == "range"
    assert [metadata for _, _, metadata in world.joined(first).members] == [b"r", b"y"]
    assert world.joined(second).generation == 2


def test_the_only_member_may_change_its_mind(world: GroupWorld) -> None:
    world.settle("")
    joined = world.joined(world.join("m1", protocols=(("sticky", b"s"),)))
    assert (joined.protocol, joined.generation) == ("sticky", 2)


def test_the_protocol_that_most_prefer_is_chosen(world: GroupWorld) -> None:
    world.settle("")  # knows range alone
    both = (("sticky", b"s"), ("range", b"r"))
    second = world.join(protocols=both)
    world.join("m1", protocols=both)
    assert world.joined(second).protocol == "sticky"


def test_a_group_has_no_more_members_than_it_may() -> None:
    world = GroupWorld(GroupLimits(members_max=2))
    world.settle("")
    second = world.join()
    world.join("m1")
    world.joined(second)
    assert world.refused(world.join()) == GROUP_MAX_SIZE_REACHED
    assert len(world.names) == 2


def test_a_group_takes_no_more_bytes_than_it_may(world: GroupWorld) -> None:
    half = (("range", b"m" * (bounds.GROUP_BYTES_MAX // 2)),)
    world.share_out(world.joined(world.join(protocols=half)))
    assert world.refused(world.join(protocols=half)) == GROUP_MAX_SIZE_REACHED
    small = world.join()
    world.join("m1", protocols=half)
    assert world.joined(small).generation == 2
    assert world.group.members.size_bytes > bounds.GROUP_BYTES_MAX // 2
    whole = (("range", b"m" * bounds.GROUP_BYTES_MAX),)
    assert world.refused(world.join("m1", protocols=whole)) == GROUP_MAX_SIZE_REACHED
    assert "m1" not in world.group.members, "who asks for more than there is, is out, and the others share its part"
    assert world.heartbeat("m3", 2) == REBALANCE_IN_PROGRESS
    assert world.group.members.size_bytes < bounds.GROUP_BYTES_MAX // 2


def test_of_too_many_ids_that_were_given_out_the_oldest_is_forgotten(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "PENDING_MAX", 3)
    asked = [world.join(twice=True) for _ in range(4)]
    given = [world.answers[one].member_id for one in asked]  # type: ignore[union-attr]
    assert list(world.group.pending) == given[1:]
    assert world.refused(world.join(given[0], twice=True)) == UNKNOWN_MEMBER_ID


def test_a_lowered_limit_is_kept_at_the_next_rebalance() -> None:
    world = GroupWorld()
    world.settle("")
    tokens = [world.join(), world.join(), world.join("m1")]
    world.share_out(*(world.joined(one) for one in tokens))
    world.group.limits = GroupLimits(members_max=2)
    again = [world.join(one, protocols=(("range", b"other"),)) for one in ("m1", "m2", "m3")]
    assert world.refused(again[2]) == GROUP_MAX_SIZE_REACHED
    assert world.joined(again[0]).generation == world.joined(again[1]).generation == 3
    assert world.names == ["m1", "m2"]


# --- Waiting for more, at first ---------------------------------------------------------------------------------------


def test_a_first_generation_waits_for_more_as_long_as_more_come() -> None:
    world = GroupWorld(GroupLimits(initial_delay_s=3.0))
    first = world.join()
    world.pass_time(2.9)
    second = world.join()
    world.pass_time(2.9)
    third = world.join()
    assert not {first, second, third} & set(world.answers)
    world.pass_time(3.0)
    assert not {first} & set(world.answers), "the third came within the second wait"
    world.pass_time(3.0)
    assert [world.joined(one).generation for one in (first, second, third)] == [1, 1, 1]


def test_it_does_not_wait_longer_than_a_rebalance_may_take() -> None:
    world = GroupWorld(GroupLimits(initial_delay_s=20.0))
    tokens = [world.join()]
    for _ in range(4):
        world.pass_time(10.0)
        tokens.append(world.join())
    assert world.joined(tokens[0]).generation == 1


# --- Coming again -----------------------------------------------------------------------------------------------------


def test_an_answer_that_was_lost_is_given_again(world: GroupWorld) -> None:
    joined = world.joined(world.join())
    assert world.joined(world.join("m1")) == joined, "the generation is not shared out yet: here it is again"
    world.share_out(joined)
    assert world.joined(world.join("m1")).generation == 2, "a leader that joins again wants it all shared out anew"


def test_a_follower_that_comes_again_with_the_same_changes_nothing(world: GroupWorld) -> None:
    world.settle("")
    second, first = world.join(), world.join("m1")
    world.share_out(world.joined(first), world.joined(second))
    again = world.joined(world.join("m2"))
    assert (again.generation, again.members, again.leader) == (2, (), "m1")
    assert world.group.phase is Phase.STABLE
    assert world.joined(world.join("m2")).generation == 2
    world.join("m2", protocols=(("range", b"more"),))
    assert world.group.phase is Phase.PREPARING


def test_who_asks_again_while_it_waits_is_answered_once_each(world: GroupWorld) -> None:
    world.settle("")
    early = world.join()
    late = world.join("m2")
    assert world.refused(early) == REBALANCE_IN_PROGRESS
    world.join("m1")
    assert world.joined(late).generation == 2


# --- Syncing ----------------------------------------------------------------------------------------------------------


def test_followers_wait_for_their_leader(world: GroupWorld) -> None:
    world.settle("")
    second = world.join()
    world.join("m1")
    waiting = world.sync("m2", world.joined(second).generation)
    world.pass_time(SESSION_S - 1)
    world.heartbeat("m1", 2)
    world.pass_time(SESSION_S - 1)
    assert waiting not in world.answers, "who waits to be told what it reads lives"
    world.sync("m1", 2, {"m1": b"1", "m2": b"2"})
    assert world.synced(waiting) == b"2"


def test_a_sync_says_the_same_protocol_or_none(world: GroupWorld) -> None:
    world.joined(world.join())
    assert world.refused(world.sync("m1", 1, protocol=("connect", None))) == INCONSISTENT_GROUP_PROTOCOL
    assert world.refused(world.sync("m1", 1, protocol=("consumer", "sticky"))) == INCONSISTENT_GROUP_PROTOCOL
    assert world.refused(world.sync("m1", 2)) == ILLEGAL_GENERATION
    assert world.refused(world.sync("nobody", 1)) == UNKNOWN_MEMBER_ID
    assert world.synced(world.sync("m1", 1, {"m1": b"a"}, protocol=("consumer", "range"))) == b"a"
    assert world.synced(world.sync("m1", 1)) == b"a", "asked again, it is told again"
    world.join()
    assert world.refused(world.sync("m1", 1)) == REBALANCE_IN_PROGRESS


def test_who_has_joined_and_never_syncs_is_given_up(world: GroupWorld) -> None:
    world.settle("")
    second, first = world.join(), world.join("m1")
    leader = world.joined(first)
    waiting = world.sync("m1", leader.generation, {"m1": b"a"})
    assert world.synced(waiting) == b"a"
    assert world.joined(second).generation == 2
    for _ in range(5):
        world.pass_time(REBALANCE_S / 5)
        world.heartbeat("m1", 2)
        world.heartbeat("m2", 2)  # it lives, and does not sync
    assert world.names == ["m1"]
    assert world.group.phase is Phase.PREPARING


def test_a_leader_that_dies_before_it_shares_out_is_replaced(world: GroupWorld) -> None:
    world.settle("")
    second, first = world.join(), world.join("m1")
    assert world.joined(first).leader == "m1"
    waiting = world.sync("m2", world.joined(second).generation)
    world.pass_time(SESSION_S)
    assert world.refused(waiting) == REBALANCE_IN_PROGRESS
    again = world.joined(world.join("m2"))
    assert (again.leader, again.generation) == ("m2", 3)


# --- Sessions ---------------------------------------------------------------------------------------------------------


def test_a_silent_member_is_given_up_after_its_session(world: GroupWorld) -> None:
    generation = world.settle("")
    world.pass_time(SESSION_S - 0.1)
    assert world.heartbeat("m1", generation) == 0
    world.pass_time(SESSION_S - 0.1)
    assert world.commit("m1", generation) == 0, "a commit is a sign of life too"
    world.pass_time(SESSION_S - 0.1)
    assert world.names == ["m1"]
    world.pass_time(0.2)
    assert world.names == []
    assert world.registry.members == ()


# --- Static members ---------------------------------------------------------------------------------------------------


def static_pair(world: GroupWorld) -> int:
    first = world.joined(world.join(instance="one"))
    world.sync(first.member_id, 1, {first.member_id: b"m1"}, instance="one")
    second = world.join(instance="two")
    again = world.joined(world.join("m1", instance="one"))
    world.sync("m1", again.generation, {"m1": b"m1", "m2": b"m2"}, instance="one")
    world.sync("m2", world.joined(second).generation, instance="two")
    assert world.group.phase is Phase.STABLE
    return again.generation


def test_a_static_member_that_comes_back_has_what_it_had(world: GroupWorld) -> None:
    generation = static_pair(world)
    back = world.joined(world.join(instance="two"))
    assert (back.generation, back.member_id, back.members) == (generation, "m4", ())
    assert world.synced(world.sync("m4", generation, instance="two")) == b"m2"
    assert [one.member_id for one in world.registry.members] == ["m1", "m4"], "written before it was told"
    assert world.heartbeat("m2", generation, "two") == FENCED_INSTANCE_ID
    assert world.commit("m2", generation, "two") == FENCED_INSTANCE_ID
    assert world.refused(world.sync("m2", generation, instance="two")) == FENCED_INSTANCE_ID
    assert world.left(world.leave(("m2", "two"))) == [FENCED_INSTANCE_ID]
    assert world.heartbeat("m4", generation, "unknown") == UNKNOWN_MEMBER_ID


def test_a_static_leader_that_comes_back_is_told_that_another_leads(world: GroupWorld) -> None:
    generation = static_pair(world)
    back = world.joined(world.join(instance="one"))
    assert (back.generation, back.leader, back.members) == (generation, "m1", ())
    assert world.group.members.leader == back.member_id


def test_a_static_member_is_given_up_after_its_session_alone(world: GroupWorld) -> None:
    generation = static_pair(world)
    for _ in range(3):
        world.pass_time(SESSION_S / 2)
        world.heartbeat("m1", generation, "one")
    assert world.group.phase is Phase.PREPARING
    assert world.names == ["m1"]


def test_two_at_once_with_one_instance_id_the_later_one_stays(world: GroupWorld) -> None:
    world.settle("")
    early = world.join(instance="one")
    late = world.join(instance="one")
    assert world.refused(early) == FENCED_INSTANCE_ID
    world.join("m1")
    assert world.joined(late).generation == 2


def test_static_members_that_are_away_keep_their_place_in_a_rebalance(world: GroupWorld) -> None:
    static_pair(world)
    for member in world.group.members:
        member.session_timeout_s = 100.0
        world.heartbeat(member.member_id, world.group.generation, member.instance_id)
    token = world.join("m1", instance="one", protocols=(("range", b"more"),))
    world.pass_time(REBALANCE_S)
    joined = world.joined(token)
    assert [one[0] for one in joined.members] == ["m1", "m2"]
    world.sync("m1", joined.generation, {"m1": b"1", "m2": b"2"}, instance="one")
    back = world.joined(world.join(instance="two"))
    assert world.synced(world.sync(back.member_id, back.generation, instance="two")) == b"2"


def test_an_operator_removes_a_static_member_by_its_name(world: GroupWorld) -> None:
    static_pair(world)
    assert world.left(world.leave(("", "two"), ("", "nobody"), ("", None))) == [0, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID]
    assert world.names == ["m1"]


# --- Simple commits ---------------------------------------------------------------------------------------------------


def test_who_is_no_member_commits_only_where_nobody_lives(world: GroupWorld) -> None:
    assert world.commit("", -1) == 0
    assert world.made(world.make_node())
    assert (world.registry.version, world.registry.group_protocol) == (0, "")
    assert world.made(world.make_node())
    world.settle("")
    assert world.commit("", -1) == UNKNOWN_MEMBER_ID
    world.leave(("m1", None))
    assert world.commit("", -1) == 0
    assert world.commit("m1", 1) == UNKNOWN_MEMBER_ID


# --- The registry -----------------------------------------------------------------------------------------------------


def test_nothing_is_told_before_it_is_written() -> None:
    world = GroupWorld(instant=False)
    first = world.join()
    second = world.join()
    assert world.answers == {}
    assert world.heartbeat("m1", 1) == ILLEGAL_GENERATION
    world.write_ends()
    assert world.joined(first).generation == 1
    assert second not in world.answers, "it came too late for this generation"
    assert world.heartbeat("m1", 1) == REBALANCE_IN_PROGRESS


def test_nobody_waits_for_a_write_in_doubt_and_what_was_written_counts() -> None:
    world = GroupWorld(instant=False)
    first, later = world.join(), world.join()
    world.write_in_doubt()
    assert world.refused(first) == world.refused(later) == COORDINATOR_NOT_AVAILABLE
    assert world.refused(world.join()) == COORDINATOR_NOT_AVAILABLE
    assert world.refused(world.sync("m1", 1)) == COORDINATOR_NOT_AVAILABLE
    world.write_ends()
    assert world.group.generation == 1
    assert world.joined(world.join("m1")).generation == 1, "it was the generation's member all the while"


def test_a_generation_that_cannot_be_written_is_refused_and_tried_again_when_they_come_again() -> None:
    world = GroupWorld(instant=False)
    first, second = world.join(), world.join()
    world.writing = None
    world.do(world.group.write_failed(ZooKeeperError("it is too large"), world.now_s))
    assert world.refused(first) == world.refused(second) == -1
    again = world.join("m1")
    world.write_ends()
    assert world.joined(again).generation == 1


def test_an_assignment_that_cannot_be_written_is_refused_to_all_that_wait() -> None:
    world = GroupWorld(instant=False)
    world.join()
    world.write_ends()
    waiting = world.sync("m1", 1, {"m1": b"a"})
    world.writing = None
    world.do(world.group.write_failed(ZooKeeperError("it is too large"), world.now_s))
    assert world.refused(waiting) == -1
    again = world.sync("m1", 1, {"m1": b"less"})
    world.write_ends()
    assert world.synced(again) == b"less"


def test_a_group_that_another_hand_has_emptied_tells_its_members() -> None:
    world = GroupWorld(instant=False)
    token = world.join()
    world.write_ends()
    world.joined(token)
    world.forced_rewind()
    waiting = world.sync("m1", 1, {"m1": b"a"})
    world.write_ends()
    assert world.refused(waiting) == UNKNOWN_MEMBER_ID
    assert world.heartbeat("m1", 1) == UNKNOWN_MEMBER_ID
    world.join()
    world.write_ends()
    assert world.registry.generation == 3, "a generation never goes back"


def test_who_was_put_out_by_another_hand_does_not_commit_as_nobody(world: GroupWorld) -> None:
    world.settle("")
    world.forced_rewind()
    world.do(world.group.replaced(world.registry, world.now_s))
    assert world.commit("m1", 1) == UNKNOWN_MEMBER_ID
    assert world.commit("", -1) == UNKNOWN_MEMBER_ID, "aiokafka's last word before it joins again"
    world.pass_time(SESSION_S)
    assert world.commit("", -1) == 0


def test_whoever_waits_hears_that_the_group_has_moved() -> None:
    world = GroupWorld(instant=False)
    tokens = [world.join(), world.join(), world.leave(("x", None))]
    world.take_over()
    assert [world.refused(one) for one in tokens] == [NOT_COORDINATOR] * 3


def test_the_next_coordinator_has_the_members_with_what_they_read() -> None:
    world = GroupWorld()
    world.settle("")
    second, first = world.join(), world.join("m1")
    generation = world.share_out(world.joined(first), world.joined(second))
    world.take_over()
    assert world.group.phase is Phase.STABLE
    assert world.heartbeat("m2", generation) == 0
    assert world.commit("m1", generation) == 0
    assert world.joined(world.join("m2")).generation == generation
    assert world.synced(world.sync("m2", generation)) == b"m2"
    world.pass_time(SESSION_S)
    assert world.names == [], "they have a session's time from then on"


def test_a_generation_that_was_not_shared_out_yet_goes_on_at_the_next_coordinator() -> None:
    world = GroupWorld()
    joined = world.joined(world.join())
    world.take_over()
    assert world.group.phase is Phase.COMPLETING
    assert world.synced(world.sync("m1", joined.generation, {"m1": b"a"})) == b"a"


def test_a_restored_member_is_known_by_what_it_said_for_the_protocol_that_was_chosen() -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    world = GroupWorld()
    world.settle("")
    second, first = world.join(protocols=both), world.join("m1", protocols=both)
    world.share_out(world.joined(first), world.joined(second))
    world.take_over()
    assert world.joined(world.join("m2", protocols=both)).generation == 2, "nothing has changed for it"
    world.join("m2", protocols=(("range", b"other"), ("sticky", b"s")))
    assert world.group.phase is Phase.PREPARING


def test_a_group_that_streams_have_left_begins_anew() -> None:
    member = MemberState("m", None, "c", "h", 1, 1)
    state = GroupState("g", "zookeeper", 4, members=(member,), version=3)
    group = Group(state, GroupLimits(), 0.0)
    assert group.phase is Phase.EMPTY
    assert group.generation == 4
    held = Group(GroupState("g", COORDINATOR, 4, members=(member,), leader="gone", version=3), GroupLimits(), 0.0)
    assert held.members.leader == "m", "whoever is named that is not there leads nobody"
