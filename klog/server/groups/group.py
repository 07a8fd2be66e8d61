"""One group: what happens when its members join, sync, say that they live, leave, or fall silent.

Strategy: decide, then do. No I/O and no clock: each event is told the time and returns what is to be done: answers to
requests that wait, and at most one write of the group's node at a time. What depends on the phase alone stands in
`klog.server.groups.machine`.

Rules
    * A generation is written before any JoinGroup of it is answered, an assignment before any SyncGroup is (rule G2).
      While a write is under way nobody is taken in and nobody is given up: such events wait until it has ended.
      Members that say they live are answered meanwhile.
    * A generation that was written is the group's, whether or not its members could be told.
    * A generation number only goes up.
    * A request that waits is answered: by the write, by the rebalance's end, at its time-out, or because the write is
      in doubt (`write_in_doubt`) or the group another's (`resign`).

Sources: Kafka's group protocol; KIP-62 (rebalance time-out), KIP-134 (initial delay), KIP-345 (static members), KIP-389
(size), KIP-394 (ids before members).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from klog.coordination.group_states import COORDINATOR, GroupState
from klog.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    KlogError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from klog.server.groups import machine, members
from klog.server.groups.acts import Act, Answer, Joined, Left, Limits, Made, Refused, Result, Synced, Write, Writing
from klog.server.groups.machine import Answers, Event, Phase
from klog.server.groups.members import NEVER_S, Join, Member, Pending, select_protocol
from klog.server.groups.roster import Roster

NEW_MEMBER_S = 300.0
"""After that a new member's join is answered, though the rebalance goes on: whoever asked may be long gone, and cannot
be heard of before it has its id. Kafka's number."""


class Group:
    """Event loop only. ``state`` is what the registry has; a group without members before it is made anew."""

    def __init__(self, state: GroupState, limits: Limits, now_s: float) -> None:
        self.name = state.group
        self.limits = limits
        self.phase = Phase.EMPTY
        self.members = Roster(state.group)
        self.pending: dict[str, Pending] = {}
        """Ids that were given out and have not joined yet (KIP-394)."""
        self._acts: list[Act] = []
        self._writing: Writing | None = None
        self._later: deque[tuple[Callable[..., None], Any, tuple[Any, ...]]] = deque()
        self._join_until_s = NEVER_S
        """When a rebalance no longer waits for those that have not joined."""
        self._gather_until_s = NEVER_S
        """A first rebalance waits until then for members that nobody knows yet; NEVER_S: it does not."""
        self._came_more = False
        self._sync_until_s = NEVER_S
        self._fenced_until_s = now_s
        """How long those may still be about that another's hand has put out: a client that learns of it commits once
        more as nobody (aiokafka does), which in an empty group would undo the rewind it was put out for."""
        self.generation = 0
        self._take(state, now_s)

    def _take(self, state: GroupState, now_s: float) -> None:
        self.state = state
        self.generation = max(self.generation, state.generation)
        self.protocol_type = state.protocol_type
        self.protocol = state.protocol
        self.members.clear()
        if state.way != COORDINATOR:
            self.protocol_type = self.protocol = ""
            return
        for one in state.members:
            self.members.add(members.restored(one, state.protocol, now_s))
        if self.members:
            if state.leader in self.members:
                self.members.leader = state.leader
            self.phase = Phase.STABLE if state.is_assigned else Phase.COMPLETING
            for member in self.members:
                member.has_synced = state.is_assigned
            if not state.is_assigned:
                self._sync_until_s = now_s + self.members.rebalance_timeout_s

    # --- what is asked ------------------------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """Whether a write of the group's node is under way."""
        return self._writing is not None

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it, is about to be, or waits for anything."""
        return self.phase is Phase.EMPTY and self._writing is None and not self.pending

    def may_be_forgotten(self, now_s: float) -> bool:
        """Whether nothing is lost by reading it anew, but that who was given an id is given another."""
        return self.phase is Phase.EMPTY and self._writing is None and now_s >= self._fenced_until_s

    @property
    def deadline_s(self) -> float:
        """When `tick` is to be called at the latest."""
        if self._writing is not None:
            return NEVER_S
        soonest = min(self.members.deadline_s, *(one.until_s for one in self.pending.values()), NEVER_S)
        if self.phase is Phase.PREPARING:
            awaited = (one.awaited_until_s for one in self.pending.values())
            return min(soonest, self._gather_until_s, self._join_until_s, *awaited)
        return min(soonest, self._sync_until_s)

    def refuses_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_s: float
    ) -> KlogError | None:
        """Why this commit may not be written; None when it may, and then its member lives."""
        if generation < 0 and self.phase is Phase.EMPTY and now_s >= self._fenced_until_s:
            return None
        return self._answer_of(machine.COMMIT, member_id, instance_id, generation, now_s)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_s: float) -> KlogError | None:
        """A member says that it lives; what it is told."""
        return self._answer_of(machine.HEARTBEAT, member_id, instance_id, generation, now_s)

    def answer_held(self, member_id: str, instance_id: str | None, generation: int) -> KlogError | None:
        """What a heartbeat that came some time ago is to be told now."""
        return self._answer_of(machine.HEARTBEAT, member_id, instance_id, generation, None)

    # --- events -------------------------------------------------------------------------------------------------------

    def join(self, join: Join, to: Any, now_s: float) -> list[Act]:
        """A JoinGroup request: answered with `Joined` or `Refused`, now or later."""
        return self._event(self._join, to, (join,), now_s)

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        to: Any,
        now_s: float,
    ) -> list[Act]:
        """A SyncGroup request: answered with `Synced` or `Refused`. ``protocol``: type and name, if it says them."""
        return self._event(self._sync, to, (member_id, instance_id, generation, protocol, assignments), now_s)

    def leave(self, leaving: Iterable[tuple[str, str | None]], to: Any, now_s: float) -> list[Act]:
        """A LeaveGroup request of (member id, instance id): answered with `Left`."""
        return self._event(self._leave, to, (tuple(leaving),), now_s)

    def make_node(self, to: Any, now_s: float) -> list[Act]:
        """Be known to the registry before anybody is a member: commits are fenced by the group's node. `Made`."""
        return self._event(self._make_node, to, (), now_s)

    def tick(self, now_s: float) -> list[Act]:
        """Time has passed."""
        if self._writing is None:
            self._tick(now_s)
        return self._done()

    def written(self, now_s: float) -> list[Act]:
        """The write that was asked for has been done."""
        writing = self._writing
        assert writing is not None, "nothing was to be written"
        self._writing = None
        self.state = writing.state.written
        writing.then(now_s)
        self._acts += writing.answers
        self._go_on(now_s)
        return self._done()

    def write_in_doubt(self, now_s: float) -> list[Act]:
        """The registry does not answer: nobody waits for it any longer.

        The write goes on, and ends in `written` or `replaced`; until then whoever wants a change is refused.
        """
        assert self._writing is not None, "nothing is being written"
        self._writing.is_in_doubt = True
        self._refuse_all(_away(), now_s)
        return self._done()

    def write_failed(self, error: KlogError, now_s: float) -> list[Act]:
        """It cannot be written as it is (it is too large): the group stays as it was."""
        assert self._writing is not None, "nothing is being written"
        self._refuse_all(Refused(error), now_s)
        self._writing = None
        if self.phase is Phase.PREPARING:
            self._join_until_s = now_s + self.members.rebalance_timeout_s
        return self._done()

    def replaced(self, state: GroupState, now_s: float) -> list[Act]:
        """Somebody else has written the group's node, which now says this: its members are whom it names."""
        self._refuse_all(Refused(UnknownMemberId("the group was changed by another's hand: join again")), now_s)
        for one in self.state.members:
            self._fenced_until_s = max(self._fenced_until_s, now_s + one.session_timeout_ms / 1000)
        self._writing = None
        self.pending.clear()
        self._join_until_s = self._sync_until_s = self._gather_until_s = NEVER_S
        self.phase = Phase.EMPTY
        self._take(state, now_s)
        return self._done()

    def resign(self, error: KlogError) -> list[Act]:
        """The group is no longer ours: whoever waits is told."""
        self._refuse_all(Refused(error), 0.0)
        self._writing = None
        self.phase = Phase.DEAD
        self.members.clear()
        self.pending.clear()
        return self._done()

    def _event(self, handle: Callable[..., None], to: Any, arguments: tuple[Any, ...], now_s: float) -> list[Act]:
        if self._writing is None:
            handle(*arguments, to, now_s)
        elif self._writing.is_in_doubt:
            self._answer(to, _away())
        else:
            self._later.append((handle, to, arguments))
        return self._done()

    def _go_on(self, now_s: float) -> None:
        """What has waited for a write, until the next one begins."""
        while self._later and self._writing is None:
            handle, to, arguments = self._later.popleft()
            handle(*arguments, to, now_s)

    def _done(self) -> list[Act]:
        acts, self._acts = self._acts, []
        return acts

    # --- join ---------------------------------------------------------------------------------------------------------

    def _join(self, join: Join, to: Any, now_s: float) -> None:
        try:
            self._admit(join, to, now_s)
        except KlogError as error:
            given = join.new_id if isinstance(error, MemberIdRequired) else join.member_id
            self._answer(to, Refused(error.bare(), given))
        self._complete_if_all_are_there(now_s)

    def _admit(self, join: Join, to: Any, now_s: float) -> None:
        """Raises what the join is refused with."""
        if self.phase is Phase.DEAD:
            raise CoordinatorNotAvailable(f"group {self.name!r} is gone")
        if not self.limits.session_min_ms <= join.session_timeout_ms <= self.limits.session_max_ms:
            raise InvalidSessionTimeout(
                f"a session of {join.session_timeout_ms} ms; allowed are {self.limits.session_min_ms} "
                f"(group.min.session.timeout.ms) to {self.limits.session_max_ms} (group.max.session.timeout.ms)"
            )
        replaced = self.members.predecessor(join)
        self._check_room(join, replaced, now_s)
        self.members.check_protocols(join, replaced, self.protocol_type)
        if not join.member_id:
            if replaced is not None:
                self._replace_static(replaced, join, to, now_s)
            elif join.instance_id is None and join.must_ask_twice:
                members.give_id(self.pending, join, now_s)
                raise MemberIdRequired("come again with the id that is given here")
            else:
                self._enter(join, join.new_id, to, now_s)
        elif join.member_id in self.pending and join.instance_id is None:
            del self.pending[join.member_id]
            self._enter(join, join.member_id, to, now_s)
        else:
            self._join_again(self.members.find(join.member_id, join.instance_id), join, to, now_s)

    def _check_room(self, join: Join, replaced: Member | None, now_s: float) -> None:
        """A group over its size, as after the setting was lowered, loses those that join last."""
        known = self.members.get(join.member_id) or replaced
        try:
            of_joined = self.phase is Phase.PREPARING
            self.members.check_room(join, known, self.limits.members_max, of_joined=of_joined)
        except GroupMaxSizeReached:
            if known is not None:
                self._remove(known, now_s)
            self.pending.pop(join.member_id, None)
            raise

    def _enter(self, join: Join, member_id: str, to: Any, now_s: float) -> None:
        member = members.member_of(join, member_id)
        if not self.members:
            self.protocol_type = join.protocol_type
        self.members.add(member)
        self._await_rebalance(member, to, now_s)
        self._came_more = True
        self._rebalance(now_s)

    def _join_again(self, member: Member, join: Join, to: Any, now_s: float) -> None:
        is_settled = (self.phase is Phase.COMPLETING or self.phase is Phase.STABLE) and not (
            # A leader that joins again wants the partitions given out anew: of a topic that has got more, say.
            self.phase is Phase.STABLE and member.member_id == self.members.leader
        )
        if is_settled and member.wants(join.protocols):  # its answer was lost, or its coordinator
            self.members.takes(member, join)
            self._heard(member, now_s)
            self._answer(to, self._joined(member))
            return
        self.members.takes(member, join)
        if len(self.members) == 1:
            self.protocol_type = join.protocol_type
        self._await_rebalance(member, to, now_s)
        self._rebalance(now_s)

    def _replace_static(self, old: Member, join: Join, to: Any, now_s: float) -> None:
        """A static member has come back without its id: it has a new one now, and what it had (KIP-345)."""
        fenced = Refused(FencedInstanceId(f"another process is member {join.instance_id!r} now"), old.member_id)
        for waiting in (old.joining, old.syncing):
            if waiting is not None:
                self._answer(waiting, fenced)
        is_stable = self.phase is Phase.STABLE
        new = members.member_of(join, join.new_id)
        new.assignment, new.is_new, new.has_synced = old.assignment, old.is_new, old.has_synced
        leader = self.members.leader
        self.members.replace(old, new)
        self._heard(new, now_s)
        if is_stable and select_protocol(list(self.members)) == self.protocol:
            # It is told the old leader's id, so that it does not take itself for one: in a stable group nobody would
            # take its assignment.
            answer = self._joined(new)._replace(leader=leader, members=())
            self._write(self._next_state(is_assigned=True), lambda _: None, [Answer(to, answer)], now_s)
            return
        self._await_rebalance(new, to, now_s)
        self._rebalance(now_s)

    def _await_rebalance(self, member: Member, to: Any, now_s: float) -> None:
        if member.joining is not None:  # it has asked again: the earlier request is nobody's any more
            self._answer(member.joining, Refused(RebalanceInProgress("the member has asked again"), member.member_id))
        member.joining = to
        member.deadline_s = now_s + NEW_MEMBER_S if member.is_new else NEVER_S

    def _make_node(self, to: Any, now_s: float) -> None:
        if self.state.version >= 0:
            self._answer(to, Made())
        else:
            state = replace(self.state, generation=self.generation)
            self._write(state, lambda _: None, [Answer(to, Made())], now_s)

    # --- a rebalance --------------------------------------------------------------------------------------------------

    def _rebalance(self, now_s: float) -> None:
        """Have all members join again; nothing new if that is under way."""
        if self.phase is Phase.PREPARING:
            return
        if self.phase is Phase.COMPLETING:
            for member in self.members:
                self._answer_sync(member, Refused(RebalanceInProgress("another member has come or gone"), ""), now_s)
        self._sync_until_s = NEVER_S
        self._join_until_s = now_s + self.members.rebalance_timeout_s
        self._gather_until_s = NEVER_S
        if self.phase is Phase.EMPTY and self.limits.initial_delay_s:
            self._gather_until_s = now_s + self.limits.initial_delay_s
            self._came_more = False
        self.phase = machine.after(self.phase, Event.CHANGED)

    def _complete_if_all_are_there(self, now_s: float) -> None:
        if self.phase is not Phase.PREPARING or self._writing is not None:
            return
        waits = self._gather_until_s < NEVER_S or any(
            now_s < one.awaited_until_s < NEVER_S for one in self.pending.values()
        )
        if not (self.members and waits) and all(member.joining is not None for member in self.members):
            self._complete(now_s)

    def _complete(self, now_s: float) -> None:
        """Begin a generation of those that have joined, and of the static ones that have not and live."""
        self._gather_until_s = NEVER_S
        for member in self.members:
            if member.joining is None and member.instance_id is None:
                self._drop(member)
        if not self.members:
            self.protocol = ""
            self._write(self._next_state(self.generation + 1), self._emptied, [], now_s)
            return
        if self.members[self.members.leader].joining is None:
            joined = next((one for one in self.members if one.joining is not None), None)
            if joined is None:  # static members alone, and none of them here: they come back, or their sessions end
                self._join_until_s = now_s + self.members.rebalance_timeout_s
                return
            self.members.leader = joined.member_id
        self.protocol = select_protocol(list(self.members))
        self._write(self._next_state(self.generation + 1), self._begun, [], now_s)

    def _begun(self, now_s: float) -> None:
        """The generation stands."""
        self.generation = self.state.generation
        self.phase = machine.after(self.phase, Event.GENERATION)
        self._join_until_s = NEVER_S
        self._sync_until_s = now_s + self.members.rebalance_timeout_s
        for member in self.members:
            # A static member that has not come back is waited for by its session alone.
            member.has_synced = member.joining is None
            self.members.give(member, b"")
            if member.joining is not None:
                self._answer(member.joining, self._joined(member))
                member.joining = None
                member.is_new = False
                self._heard(member, now_s)

    def _emptied(self, now_s: float) -> None:
        self.generation = self.state.generation
        self.phase = machine.after(self.phase, Event.EMPTIED)
        self._join_until_s = NEVER_S

    def _joined(self, member: Member) -> Joined:
        listed: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.member_id == self.members.leader:
            listed = tuple((one.member_id, one.instance_id, one.metadata(self.protocol)) for one in self.members)
        return Joined(self.generation, self.protocol_type, self.protocol, self.members.leader, member.member_id, listed)

    # --- sync ---------------------------------------------------------------------------------------------------------

    def _sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
        to: Any,
        now_s: float,
    ) -> None:
        error = self._answer_of(machine.SYNC, member_id, instance_id, generation, now_s)
        if error is None:
            for said, known in zip(protocol, (self.protocol_type, self.protocol), strict=True):
                if said is not None and said != known:
                    error = InconsistentGroupProtocol(f"group {self.name!r} has {known!r}, not {said!r}")
        if error is not None:
            self._answer(to, Refused(error, member_id))
            return
        member = self.members[member_id]
        member.has_synced = True
        if self.phase is Phase.STABLE:
            self._answer(to, self._synced(member))
            self._all_synced()
            return
        if member.syncing is not None:
            self._answer(member.syncing, Refused(RebalanceInProgress("the member has asked again"), member_id))
        member.syncing = to
        member.deadline_s = NEVER_S
        self._all_synced()
        if member_id == self.members.leader:
            state = self._next_state(is_assigned=True, assignments=assignments)
            self._write(state, self._assigned, [], now_s)

    def _assigned(self, now_s: float) -> None:
        """The assignment stands."""
        self.phase = machine.after(self.phase, Event.ASSIGNED)
        for state in self.state.members:
            member = self.members[state.member_id]
            self.members.give(member, state.assignment)
            self._answer_sync(member, self._synced(member), now_s)

    def _answer_sync(self, member: Member, what: Synced | Refused, now_s: float) -> None:
        if member.syncing is not None:
            self._answer(member.syncing, what)
            member.syncing = None
            self._heard(member, now_s)

    def _synced(self, member: Member) -> Synced:
        return Synced(self.protocol_type, self.protocol, member.assignment)

    def _all_synced(self) -> None:
        if all(member.has_synced for member in self.members):
            self._sync_until_s = NEVER_S

    # --- members come and go ------------------------------------------------------------------------------------------

    def _leave(self, leaving: tuple[tuple[str, str | None], ...], to: Any, now_s: float) -> None:
        errors: list[KlogError | None] = []
        for member_id, instance_id in leaving:
            try:
                self._leave_one(member_id, instance_id, now_s)
            except KlogError as error:
                errors.append(error.bare())
            else:
                errors.append(None)
        self._complete_if_all_are_there(now_s)
        answer = Answer(to, Left(tuple(errors)))
        if self._writing is not None:  # who leaves last knows, once answered, that the group has nobody
            self._writing.answers.append(answer)
        else:
            self._acts.append(answer)

    def _leave_one(self, member_id: str, instance_id: str | None, now_s: float) -> None:
        if not member_id:  # by an operator, who knows the names of static members alone
            found = self.members.static(instance_id)
            if found is None:
                raise UnknownMemberId(f"group {self.name!r} has no static member {instance_id!r}")
            self._remove(found, now_s)
        elif member_id in self.pending:
            del self.pending[member_id]
        else:
            self._remove(self.members.find(member_id, instance_id), now_s)

    def _remove(self, member: Member, now_s: float) -> None:
        """Without it, and a new generation without it if it was part of one."""
        self._drop(member)
        if self.phase is Phase.COMPLETING or self.phase is Phase.STABLE:
            self._rebalance(now_s)

    def _drop(self, member: Member) -> None:
        for waiting in (member.joining, member.syncing):
            if waiting is not None:  # whoever asked is to ask again, as somebody new
                self._answer(waiting, Refused(UnknownMemberId("the member was given up"), member.member_id))
        self.members.remove(member)

    def _tick(self, now_s: float) -> None:
        for member_id, pending in list(self.pending.items()):
            if pending.until_s <= now_s:
                del self.pending[member_id]
            elif pending.awaited_until_s <= now_s:
                self.pending[member_id] = pending._replace(awaited_until_s=NEVER_S)
        for member in self.members:
            if member.deadline_s <= now_s:
                self._remove(member, now_s)
        if self.phase is Phase.PREPARING:
            self._tick_preparing(now_s)
        elif self._sync_until_s <= now_s:
            self._sync_until_s = NEVER_S
            for member in self.members:
                if not member.has_synced:  # it has joined and then fallen silent
                    self._drop(member)
            self._rebalance(now_s)
            self._complete_if_all_are_there(now_s)

    def _tick_preparing(self, now_s: float) -> None:
        if self._gather_until_s <= now_s:
            more_s = min(now_s + self.limits.initial_delay_s, self._join_until_s)
            self._gather_until_s = more_s if self._came_more else NEVER_S
            self._came_more = False
        if self._join_until_s <= now_s:
            self._complete(now_s)
        else:
            self._complete_if_all_are_there(now_s)

    # --- below --------------------------------------------------------------------------------------------------------

    def _answer_of(
        self, answers: Answers, member_id: str, instance_id: str | None, generation: int, now_s: float | None
    ) -> KlogError | None:
        """What a request of a member in a generation gets by the phase; it lives, if it has come now."""
        if self.phase is Phase.DEAD:
            return CoordinatorNotAvailable(f"group {self.name!r} is gone")
        try:
            member = self.members.find(member_id, instance_id)
        except KlogError as error:
            return error.bare()
        if generation != self.generation:
            return IllegalGeneration(
                f"group {self.name!r} is in generation {self.generation}, the request in {generation}"
            )
        if now_s is not None:
            self._heard(member, now_s)
        refusal = answers[self.phase]
        return None if refusal is None else refusal(f"group {self.name!r} is {self.phase.value}")

    def _heard(self, member: Member, now_s: float) -> None:
        if member.joining is None and member.syncing is None:
            member.deadline_s = now_s + member.session_timeout_s

    def _next_state(
        self, generation: int | None = None, is_assigned: bool = False, assignments: Mapping[str, bytes] | None = None
    ) -> GroupState:
        """What is to be written: this generation, or a new one, as the members are now."""
        kept = generation is None and assignments is None
        return replace(
            self.state,
            way=COORDINATOR,
            generation=self.generation if generation is None else generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.members.leader,
            members=tuple(
                one.state(self.protocol, one.assignment if kept else (assignments or {}).get(one.member_id, b""))
                for one in self.members
            ),
            is_assigned=is_assigned,
        )

    def _write(self, state: GroupState, then: Callable[[float], None], answers: list[Answer], now_s: float) -> None:
        assert self._writing is None, "one write at a time"
        self._writing = Writing(state, then, answers)
        self._acts.append(Write(state))

    def _answer(self, to: Any, what: Result) -> None:
        self._acts.append(Answer(to, what))

    def _refuse_all(self, refused: Refused, now_s: float) -> None:
        """Everybody that waits."""
        for member in self.members:
            for waiting in (member.joining, member.syncing):
                if waiting is not None:
                    self._answer(waiting, refused)
                    member.joining = member.syncing = None
                    self._heard(member, now_s)
        if self._writing is not None:
            for answer in self._writing.answers:
                self._answer(answer.to, refused)
            self._writing.answers = []
        for _, to, _ in self._later:
            self._answer(to, refused)
        self._later.clear()


def _away() -> Refused:
    return Refused(CoordinatorNotAvailable("ZooKeeper does not answer: the group cannot change now"))
