"""The steps of a reassignment: from what stands in ZooKeeper to what is to be done next. Pure.

The topic's node says that a partition is reassigned: its replicas are the new and the old ones together, the target in
front, with those that come (``adding``) and those that go (``removing``) beside (`klog.coordination.topics`; the keys
are Kafka 2.4's). Nothing else is remembered, so whoever is controller goes on from there. With 1, 2, 3 to 4, 2, 5:

    replicas           adding   removing   ISR
    1, 2, 3            -        -          1, 2, 3         before
    4, 2, 5, 1, 3      4, 5     1, 3       1, 2, 3         begun: `begin`; all replicas are told
    4, 2, 5, 1, 3      4, 5     1, 3       1, 2, 3, 5, 4   4 and 5 have caught up: `Shed`
    4, 2, 5            -        -          4, 2, 5         over

What the shell does for each, one act at a time (`klog.server.controller.reassigner`). A new controller tells everybody
everything, which is all that a death between writing an entry and telling of it needs.

    begin     write the entry to the topic's node; tell all its replicas.
    Shed      write the state (a leader that stays, the ISR without those that go, the next epoch); write the entry to
              the topic's node; tell the replicas; stop and delete those that go, the dead ones when they are back. In
              this order: a replica that lost its log is in no ISR, and an old leader cannot take it back in.
    Copying   nothing: the leader reports when the ISR grows, and `next_step` is asked again.
    Stalled   nothing, but say why. Whatever could mend it (a broker is back, a leader elected) asks again.

A second reassignment takes the place of the first; what the first was filling and the second does not want goes at
once, at the cost of its own `Shed`. To cancel is to reassign to where it was, and waits for nobody but a leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from klog.coordination.partition_states import NO_LEADER, PartitionState
from klog.coordination.topics import Topic
from klog.errors import InvalidReplicaAssignment, NoReassignmentInProgress
from klog.replication import election
from klog.replication.election import Decision, Nobody, Situation

NO_THROTTLE = 0


@dataclass(frozen=True, slots=True)
class Entry:
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
        """It goes back to where it was."""
        return self.in_progress and set(self.target) == set(self.origin)

    @property
    def abandoned(self) -> tuple[int, ...]:
        """Replicas that an earlier target asked for, and neither the present one nor the origin has."""
        return _without(self.removing, self.origin) if self.origin else ()


# --- Entries ----------------------------------------------------------------------------------------------------------


def entry_of(topic: Topic, partition: int) -> Entry:
    """What is written of a partition. An origin that another's tool left out: what is not added, as Kafka has it."""
    replicas = topic.partitions[partition]
    adding, removing = topic.adding.get(partition, ()), topic.removing.get(partition, ())
    if not adding and not removing:
        return Entry(replicas)
    origin = topic.origins.get(partition, _without(replicas, adding))
    return Entry(replicas, adding, removing, origin, topic.throttles.get(partition, NO_THROTTLE))


def with_entry(topic: Topic, partition: int, entry: Entry) -> Topic:
    """The topic with what is to be written of this partition."""

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


def begin(entry: Entry, target: Sequence[int], throttle: int = NO_THROTTLE) -> Entry:
    """The entry that leads to this target, in place of what was under way; only a new order is over at once."""
    origin = entry.origin if entry.in_progress else entry.replicas
    replicas = _once((*target, *origin, *entry.replicas))
    adding, removing = _without(target, origin), _without(replicas, target)
    if not adding and not removing:
        return Entry(tuple(target))
    return Entry(replicas, adding, removing, origin, throttle)


def cancel(entry: Entry) -> Entry:
    """The entry that leads back to where it was; NoReassignmentInProgress where nothing is under way."""
    if not entry.in_progress:
        raise NoReassignmentInProgress(f"no reassignment is in progress; its replicas are {_names(entry.replicas)}")
    return begin(entry, entry.origin)


def check_target(entry: Entry, target: Sequence[int], live: Collection[int]) -> None:
    """InvalidReplicaAssignment for a target that cannot be: empty, a broker twice, one that is new and not alive."""
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


# --- Steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shed:
    """Let `gone` go: the state, then the entry, then their logs."""

    decision: Decision
    entry: Entry
    gone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copying:
    """`missing` are not in sync yet."""

    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing moves, and why: half a sentence."""

    reason: str


Step = Shed | Copying | Stalled


def next_step(entry: Entry, state: PartitionState | None, situation: Situation) -> Step | None:
    """What is to be done now; None where the partition is not being reassigned.

    `situation` is that of the entry's replicas. Elections for dead leaders come before: as long as one is due this is
    `Stalled`.
    """
    if not entry.in_progress:
        return None
    if state is None or state.leader == NO_LEADER:
        return Stalled("nobody leads it")
    members = election.uninterrupted(state, situation)
    if state.leader not in members:
        return Stalled(f"its leader {state.leader} is not alive")
    missing = _without(entry.target, members)
    if not missing or (entry.is_cancelled and len(missing) < len(entry.target)):
        return _shed(state, situation, Entry(entry.target), entry.removing)
    if entry.abandoned:
        left = replace(
            entry,
            replicas=_without(entry.replicas, entry.abandoned),
            removing=_without(entry.removing, entry.abandoned),
        )
        shed = _shed(state, situation, left, entry.abandoned)
        if isinstance(shed, Shed):
            return shed
    waiting_for = [one for one in missing if one not in situation.live]
    if waiting_for:
        return Stalled(f"{_brokers(waiting_for)} {'is' if len(waiting_for) == 1 else 'are'} not alive")
    lost = [one for one in missing if not situation.serves(one)]
    if lost:
        return Stalled(f"the disk of {_brokers(lost)} does not serve")
    return Copying(missing)


def _shed(state: PartitionState, situation: Situation, left: Entry, gone: tuple[int, ...]) -> Shed | Stalled:
    """With the leader there is, if it stays; else the first of those that stay."""
    order = left.target if state.leader in gone else _once((state.leader, *left.target))
    chosen = election.reassigned(state, order, situation)
    if isinstance(chosen, Nobody):
        return Stalled(f"no replica that stays can lead: {chosen.reason}")
    kept = {
        one: incarnation
        for one, incarnation in zip(chosen.isr, chosen.incarnations, strict=True)
        if one in left.replicas
    }
    what = f"reassigned to {_names(left.target)}"
    return Shed(replace(chosen, isr=tuple(kept), incarnations=tuple(kept.values()), reason=what), left, gone)


def _once(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(ids))


def _without(ids: Iterable[int], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(one for one in ids if one not in gone)


def _names(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _brokers(ids: Sequence[int]) -> str:
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {_names(ids)}"
