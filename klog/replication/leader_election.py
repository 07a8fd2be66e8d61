"""Elects the leader of a partition: five kinds of election, and which replicas leave the ISR. Pure.

    new            a partition that has never had a leader
    offline        its leader is dead; unclean where that is allowed (rule R1)
    reassigned     its leader is no longer a replica
    preferred      the preferred leader becomes leader again
    leaving        controlled shutdown of a broker

The controller mostly calls `reconcile`: it gives the state that a partition must have, given the live brokers; it keeps
rule R5.

Rules
* A member of the ISR is *uninterrupted* if its current registration is the one in the state. It has everything that was
  ever committed. While there is one, every other member leaves the ISR; but a registration outlives its broker for a
  while, so the member must also have answered since brokers last came or went. Otherwise a dead member could remain
  alone in the ISR, although the others have what it may have lost.
* Without one, neither the state nor any single member can tell which of them has everything: a disk that was set back
  to an earlier day (a virtual machine's snapshot) looks as it did on that day, clean shutdown included. So they are
  compared. The election waits for the members of the ISR until all are back or the cluster's time for it is over
  (`ElectionInput.waited`); the highest (last epoch, end) of those that are back leads. Those that equal it stay in the
  ISR, the others leave and come back by catching up. A log that is known to lack something comes last, however far it
  reaches (rule L2). A member whose log is gone is back with nothing; one whose disk is offline is not back.
* When the time is over and some are missing, a new incarnation may lead only if its log is there under the topic's
  UUID, lacks nothing below its own checkpointed high watermark, and was flushed with every append or closed cleanly:
  then, unless its disk was set back, it has what it had as a member. Without such a one all must come back.
* A state marked new never had a leader: nothing was ever appended, and every live replica may lead.
* A change of leader raises the epoch, also above that in the new leader's log; a mere shrink of the ISR does not.

Limits: `ElectionInput.facts` are as old as the broker's registration. For new incarnations that is exact, since a
partition without a leader gets no appends; before an unclean election ask uninterrupted ones again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from klog.coordination.partition_states import NEVER_UNCLEAN, NO_LEADER, UNKNOWN_INCARNATION, PartitionState
from klog.event_kinds import Fate
from klog.protocol.interbroker import ReplicaFacts


@dataclass(frozen=True, slots=True)
class ElectionInput:
    """Live brokers and their disks, as far as one partition is concerned.

    `live`: broker id -> incarnation. `facts`: no key for a broker that has not been asked, None if it has no log of
    this partition under the topic's UUID. `offline`: brokers that have lost their replica with its disk. `leaving`:
    brokers that shut down. `heard`: brokers that have answered since brokers last came or went; None where that is not
    watched, and registered brokers count as alive. `waited`: whether the time for missing members of an interrupted ISR
    is over. `how_lost`: how and when brokers were lost; for reasons alone.
    """

    live: Mapping[int, int]
    facts: Mapping[int, ReplicaFacts | None] = field(default_factory=dict)
    offline: Set[int] = frozenset()
    leaving: Set[int] = frozenset()
    heard: Set[int] | None = None
    waited: bool = True
    how_lost: Mapping[int, str] = field(default_factory=dict)

    def answers(self, broker_id: int) -> bool:
        return self.heard is None or broker_id in self.heard

    def serves(self, broker_id: int) -> bool:
        """Whether the broker is alive and its disk not known to be offline."""
        if broker_id not in self.live or broker_id in self.offline:
            return False
        facts = self.facts.get(broker_id)
        return facts is None or facts.is_online

    def log(self, broker_id: int) -> ReplicaFacts | None:
        """The log of a serving broker; None if it has none, or is not known to."""
        return self.facts.get(broker_id) if self.serves(broker_id) else None

    def is_whole(self, broker_id: int) -> bool:
        """Whether nothing is known to be missing from the broker's log."""
        facts = self.facts.get(broker_id)
        return facts is None or facts.is_whole


@dataclass(frozen=True, slots=True)
class Decision:
    """The next state of a partition. `leader` may be `NO_LEADER`; `incarnations` are those of `isr`, in its order.

    `unclean`: acknowledged messages may be lost. `reason`: half a sentence for the log.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    incarnations: tuple[int, ...]
    new: bool
    unclean: bool
    reason: str

    def applied(self, before: PartitionState | None, controller_epoch: int) -> PartitionState:
        """The state to write over ``before``, at its version."""
        return PartitionState(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=self.isr,
            incarnations=self.incarnations,
            controller_epoch=controller_epoch,
            new=self.new,
            version=-1 if before is None else before.version,
            unclean_epoch=self.leader_epoch
            if self.unclean
            else NEVER_UNCLEAN
            if before is None
            else before.unclean_epoch,
        )


@dataclass(frozen=True, slots=True)
class NoLeader:
    """No replica may lead; ``reason``: half a sentence."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waiting(NoLeader):
    """No replica may lead *yet*: the members of the ISR get time to come back and be compared."""


def uninterrupted(state: PartitionState, situation: ElectionInput) -> tuple[int, ...]:
    """The members of the ISR that have everything: registered since before they joined it, and serving."""
    return tuple(
        broker_id
        for broker_id, incarnation in _as_recorded(state).items()
        if situation.live.get(broker_id) == incarnation and situation.serves(broker_id)
    )


def reconcile(
    state: PartitionState,
    replicas: Sequence[int],
    situation: ElectionInput,
    *,
    unclean_allowed: bool,
    first_epoch: int = 0,
) -> Decision | NoLeader | None:
    """The state to write, given the live brokers; None if it is right, or must wait for an in-sync replica's answer.

    NoLeader: the partition has no leader, and still no replica may lead.
    """
    members = uninterrupted(state, situation)
    if members and not state.new and not any(map(situation.answers, members)):
        return None
    if state.leader != NO_LEADER and state.leader in members:
        return without_dead(state, situation)
    found = offline(state, replicas, situation, unclean_allowed=unclean_allowed, first_epoch=first_epoch)
    if isinstance(found, NoLeader) and state.leader != NO_LEADER:
        return _changed(state, NO_LEADER, _as_recorded(state), f"{_lost(state, situation)}, and {found.reason}")
    return found


def without_dead(state: PartitionState, situation: ElectionInput) -> Decision | None:
    """R5: the ISR without its dead members, under the present leader; None if none is dead.

    The leader itself must be uninterrupted.
    """
    members = uninterrupted(state, situation)
    assert state.leader in members, f"leader {state.leader} is not among {members}"
    if members == state.isr or not any(map(situation.answers, members)):
        return None
    gone = [one for one in state.isr if one not in members]
    return _changed(state, state.leader, _recorded(state, members), "; ".join(_gone(one, situation) for one in gone))


# --- The five elections -----------------------------------------------------------------------------------------------


def new(replicas: Sequence[int], situation: ElectionInput, *, first_epoch: int = 0) -> Decision | NoLeader:
    """The first leader of a partition: the first live replica; all live ones are the ISR."""
    living = [one for one in replicas if situation.serves(one)]
    leader = _first(living, replicas, situation)
    if leader is None:
        return NoLeader(f"none of its replicas {_names(replicas)} is alive")
    isr = {one: situation.live[one] for one in living}
    return Decision(leader, first_epoch, tuple(isr), tuple(isr.values()), True, False, "it is new")


def offline(
    state: PartitionState,
    replicas: Sequence[int],
    situation: ElectionInput,
    *,
    unclean_allowed: bool,
    first_epoch: int = 0,
) -> Decision | NoLeader:
    """A new leader for a partition whose leader is dead, interrupted or missing (rule R1)."""
    if state.new:
        chosen = new(replicas, situation)
        if isinstance(chosen, NoLeader):
            return chosen
        isr = dict(zip(chosen.isr, chosen.incarnations, strict=True))
        decided = _changed(state, chosen.leader, isr, "it has never been led", situation, first_epoch)
        return replace(decided, new=True)
    members = uninterrupted(state, situation)
    leader = _first(filter(situation.answers, members), replicas, situation)
    if leader is not None:
        isr = _recorded(state, members)
        reason = _after(state, situation, f"{leader} is the first in-sync replica that is alive")
        return _changed(state, leader, isr, reason, situation, first_epoch)
    if members:
        return NoLeader(
            f"in-sync {_names(members)} have yet to answer, or are not among its replicas {_names(replicas)}"
        )
    back = _first_back(state, replicas, situation, first_epoch)
    if isinstance(back, NoLeader) and not isinstance(back, Waiting) and unclean_allowed:
        return _unclean(state, replicas, situation, first_epoch, back)
    return back


def reassigned(state: PartitionState, target: Sequence[int], situation: ElectionInput) -> Decision | NoLeader:
    """A leader among the replicas that stay and are in sync, or NoLeader."""
    return _in_sync(state, target, situation, "is a replica that stays")


def preferred(state: PartitionState, replicas: Sequence[int], situation: ElectionInput) -> Decision | NoLeader | None:
    """The preferred leader; None if it leads already."""
    return chosen(state, replicas[0], situation, "is the preferred replica")


def chosen(
    state: PartitionState, wanted: int, situation: ElectionInput, why: str = "was chosen by an operator"
) -> Decision | NoLeader | None:
    """The in-sync replica on the broker ``wanted``; None if it leads already."""
    if state.leader == wanted:
        return None
    if wanted in situation.leaving:
        return NoLeader(f"broker {wanted} {Fate.SHUTTING_DOWN}")
    return _in_sync(state, (wanted,), situation, why)


def leaving(
    state: PartitionState, replicas: Sequence[int], broker_id: int, situation: ElectionInput
) -> Decision | NoLeader:
    """Controlled shutdown: the state without ``broker_id``, under another leader if it led (rule R5).

    NoLeader if no other may lead: the broker leads until it is gone.
    """
    members = tuple(one for one in uninterrupted(state, situation) if one != broker_id)
    isr = _recorded(state, members)
    if not any(map(situation.answers, members)):
        return NoLeader(f"no other in-sync replica answers: the ISR is {_names(state.isr)}")
    if state.leader in members:
        return _changed(state, state.leader, isr, f"broker {broker_id} {Fate.SHUTTING_DOWN}")
    candidates = tuple(one for one in members if one not in situation.leaving and situation.answers(one))
    leader = _first(candidates, replicas, situation)
    if leader is None:
        return NoLeader(f"no other replica is in sync: the ISR is {_names(state.isr)}")
    return _changed(state, leader, isr, f"broker {broker_id} {Fate.SHUTTING_DOWN}", situation)


# --- Rule R1 ----------------------------------------------------------------------------------------------------------


def _first_back(
    state: PartitionState, replicas: Sequence[int], situation: ElectionInput, first_epoch: int
) -> Decision | NoLeader:
    """Every member of the ISR was interrupted: elect the best of those that are back, when all are or the wait is
    over."""
    logs = {one: log for one in state.isr if (log := situation.log(one)) is not None}
    kept = [one for one, log in logs.items() if log.is_whole and log.was_safe]
    missing = [one for one in state.isr if not situation.serves(one) or one not in situation.facts]
    awaited = [one for one in missing if one not in situation.offline]
    if logs and awaited and not situation.waited:
        return Waiting(f"waiting for {_brokers(awaited)}, which {'was' if len(awaited) == 1 else 'were'} in the ISR")
    if missing and not any(one in replicas for one in kept):
        return NoLeader(f"in-sync {_names(missing)} must come back: no other replica is sure to have every message")
    candidates = [one for one in (kept if missing else logs) if one in replicas]
    if not candidates:
        return NoLeader(f"the log is gone from in-sync {_names(state.isr)}")
    best = max((logs[one].is_whole, *_reach(logs[one])) for one in candidates)
    equal = [one for one in candidates if (logs[one].is_whole, *_reach(logs[one])) == best]
    # A log with the same bytes stays in the ISR only if no crash can have taken anything from it.
    leader = min(equal, key=lambda one: (one not in kept, one in situation.leaving, replicas.index(one)))
    isr = {one: situation.live[one] for one in state.isr if one == leader or (one in equal and one in kept)}
    why = "is back with all it had" if leader in kept else "has the most of all that were in sync"
    return _changed(state, leader, isr, _after(state, situation, f"{leader} {why}"), situation, first_epoch)


def _unclean(
    state: PartitionState, replicas: Sequence[int], situation: ElectionInput, first_epoch: int, why: NoLeader
) -> Decision | NoLeader:
    """The longest log that serves; an empty one only if every replica is back and none has a log."""
    logs = {one: log for one in replicas if (log := situation.log(one)) is not None}
    if logs:
        leader = max(logs, key=lambda one: (*_reach(logs[one]), one in state.isr, -replicas.index(one)))
    elif all(situation.serves(one) and one in situation.facts for one in replicas):
        leader = replicas[0]
    else:
        return NoLeader(f"{why.reason}, and no replica that is alive has a log")
    isr = {leader: situation.live[leader]}
    had = "the longest log" if logs else "no log, as all others"
    reason = f"unclean: {why.reason}; it has {had} of the replicas alive"
    return replace(_changed(state, leader, isr, reason, situation, first_epoch), unclean=True, new=not logs)


# --- Parts ------------------------------------------------------------------------------------------------------------


def _in_sync(state: PartitionState, wanted: Sequence[int], situation: ElectionInput, why: str) -> Decision | NoLeader:
    members = uninterrupted(state, situation)
    candidates = tuple(one for one in members if situation.is_whole(one) and situation.answers(one))
    leader = _first(candidates, wanted, situation)
    if leader is None:
        return NoLeader(f"{_names(wanted)} is not in the ISR {_names(state.isr)}, or does not answer, or is damaged")
    return _changed(state, leader, _recorded(state, members), f"{leader} {why}", situation)


def _first(candidates: Iterable[int], order: Sequence[int], situation: ElectionInput) -> int | None:
    """The first in ``order``; one that is leaving or damaged only if there is no other."""
    wanted = set(candidates)
    able = [one for one in order if one in wanted]
    return min(able, key=lambda one: (not situation.is_whole(one), one in situation.leaving), default=None)


def _reach(log: ReplicaFacts) -> tuple[int, int]:
    return log.last_epoch, log.end_address


def _changed(
    state: PartitionState,
    leader: int,
    isr: Mapping[int, int],
    reason: str,
    situation: ElectionInput | None = None,
    first_epoch: int = 0,
) -> Decision:
    """``isr``: broker id -> incarnation. A new leader, or a new incarnation of the same one, gets a new epoch."""
    epoch = state.leader_epoch
    if situation is not None or leader != state.leader:
        log = situation.facts.get(leader) if situation is not None else None
        epoch = max(epoch + 1, first_epoch, -1 if log is None else log.last_epoch + 1)
    return Decision(leader, epoch, tuple(isr), tuple(isr.values()), state.new, False, reason)


def _as_recorded(state: PartitionState) -> dict[int, int]:
    """Broker id -> incarnation. A state written by 0.8 has none, so no broker counts as uninterrupted."""
    return dict(zip(state.isr, state.incarnations or (UNKNOWN_INCARNATION,) * len(state.isr), strict=True))


def _recorded(state: PartitionState, members: Iterable[int]) -> dict[int, int]:
    recorded = _as_recorded(state)
    return {one: recorded[one] for one in members}


def _after(state: PartitionState, situation: ElectionInput, why: str) -> str:
    return why if state.leader == NO_LEADER else f"{_lost(state, situation)}; {why}"


def _lost(state: PartitionState, situation: ElectionInput) -> str:
    """How the leader was lost."""
    if state.leader in situation.live and state.leader in situation.offline:
        return f"the disk of broker {state.leader} is lost"
    return _gone(state.leader, situation)


def _gone(broker_id: int, situation: ElectionInput) -> str:
    """``broker 2 stopped answering at 03:00:12``."""
    return f"broker {broker_id} {situation.how_lost.get(broker_id, 'was lost before this controller was elected')}"


def _names(broker_ids: Iterable[int]) -> str:
    return "[" + ", ".join(map(str, broker_ids)) + "]"


def _brokers(broker_ids: Sequence[int]) -> str:
    return f"broker{'' if len(broker_ids) == 1 else 's'} {', '.join(map(str, broker_ids))}"
