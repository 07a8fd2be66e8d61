"""A consumer group: handles its members' joins, syncs, heartbeats, leaves and time-outs.

Strategy: decide, then do. No I/O and no clock: each event takes the time and returns what to do: answers to waiting
requests, and at most one write of the group's node at a time. All that depends on the phase is in `klog.groups.phases`.

Rules
    * A generation is written before any JoinGroup of it is answered, an assignment before any SyncGroup (rule G2).
      During a write no member is added or removed: such events wait for its end. Heartbeats are answered meanwhile.
    * A written generation is the group's, whether or not its members have received it.
    * A generation number only rises.
    * Every waiting request is answered: by the write, by the end of the rebalance, at its time-out, or because the
      write is in doubt (`write_in_doubt`) or another broker coordinates the group (`resign`).

Sources: Kafka's group protocol; KIP-62 (rebalance time-out), KIP-134 (initial delay), KIP-345 (static members), KIP-389
(size), KIP-394 (ids before members).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
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
from klog.groups import members, phases
from klog.groups.bounds import GroupLimits
from klog.groups.member_table import MemberTable
from klog.groups.members import NEVER_S, Asked, Caller, Join, Leave, MakeNode, Member, Pending, Sync, select_protocol
from klog.groups.outcomes import Answer, Joined, Left, Made, Outcome, Refused, Result, Synced, Write, Writing
from klog.groups.phases import Answers, Event, Phase

NEW_MEMBER_S = 300.0
"""Time-out of a new member's join, even if the rebalance goes on: the client may have died, and cannot send heartbeats
without an id. Kafka's number."""


class Group:
    """Event loop only. ``state``: the group in ZooKeeper; empty for a new one."""

    def __init__(self, state: GroupState, limits: GroupLimits, now_s: float) -> None:
        self.name = state.group
        self.limits = limits
        self.phase = Phase.EMPTY
        self.members = MemberTable(state.group)
        self.pending: dict[str, Pending] = {}
        """Member ids that were given out and have not joined yet (KIP-394)."""
        self._outcomes: list[Outcome] = []
        self._writing: Writing | None = None
        self._later: deque[tuple[Asked, Any]] = deque()
        self._join_until_s = NEVER_S
        """When a rebalance stops waiting for members that have not joined."""
        self._gather_until_s = NEVER_S
        """When a first rebalance stops waiting for more members; NEVER_S: it does not wait."""
        self._has_grown = False
        self._sync_until_s = NEVER_S
        self._fenced_until_s = now_s
        """Until when members removed by an operator's write are fenced: such a client may commit once more without a
        member id (aiokafka does), which in an empty group would undo the operator's rewind."""
        self.generation = 0
        self._take(state, now_s)

    def _take(self, state: GroupState, now_s: float) -> None:
        self.state = state
        self.generation = max(self.generation, state.generation)
        self.protocol_type = state.protocol_type
        self.protocol = state.protocol
        self.members.clear()
        if state.group_protocol != COORDINATOR:
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

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """Whether a write of the group's node is under way."""
        return self._writing is not None

    @property
    def is_idle(self) -> bool:
        """Whether it has no members, no member ids given out, and no write."""
        return self.phase is Phase.EMPTY and self._writing is None and not self.pending

    def may_be_forgotten(self, now_s: float) -> bool:
        """Whether it may be dropped and read again. A client that was given an id then gets another."""
        return self.phase is Phase.EMPTY and self._writing is None and now_s >= self._fenced_until_s

    @property
    def deadline_s(self) -> float:
        """The latest time of the next `tick`."""
        if self._writing is not None:
            return NEVER_S
        soonest = min(self.members.deadline_s, *(one.until_s for one in self.pending.values()), NEVER_S)
        if self.phase is Phase.PREPARING:
            awaited = (one.awaited_until_s for one in self.pending.values())
            return min(soonest, self._gather_until_s, self._join_until_s, *awaited)
        return min(soonest, self._sync_until_s)

    def refuses_commit(self, caller: Caller, now_s: float) -> KlogError | None:
        """Why a commit is refused; None if it is allowed, which counts as the member's heartbeat."""
        if caller.generation < 0 and self.phase is Phase.EMPTY and now_s >= self._fenced_until_s:
            return None
        return self._answer_of(phases.COMMIT, caller, now_s)

    def heartbeat(self, caller: Caller, now_s: float) -> KlogError | None:
        """Handle a member's heartbeat; returns the error to answer, or None."""
        return self._answer_of(phases.HEARTBEAT, caller, now_s)

    def answer_delayed(self, caller: Caller) -> KlogError | None:
        """The answer, as of now, to a heartbeat that arrived some time ago."""
        return self._answer_of(phases.HEARTBEAT, caller, None)

    # --- events -------------------------------------------------------------------------------------------------------

    def ask(self, asked: Asked, to: Any, now_s: float) -> list[Outcome]:
        """Handle a request: it is answered now, or later."""
        if self._writing is None:
            self._handle(asked, to, now_s)
        elif self._writing.is_in_doubt:
            self._answer(to, _away())
        else:
            self._later.append((asked, to))
        return self._done()

    def _handle(self, asked: Asked, to: Any, now_s: float) -> None:
        match asked:
            case Join():
                self._join(asked, to, now_s)
            case Sync():
                self._sync(asked, to, now_s)
            case Leave():
                self._leave(asked, to, now_s)
            case MakeNode():
                self._make_node(to)

    def tick(self, now_s: float) -> list[Outcome]:
        """Handle time-outs."""
        if self._writing is None:
            self._tick(now_s)
        return self._done()

    def written(self, now_s: float) -> list[Outcome]:
        """The write is done."""
        writing = self._writing
        assert writing is not None, "no write under way"
        self._writing = None
        self.state = writing.state.written
        writing.then(now_s)
        self._outcomes += writing.answers
        self._resume(now_s)
        return self._done()

    def write_in_doubt(self, now_s: float) -> list[Outcome]:
        """ZooKeeper does not answer: refuse all waiting requests.

        The write goes on, and ends in `written` or `replaced`; until then every change is refused.
        """
        assert self._writing is not None, "no write under way"
        self._writing.is_in_doubt = True
        self._refuse_all(_away(), now_s)
        return self._done()

    def write_failed(self, error: KlogError, now_s: float) -> list[Outcome]:
        """The state cannot be written (it is too large): the group stays unchanged."""
        assert self._writing is not None, "no write under way"
        self._refuse_all(Refused(error), now_s)
        self._writing = None
        if self.phase is Phase.PREPARING:
            self._join_until_s = now_s + self.members.rebalance_timeout_s
        return self._done()

    def replaced(self, state: GroupState, now_s: float) -> list[Outcome]:
        """Another program has written the group's node: take over ``state``, members included."""
        self._refuse_all(Refused(UnknownMemberId("the group was changed outside its coordinator: join again")), now_s)
        for one in self.state.members:
            self._fenced_until_s = max(self._fenced_until_s, now_s + one.session_timeout_ms / 1000)
        self._writing = None
        self.pending.clear()
        self._join_until_s = self._sync_until_s = self._gather_until_s = NEVER_S
        self.phase = Phase.EMPTY
        self._take(state, now_s)
        return self._done()

    def resign(self, error: KlogError) -> list[Outcome]:
        """Another broker coordinates the group: refuse all waiting requests with this error."""
        self._refuse_all(Refused(error), 0.0)
        self._writing = None
        self.phase = Phase.DEAD
        self.members.clear()
        self.pending.clear()
        return self._done()

    def _resume(self, now_s: float) -> None:
        """Handle the events that waited for a write, until the next write begins."""
        while self._later and self._writing is None:
            self._handle(*self._later.popleft(), now_s)

    def _done(self) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    # --- join ---------------------------------------------------------------------------------------------------------

    def _join(self, join: Join, to: Any, now_s: float) -> None:
        try:
            self._admit(join, to, now_s)
        except KlogError as error:
            given = join.new_id if isinstance(error, MemberIdRequired) else join.member_id
            self._answer(to, Refused(error.bare(), given))
        self._complete_if_all_have_joined(now_s)

    def _admit(self, join: Join, to: Any, now_s: float) -> None:
        """Raises the KlogError that refuses the join."""
        if self.phase is Phase.DEAD:
            raise CoordinatorNotAvailable(f"group {self.name!r} is not coordinated here")
        if not self.limits.session_min_ms <= join.session_timeout_ms <= self.limits.session_max_ms:
            raise InvalidSessionTimeout(
                f"the session time-out must be between {self.limits.session_min_ms} ms (group.min.session.timeout.ms) "
                f"and {self.limits.session_max_ms} ms (group.max.session.timeout.ms), got {join.session_timeout_ms} ms"
            )
        replaced = None if join.member_id else self.members.static(join.instance_id)
        self._check_room(join, replaced, now_s)
        self.members.check_protocols(join, replaced, self.protocol_type)
        if not join.member_id:
            if replaced is not None:
                self._replace_static(replaced, join, to, now_s)
            elif join.instance_id is None and join.must_ask_twice:
                members.give_id(self.pending, join, now_s)
                raise MemberIdRequired("join again with the member id of this answer")
            else:
                self._enter(join, join.new_id, to, now_s)
        elif join.member_id in self.pending and join.instance_id is None:
            del self.pending[join.member_id]
            self._enter(join, join.member_id, to, now_s)
        else:
            self._join_again(self.members.find(join.member_id, join.instance_id), join, to, now_s)

    def _check_room(self, join: Join, replaced: Member | None, now_s: float) -> None:
        """Check the group's size: beyond it, after the setting was lowered, the last members to join are refused."""
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
        self._has_grown = True
        self._rebalance(now_s)

    def _join_again(self, member: Member, join: Join, to: Any, now_s: float) -> None:
        is_settled = (self.phase is Phase.COMPLETING or self.phase is Phase.STABLE) and not (
            # A leader joins again to have the partitions assigned again: a topic has grown, say.
            self.phase is Phase.STABLE and member.member_id == self.members.leader
        )
        if is_settled and member.wants(join.protocols):  # its answer was lost, or its coordinator died
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
        """A static member is back without its id: give it a new one, with its old assignment (KIP-345)."""
        self._refuse(
            old, Refused(FencedInstanceId(f"another process is member {join.instance_id!r} now"), old.member_id)
        )
        is_stable = self.phase is Phase.STABLE
        new = members.member_of(join, join.new_id)
        new.assignment, new.is_new, new.has_synced = old.assignment, old.is_new, old.has_synced
        leader = self.members.leader
        self.members.replace(old, new)
        self._heard(new, now_s)
        if is_stable and select_protocol(list(self.members)) == self.protocol:
            # The answer names the old leader's id, so that the member does not act as leader: a stable group would
            # ignore its assignment.
            answer = self._joined(new)._replace(leader=leader, members=())
            self._write(self._next_state(is_assigned=True), lambda _: None, Answer(to, answer))
            return
        self._await_rebalance(new, to, now_s)
        self._rebalance(now_s)

    def _await_rebalance(self, member: Member, to: Any, now_s: float) -> None:
        if member.joining is not None:  # it has asked again: the earlier request is obsolete
            self._answer(member.joining, Refused(RebalanceInProgress("the member has asked again"), member.member_id))
        member.joining = to
        self.members.expect(member, now_s + NEW_MEMBER_S if member.is_new else NEVER_S)

    def _make_node(self, to: Any) -> None:
        if self.state.version >= 0:
            self._answer(to, Made())
        else:
            state = replace(self.state, generation=self.generation)
            self._write(state, lambda _: None, Answer(to, Made()))

    # --- a rebalance --------------------------------------------------------------------------------------------------

    def _rebalance(self, now_s: float) -> None:
        """Start a rebalance: all members must join again. Ignored during one."""
        if self.phase is Phase.PREPARING:
            return
        if self.phase is Phase.COMPLETING:
            for member in self.members:
                self._answer_sync(member, Refused(RebalanceInProgress("a member has joined or left"), ""), now_s)
        self._sync_until_s = NEVER_S
        self._join_until_s = now_s + self.members.rebalance_timeout_s
        self._gather_until_s = NEVER_S
        if self.phase is Phase.EMPTY and self.limits.initial_delay_s:
            self._gather_until_s = now_s + self.limits.initial_delay_s
            self._has_grown = False
        self.phase = phases.after(self.phase, Event.CHANGED)

    def _complete_if_all_have_joined(self, now_s: float) -> None:
        if self.phase is not Phase.PREPARING or self._writing is not None:
            return
        waits = self._gather_until_s < NEVER_S or any(
            now_s < one.awaited_until_s < NEVER_S for one in self.pending.values()
        )
        if not (self.members and waits) and self.members.have_all_joined:
            self._complete(now_s)

    def _complete(self, now_s: float) -> None:
        """Start a generation of the members that have joined, and of static members whose session is alive."""
        self._gather_until_s = NEVER_S
        for member in self.members:
            if member.joining is None and member.instance_id is None:
                self._drop(member)
        if not self.members:
            self.protocol = ""
            self._write(self._next_state(self.generation + 1), self._emptied)
            return
        if self.members[self.members.leader].joining is None:
            joined = next((one for one in self.members if one.joining is not None), None)
            if joined is None:  # only static members, none has joined: they come back, or their sessions end
                self._join_until_s = now_s + self.members.rebalance_timeout_s
                return
            self.members.leader = joined.member_id
        self.protocol = select_protocol(list(self.members))
        self._write(self._next_state(self.generation + 1), self._begun)

    def _begun(self, now_s: float) -> None:
        """The generation is written: answer its JoinGroups."""
        self.generation = self.state.generation
        self.phase = phases.after(self.phase, Event.GENERATION)
        self._join_until_s = NEVER_S
        self._sync_until_s = now_s + self.members.rebalance_timeout_s
        for member in self.members:
            # For a static member that is not back only its session counts.
            member.has_synced = member.joining is None
            self.members.give(member, b"")
            if member.joining is not None:
                self._answer(member.joining, self._joined(member))
                member.joining = None
                member.is_new = False
                self._heard(member, now_s)

    def _emptied(self, now_s: float) -> None:
        self.generation = self.state.generation
        self.phase = phases.after(self.phase, Event.EMPTIED)
        self._join_until_s = NEVER_S

    def _joined(self, member: Member) -> Joined:
        listed: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.member_id == self.members.leader:
            listed = tuple((one.member_id, one.instance_id, one.metadata(self.protocol)) for one in self.members)
        return Joined(self.generation, self.protocol_type, self.protocol, self.members.leader, member.member_id, listed)

    # --- sync ---------------------------------------------------------------------------------------------------------

    def _sync(self, sync: Sync, to: Any, now_s: float) -> None:
        member_id = sync.caller.member_id
        error = self._answer_of(phases.SYNC, sync.caller, now_s)
        if error is None:
            for said, known in zip(sync.protocol, (self.protocol_type, self.protocol), strict=True):
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
        self.members.expect(member, NEVER_S)
        self._all_synced()
        if member_id == self.members.leader:
            self._write(self._next_state(is_assigned=True, assignments=sync.assignments), self._assigned)

    def _assigned(self, now_s: float) -> None:
        """The assignment is written: answer its SyncGroups."""
        self.phase = phases.after(self.phase, Event.ASSIGNED)
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

    def _leave(self, asked: Leave, to: Any, now_s: float) -> None:
        errors: list[KlogError | None] = []
        for member_id, instance_id in asked.leaving:
            try:
                self._leave_one(member_id, instance_id, now_s)
            except KlogError as error:
                errors.append(error.bare())
            else:
                errors.append(None)
        self._complete_if_all_have_joined(now_s)
        answer = Answer(to, Left(tuple(errors)))
        if self._writing is not None:  # once answered, the last member to leave knows that the group is empty
            self._writing.answers.append(answer)
        else:
            self._outcomes.append(answer)

    def _leave_one(self, member_id: str, instance_id: str | None, now_s: float) -> None:
        if not member_id:  # from an operator, who knows only the names of static members
            found = self.members.static(instance_id)
            if found is None:
                raise UnknownMemberId(f"group {self.name!r} has no static member {instance_id!r}")
            self._remove(found, now_s)
        elif member_id in self.pending:
            del self.pending[member_id]
        else:
            self._remove(self.members.find(member_id, instance_id), now_s)

    def _remove(self, member: Member, now_s: float) -> None:
        """Remove a member; if it was part of a generation, start a rebalance."""
        self._drop(member)
        if self.phase is Phase.COMPLETING or self.phase is Phase.STABLE:
            self._rebalance(now_s)

    def _drop(self, member: Member) -> None:
        self._refuse(member, Refused(UnknownMemberId("the member was removed"), member.member_id))
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
        self.members.look_again()
        if self.phase is Phase.PREPARING:
            self._tick_preparing(now_s)
        elif self._sync_until_s <= now_s:
            self._sync_until_s = NEVER_S
            for member in self.members:
                if not member.has_synced:  # it has joined and sent nothing since
                    self._drop(member)
            self._rebalance(now_s)
            self._complete_if_all_have_joined(now_s)

    def _tick_preparing(self, now_s: float) -> None:
        if self._gather_until_s <= now_s:
            more_s = min(now_s + self.limits.initial_delay_s, self._join_until_s)
            self._gather_until_s = more_s if self._has_grown else NEVER_S
            self._has_grown = False
        if self._join_until_s <= now_s:
            self._complete(now_s)
        else:
            self._complete_if_all_have_joined(now_s)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _answer_of(self, answers: Answers, caller: Caller, now_s: float | None) -> KlogError | None:
        """The answer of the phase to a member's request in a generation. With ``now_s`` it counts as a heartbeat."""
        if self.phase is Phase.DEAD:
            return CoordinatorNotAvailable(f"group {self.name!r} is not coordinated here")
        try:
            member = self.members.find(caller.member_id, caller.instance_id)
        except KlogError as error:
            return error.bare()
        if caller.generation != self.generation:
            return IllegalGeneration(
                f"group {self.name!r} is in generation {self.generation}, the request in {caller.generation}"
            )
        if now_s is not None:
            self._heard(member, now_s)
        refusal = answers[self.phase]
        return None if refusal is None else refusal(f"group {self.name!r} is {self.phase.value}")

    def _heard(self, member: Member, now_s: float) -> None:
        if member.joining is None and member.syncing is None:
            self.members.expect(member, now_s + member.session_timeout_s)

    def _next_state(
        self, generation: int | None = None, is_assigned: bool = False, assignments: Mapping[str, bytes] | None = None
    ) -> GroupState:
        """The state to write: this generation or a new one, with the present members."""
        kept = generation is None and assignments is None
        return replace(
            self.state,
            group_protocol=COORDINATOR,
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

    def _write(self, state: GroupState, then: Callable[[float], None], *answers: Answer) -> None:
        assert self._writing is None, "one write at a time"
        self._writing = Writing(state, then, list(answers))
        self._outcomes.append(Write(state))

    def _answer(self, to: Any, what: Result) -> None:
        self._outcomes.append(Answer(to, what))

    def _refuse(self, member: Member, refused: Refused) -> bool:
        """Refuse the member's waiting requests; whether there were any."""
        waiting = [one for one in (member.joining, member.syncing) if one is not None]
        for one in waiting:
            self._answer(one, refused)
        return bool(waiting)

    def _refuse_all(self, refused: Refused, now_s: float) -> None:
        """Refuse all waiting requests."""
        for member in self.members:
            if self._refuse(member, refused):
                member.joining = member.syncing = None
                self._heard(member, now_s)
        if self._writing is not None:
            for answer in self._writing.answers:
                self._answer(answer.to, refused)
            self._writing.answers = []
        for _, to in self._later:
            self._answer(to, refused)
        self._later.clear()


def _away() -> Refused:
    return Refused(CoordinatorNotAvailable("ZooKeeper does not answer: the group cannot change now"))
