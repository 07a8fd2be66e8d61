"""The steps of a reassignment: what to do next, from what is in ZooKeeper. Pure.

The topic's node says that a partition is reassigned: its replicas are the new and the old ones together, the target
first; beside them are the new ones (``adding``) and the old ones (``removing``) (`klog.coordination.topics`; the keys
are Kafka 2.4's). Nothing else records it, so any controller can continue. From 1, 2, 3 to 4, 2, 5:

    replicas           adding   removing   ISR
    1, 2, 3            -        -          1, 2, 3         before
    4, 2, 5, 1, 3      4, 5     1, 3       1, 2, 3         begun: `begin`; sent to all replicas
    4, 2, 5, 1, 3      4, 5     1, 3       1, 2, 3, 5, 4   4 and 5 have caught up: `Removal`
    4, 2, 5            -        -          4, 2, 5         over

The steps, as `klog.server.controller.reassigner` takes them, one act at a time. A new controller sends all brokers
everything, which covers a death between writing an entry and sending it.

    begin     write the entry to the topic's node; send it to all replicas.
    Removal   write the state (a leader that stays, the in-sync set without the removed replicas, the next epoch); write
              the entry to the topic's node; send it to the replicas; stop and delete the removed ones, dead ones when
              they are back. In this order: a replica that has lost its log is in no in-sync set, and an old leader
              cannot add it again.
    Copying   nothing: the leader reports when the in-sync set grows, and `next_step` is called again.
    Stalled   nothing; the reason is logged. Any event that could help (a broker is back, a leader is elected) calls
              `next_step` again.

A second reassignment replaces the first. A replica that only the first one wanted is removed early, by its own
`Removal`. To cancel is to reassign to the replicas before; that only needs a leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.coordination.topics import Topic
from klog.errors import InvalidReplicaAssignment, NoReassignmentInProgress
from klog.replication import leader_election
from klog.replication.leader_election import Decision, ElectionInput, NoLeader

NO_THROTTLE = 0


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """What the topic's node says of one partition. `origin`: the replicas before, () unless it is reassigned.

    `throttle`: bytes a second that a broker may take in for it, 0 without.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    origin: tuple[int, ...] = ()
    throttle: int = NO_THROTTLE

    @property
    def in_progress(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when it is over, the preferred leader first."""
        return _without(self.replicas, self.removing)

    @property
    def is_cancelled(self) -> bool:
        """It goes back to the replicas before."""
        return self.in_progress and set(self.target) == set(self.origin)

    @property
    def abandoned(self) -> tuple[int, ...]:
        """Replicas of an earlier target that neither the present target nor the origin has."""
        return _without(self.removing, self.origin) if self.origin else ()


# --- entries ----------------------------------------------------------------------------------------------------------


def entry_of(topic: Topic, partition: int) -> ReplicaAssignment:
    """The entry of a partition. Without an origin (another tool wrote it), it is what is not added, as in Kafka."""
    replicas = topic.partitions[partition]
    adding, removing = topic.adding.get(partition, ()), topic.removing.get(partition, ())
    if not adding and not removing:
        return ReplicaAssignment(replicas)
    origin = topic.origins.get(partition, _without(replicas, adding))
    return ReplicaAssignment(replicas, adding, removing, origin, topic.throttles.get(partition, NO_THROTTLE))


def with_entry(topic: Topic, partition: int, entry: ReplicaAssignment) -> Topic:
    """The topic with this entry of the partition."""

    def put(known: dict[int, tuple[int, ...]], ids: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        return {**known, partition: ids} if ids else {one: there for one, there in known.items() if one != partition}

    throttles = {one: rate for one, rate in topic.throttles.items() if one != partition}
    if entry.throttle:
        throttles[partition] = entry.throttle
    return replace(
        topic,
        partitions={**topic.partitions, partition: entry.replicas},
        adding=put(topic.adding, entry.adding),
        removing=put(topic.removing, entry.removing),
        origins=put(topic.origins, entry.origin),
        throttles=throttles,
    )


def in_progress(topic: Topic) -> list[int]:
    """The partitions that are being reassigned."""
    return sorted(topic.adding.keys() | topic.removing.keys())


def begin(entry: ReplicaAssignment, target: Sequence[int], throttle: int = NO_THROTTLE) -> ReplicaAssignment:
    """The entry that leads to this target, in place of an earlier one; a mere change of order is over at once."""
    origin = entry.origin if entry.in_progress else entry.replicas
    replicas = _once((*target, *origin, *entry.replicas))
    adding, removing = _without(target, origin), _without(replicas, target)
    if not adding and not removing:
        return ReplicaAssignment(tuple(target))
    return ReplicaAssignment(replicas, adding, removing, origin, throttle)


def cancel(entry: ReplicaAssignment) -> ReplicaAssignment:
    """The entry that leads back to the replicas before. NoReassignmentInProgress."""
    if not entry.in_progress:
        raise NoReassignmentInProgress(f"no reassignment is in progress; its replicas are {_names(entry.replicas)}")
    return begin(entry, entry.origin)


def check_target(entry: ReplicaAssignment, target: Sequence[int], live: Collection[int]) -> None:
    """InvalidReplicaAssignment for a target that is empty, names a broker twice, or adds one that is not alive."""
    if not target:
        raise InvalidReplicaAssignment("no replicas are named; a partition must have at least one")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"the replicas {_names(target)} name a broker twice")
    wrong = [one for one in target if one not in live and one not in entry.replicas]
    if wrong:
        raise InvalidReplicaAssignment(
            f"the replicas {_names(target)} name {_brokers(wrong)}, which {'is' if len(wrong) == 1 else 'are'} not "
            f"alive; the live brokers are {_names(sorted(live))}"
        )


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Removal:
    """Remove the replicas `gone`: write the state, then the entry; then delete their logs."""

    decision: Decision
    entry: ReplicaAssignment
    gone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copying:
    """The replicas `missing` are not in sync yet."""

    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stalled:
    """No progress; the reason is half a sentence."""

    reason: str


Step = Removal | Copying | Stalled


def next_step(entry: ReplicaAssignment, state: PartitionState | None, known: ElectionInput) -> Step | None:
    """What to do now; None where the partition is not being reassigned.

    `known` is about the entry's replicas. An election for a dead leader comes before: until it is done this is
    `Stalled`.
    """
    if not entry.in_progress:
        return None
    if state is None or state.leader == NO_LEADER:
        return Stalled("it has no leader")
    members = leader_election.uninterrupted(state, known)
    if state.leader not in members:
        return Stalled(f"its leader {state.leader} is not alive")
    missing = _without(entry.target, members)
    if not missing or (entry.is_cancelled and len(missing) < len(entry.target)):
        return _remove(state, known, ReplicaAssignment(entry.target), entry.removing)
    if entry.abandoned:
        left = replace(
            entry,
            replicas=_without(entry.replicas, entry.abandoned),
            removing=_without(entry.removing, entry.abandoned),
        )
        removal = _remove(state, known, left, entry.abandoned)
        if isinstance(removal, Removal):
            return removal
    waiting_for = [one for one in missing if one not in known.live]
    if waiting_for:
        return Stalled(f"{_brokers(waiting_for)} {'is' if len(waiting_for) == 1 else 'are'} not alive")
    lost = [one for one in missing if not known.serves(one)]
    if lost:
        return Stalled(f"the disk of {_brokers(lost)} does not serve")
    return Copying(missing)


def _remove(
    state: PartitionState, known: ElectionInput, left: ReplicaAssignment, gone: tuple[int, ...]
) -> Removal | Stalled:
    """With the present leader, if it stays; else the first of the replicas that stay."""
    order = left.target if state.leader in gone else _once((state.leader, *left.target))
    chosen = leader_election.reassigned(state, order, known)
    if isinstance(chosen, NoLeader):
        return Stalled(f"no replica that stays can lead: {chosen.reason}")
    kept = {
        one: incarnation
        for one, incarnation in zip(chosen.isr, chosen.incarnations, strict=True)
        if one in left.replicas
    }
    what = f"reassigned to {_names(left.target)}"
    return Removal(replace(chosen, isr=tuple(kept), incarnations=tuple(kept.values()), reason=what), left, gone)


def _once(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(ids))


def _without(ids: Iterable[int], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(one for one in ids if one not in gone)


def _names(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _brokers(ids: Sequence[int]) -> str:
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {_names(ids)}"
