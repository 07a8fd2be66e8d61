"""Plans a reassignment: which replicas move where, with few moves. Pure.

Strategy: greedy. Replicas that must leave their broker go to the best free place; then each partition spreads over
racks and hosts by single exchanges; then the fullest broker gives a replica to an emptier one, directly or through
others, until that improves nothing. Tests compare with the optimum: as spread and as level, with at most 5 % more
moves.

Preferred leaders are chosen afterwards in the same way, each among its partition's replicas, which moves no data.

Two goals
* BALANCE  racks, hosts, then balance, then few moves: brokers were added, or the load drifted.
* KEEP     few moves, then racks, hosts, then balance: only necessary moves (a broker goes, the factor changes).

Limits: replicas are counted, not their bytes. Brokers that neither take replicas nor are emptied (dead ones, which may
come back) neither give nor take. Which sites count: klog.replication.placement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from klog.errors import InvalidReplicationFactor, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.replication.placement import Site, sites_that_count

Placement = Mapping[TopicPartition, tuple[int, ...]]
"""Partition -> broker ids, the preferred leader first."""


class Goal(Enum):
    BALANCE = "balance"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Move:
    """A partition of a plan. `copied`: brokers that need a copy."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def copied(self) -> tuple[int, ...]:
        return tuple(one for one in self.after if one not in self.before)


def plan(
    current: Placement,
    brokers: Mapping[int, Site],
    *,
    goal: Goal,
    emptied: Collection[int] = (),
    factor: int | None = None,
    may_shrink: Collection[str] = (),
) -> list[Move]:
    """The partitions that change, in order; empty if none must.

    `brokers`: broker id -> site of those that may take replicas; `emptied` lose all replicas; other brokers keep
    theirs. `factor`: None keeps each partition's. Raises InvalidReplicationFactor if there are too few brokers, except
    for topics of `may_shrink`, which get as many replicas as possible.
    """
    usable = sites_that_count({one: site for one, site in sorted(brokers.items()) if one not in emptied})
    if factor is not None and not current and factor > len(usable):
        raise _impossible("a partition", factor, usable, "", is_asked_for=True)
    slots = {}
    for name, before in current.items():
        kept = tuple(one for one in before if one not in usable and one not in emptied)
        wanted = len(before) if factor is None else factor
        if factor is None and name.topic in may_shrink:
            wanted = max(1, min(wanted, len(usable) + len(kept)))
        if wanted < 1 or wanted > len(usable) + len(kept):
            raise _impossible(str(name), wanted, {*usable, *kept}, name.topic, is_asked_for=factor is not None)
        slots[name] = _Slots(kept[:wanted], wanted - len(kept[:wanted]), frozenset(before), frozenset(usable))
    placed = _Greedy(usable, slots, current, goal).solve()
    replicas = {name: {*slots[name].fixed, *placed[name]} for name in current}
    leaders = _leaders(current, replicas, usable, goal)
    moves = []
    for name, before in sorted(current.items()):
        first = leaders[name]
        rest = [one for one in before if one in replicas[name]]
        rest += sorted(replicas[name] - set(before))
        after = (first, *(one for one in rest if one != first))
        if after != before:
            moves.append(Move(name, before, after))
    return moves


def choose(current: Placement, topics: Collection[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """The partitions of these topics. Raises UnknownTopicOrPartition with the name of a missing one."""
    missing = sorted(set(topics) - {name.topic for name in current})
    if missing:
        raise UnknownTopicOrPartition.of_topics(*missing)
    return {name: replicas for name, replicas in current.items() if name.topic in set(topics)}


def _impossible(
    name: str, wanted: int, brokers: Collection[int], topic: str, *, is_asked_for: bool
) -> InvalidReplicationFactor:
    """The error, with a hint: start more brokers for the requested factor, or first lower another topic's factor."""
    first = f"fewer replicas first: klog reassign plan --topics {topic} --replication-factor N"
    return InvalidReplicationFactor(
        f"{name} is to have {wanted} replicas; at least 1 and at most {len(brokers)} are possible "
        f"on brokers {', '.join(map(str, sorted(brokers))) or 'none'}",
        hint="a replica wants a broker of its own: name another number, or start more brokers"
        if is_asked_for
        else first,
    )


def _leaders(
    current: Placement, replicas: Mapping[TopicPartition, set[int]], usable: Mapping[int, Site], goal: Goal
) -> dict[TopicPartition, int]:
    """The preferred leader of each partition: one of its usable replicas, if there is one."""
    slots, before = {}, {}
    for name, ids in replicas.items():
        able = frozenset(ids & usable.keys()) or frozenset(ids)
        first = current[name][0]
        if first in ids and (goal is Goal.KEEP or first not in usable):
            able = frozenset({first})
        before[name] = (first,) if first in able else ()
        slots[name] = _Slots((), 1, frozenset(before[name]), able)
    nodes = dict.fromkeys(sorted({one for slot in slots.values() for one in slot.able}), Site())
    found = _Greedy(nodes, slots, before, Goal.BALANCE).solve()
    return {name: ids[0] for name, ids in found.items()}


@dataclass(frozen=True, slots=True)
class _Slots:
    """A partition's replicas: `fixed` ones stay, and `free` more go to brokers of `able`."""

    fixed: tuple[int, ...]
    free: int
    before: frozenset[int]
    able: frozenset[int]


class _Greedy:
    """Fills the free slots, and exchanges replicas while that improves. `brokers`: sites, as far as they count."""

    def __init__(
        self, brokers: Mapping[int, Site], slots: Mapping[TopicPartition, _Slots], current: Placement, goal: Goal
    ) -> None:
        self._slots = slots
        self._goal = goal
        racks, hosts = {b: site.rack for b, site in brokers.items()}, {b: site.host for b, site in brokers.items()}
        self._sites = [names for names in (racks, hosts) if len(set(names.values())) > 1]
        self._same = (0,) * (len(self._sites) + (goal is Goal.KEEP))
        self._placed: dict[TopicPartition, list[int]] = {}
        self._held: dict[int, set[TopicPartition]] = {one: set() for one in brokers}
        for name, slot in slots.items():
            self._placed[name] = [one for one in current[name] if one in slot.able and one not in slot.fixed]
            del self._placed[name][slot.free :]
            for one in self._placed[name]:
                self._held[one].add(name)

    def solve(self) -> dict[TopicPartition, list[int]]:
        """Fill the free slots of each partition."""
        for name, slot in self._slots.items():
            while len(self._placed[name]) < slot.free:
                taker = min(self._takers(name), key=lambda one: (*self._crowd(name, one), self._load(one), one))
                self._placed[name].append(taker)
                self._held[taker].add(name)
        for name in self._slots:
            self._spread(name)
        while self._level():
            pass
        return self._placed

    def _load(self, broker: int) -> int:
        return len(self._held[broker])

    def _takers(self, name: TopicPartition) -> list[int]:
        slot, placed = self._slots[name], self._placed[name]
        return [one for one in slot.able if one not in placed and one not in slot.fixed]

    def _crowd(self, name: TopicPartition, broker: int, giver: int | None = None) -> tuple[int, ...]:
        """Replicas other than the giver's on the broker's rack, and on its host."""
        others = [one for one in (*self._slots[name].fixed, *self._placed[name]) if one != giver]
        return tuple(sum(sites.get(one) == sites[broker] for one in others) for sites in self._sites)

    def _moves(self, name: TopicPartition, giver: int, taker: int) -> int:
        """The number of moves that an exchange adds: 1, 0, or -1."""
        before = self._slots[name].before
        return (taker not in before) - (giver not in before)

    def _worse(self, name: TopicPartition, giver: int, taker: int) -> tuple[int, ...]:
        """How much worse an exchange makes what ranks above balance; the first that is not 0 decides."""
        then, now = self._crowd(name, taker, giver), self._crowd(name, giver, giver)
        crowds = tuple(after - before for after, before in zip(then, now, strict=True))
        return (self._moves(name, giver, taker), *crowds) if self._goal is Goal.KEEP else crowds

    def _exchange(self, name: TopicPartition, giver: int, taker: int) -> None:
        self._placed[name][self._placed[name].index(giver)] = taker
        self._held[giver].remove(name)
        self._held[taker].add(name)

    def _spread(self, name: TopicPartition) -> None:
        """Exchange replicas of a partition while its racks or hosts become less crowded."""
        while any(any(self._crowd(name, one, one)) for one in self._placed[name]):
            able = [(giver, taker) for giver in self._placed[name] for taker in self._takers(name)]
            if not able:
                return
            giver, taker = min(
                able, key=lambda one: (self._worse(name, *one), self._load(one[1]) - self._load(one[0]), one)
            )
            if self._worse(name, giver, taker) >= self._same:
                return
            self._exchange(name, giver, taker)

    def _level(self) -> bool:
        """Let the fullest broker give first. False: no broker could give."""
        able, given = set(self._held), False
        while able:
            giver = max(able, key=lambda one: (self._load(one), -one))
            if self._give(giver):
                given = True
            else:
                able.remove(giver)
        return given

    def _give(self, start: int) -> bool:
        """Pass a replica's load on to a broker that has at least two fewer, over as few brokers as possible."""
        enough = self._load(start) - 2
        emptiest = sorted(self._held, key=lambda one: (self._load(one), one))
        if self._load(emptiest[0]) > enough:
            return False
        came_from = {start: start}
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            for taker in emptiest:
                if taker not in came_from and self._best(giver, taker) is not None:
                    came_from[taker] = giver
                    queue.append(taker)
                    if self._load(taker) <= enough:
                        return self._pass_on(taker, came_from)
        return False

    def _best(self, giver: int, taker: int) -> TopicPartition | None:
        """The partition to move: one that gets no worse by it, with the fewest moves."""
        best = None
        for name in self._held[giver]:
            slot = self._slots[name]
            if taker not in slot.able or taker in slot.fixed or name in self._held[taker]:
                continue
            cost = (self._moves(name, giver, taker), name)
            if (best is None or cost < best) and self._worse(name, giver, taker) <= self._same:
                best = cost
        return None if best is None else best[1]

    def _pass_on(self, taker: int, came_from: Mapping[int, int]) -> bool:
        """Move along the path, from the end back to the start; undone if one step has ruled out another."""
        made: list[tuple[TopicPartition, int, int]] = []
        while (giver := came_from[taker]) != taker:
            name = self._best(giver, taker)
            if name is None:
                for done, came, went in reversed(made):
                    self._exchange(done, went, came)
                return False
            self._exchange(name, giver, taker)
            made.append((name, giver, taker))
            taker = giver
        return True
