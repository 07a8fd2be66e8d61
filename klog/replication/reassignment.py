"""Plans of a reassignment: which replicas move where, with the fewest moves there are. Pure.

Strategy: a placement is a flow from partitions over racks and hosts to brokers. What is wanted, in order of rank, is a
cost: at the top that a partition lies in as many racks as it can, then on as many hosts, next that brokers have equally
many replicas (the sum of the squares of their numbers), last that few replicas are new to their broker. A placement is
the cheapest exactly when no ring of exchanges (broker a gives a replica to b, b one to c ... and the last keeps one
more) makes it cheaper. So it starts with what there is, made legal, and makes such exchanges until there is none
(Klein's negative cycles); the graph has a node a broker, not one a partition, because between two brokers only the
cheapest exchange matters.

Who leads first is settled afterwards in the same way, each partition choosing one of its replicas: that moves no data.

Two goals
* BALANCE  racks, hosts, then balance, then few moves: brokers were added, or the load drifted.
* KEEP     few moves, then racks, hosts, then balance: only what must move does (a broker goes, the factor changes).

Limits: replicas are counted, not their bytes. Brokers that are not to be used but are not to be emptied either (dead
ones, which may come back) neither give nor take. Which sites count: klog.replication.sites.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from klog.errors import InvalidReplicationFactor, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.replication.sites import Site, counted

Placement = Mapping[TopicPartition, tuple[int, ...]]
"""Partition -> broker ids, the preferred leader first."""

RANK = 10**12
"""What one unit of a rank is worth in the next lower one: more than all of them together."""


class Goal(Enum):
    BALANCE = "balance"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Move:
    """One partition of a plan. `copied`: the brokers that need a copy."""

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
    """The partitions that change, in order; empty when all is as it is wanted.

    `brokers` is broker id -> site, of those that may take replicas; `emptied` lose all that they have;
    other brokers that hold replicas keep them. `factor`: None keeps each partition's. InvalidReplicationFactor where
    the brokers are too few, but for topics of `may_shrink`: those get as many replicas as there can be.
    """
    usable = counted({one: site for one, site in sorted(brokers.items()) if one not in emptied})
    slots = {}
    for name, before in current.items():
        kept = tuple(one for one in before if one not in usable and one not in emptied)
        wanted = len(before) if factor is None else factor
        if factor is None and name.topic in may_shrink:
            wanted = max(1, min(wanted, len(usable) + len(kept)))
        if wanted < 1 or wanted > len(usable) + len(kept):
            raise _impossible(name, wanted, {*usable, *kept}, is_asked_for=factor is not None)
        slots[name] = _Slots(kept[:wanted], wanted - len(kept[:wanted]), frozenset(before), frozenset(usable))
    placed = _Exchange(usable, slots, current, goal).solve()
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
    """The partitions of these topics; UnknownTopicOrPartition names one that is not there."""
    missing = sorted(set(topics) - {name.topic for name in current})
    if missing:
        raise UnknownTopicOrPartition(f"there is no topic {missing[0]!r}")
    return {name: replicas for name, replicas in current.items() if name.topic in set(topics)}


def _impossible(
    name: TopicPartition, wanted: int, brokers: Collection[int], *, is_asked_for: bool
) -> InvalidReplicationFactor:
    """The hint: start more brokers for a factor that was asked for, or first lower the factor of another topic."""
    first = f"fewer replicas first: klog reassign plan --topics {name.topic} --replication-factor N"
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
    """The preferred leader of each partition: one of its replicas that may be used, where there is one."""
    slots, before = {}, {}
    for name, ids in replicas.items():
        able = frozenset(ids & usable.keys()) or frozenset(ids)
        first = current[name][0]
        if first in ids and (goal is Goal.KEEP or first not in usable):
            able = frozenset({first})
        before[name] = (first,) if first in able else ()
        slots[name] = _Slots((), 1, frozenset(before[name]), able)
    nodes = dict.fromkeys(sorted({one for slot in slots.values() for one in slot.able}), Site())
    found = _Exchange(nodes, slots, before, Goal.BALANCE).solve()
    return {name: ids[0] for name, ids in found.items()}


@dataclass(frozen=True, slots=True)
class _Slots:
    """What a partition is to have: `fixed` where they are, and `free` more on brokers out of `able`."""

    fixed: tuple[int, ...]
    free: int
    before: frozenset[int]
    able: frozenset[int]


class _Arc(NamedTuple):
    """A replica of `name` goes from `giver` to `taker`; without a name it is the load that goes round (one is None)."""

    giver: int | None
    taker: int | None
    name: TopicPartition | None


class _Exchange:
    """Finds the cheapest placement of the free slots. `brokers`: sites, as far as they count."""

    def __init__(
        self, brokers: Mapping[int, Site], slots: Mapping[TopicPartition, _Slots], current: Placement, goal: Goal
    ) -> None:
        self._brokers = brokers
        self._slots = slots
        site_costs, self._load_cost, self._move_cost = (
            ((RANK**3, RANK**2), RANK, 1) if goal is Goal.BALANCE else ((RANK**2, RANK), 1, RANK**3)
        )
        self._site_costs = [
            (cost, names)
            for cost, names in zip(
                site_costs,
                ({one: site.rack for one, site in brokers.items()}, {one: site.host for one, site in brokers.items()}),
                strict=True,
            )
            if len(set(names.values())) > 1
        ]
        """Of racks and of hosts, where there are several: what it costs that two replicas share one; its brokers."""
        self._load = dict.fromkeys(brokers, 0)
        self._placed: dict[TopicPartition, list[int]] = {}
        self._arcs: dict[tuple[int, int], dict[int, set[TopicPartition]]] = {}
        """(from, to) -> cost -> the partitions that can make this exchange at it. Load is not in it."""
        for name, slot in slots.items():
            self._placed[name] = [one for one in current[name] if one in slot.able and one not in slot.fixed]
            del self._placed[name][slot.free :]
            for one in self._placed[name]:
                self._load[one] += 1
        for name, slot in slots.items():
            while len(self._placed[name]) < slot.free:
                self._add_one(name, slot)
        for name in slots:
            self._list_arcs(name)

    def solve(self) -> dict[TopicPartition, list[int]]:
        """The free slots of each partition, filled."""
        while (ring := self._cheaper()) is not None and self._apply_or_split(ring):
            pass
        return self._placed

    # --- Costs ---

    def _crowds(self, name: TopicPartition, placed: Sequence[int], sites: Mapping[int, str]) -> int:
        """How far replicas crowd in racks, or on hosts: 0, 1, 3, 6 ... for 1, 2, 3, 4 in one."""
        crowds: dict[str, int] = {}
        for one in (*self._slots[name].fixed, *placed):
            site = sites.get(one, f"?{one}")
            crowds[site] = crowds.get(site, 0) + 1
        return sum(count * (count - 1) // 2 for count in crowds.values())

    def _cost(self, name: TopicPartition, placed: Sequence[int]) -> int:
        """Of a partition's slots, without the load."""
        new = sum(one not in self._slots[name].before for one in placed)
        crowds = sum(cost * self._crowds(name, placed, sites) for cost, sites in self._site_costs)
        return crowds + self._move_cost * new

    # --- Exchanges ---

    def _add_one(self, name: TopicPartition, slot: _Slots) -> None:
        placed = self._placed[name]
        able = [one for one in slot.able if one not in placed and one not in slot.fixed]
        chosen = min(able, key=lambda one: (self._cost(name, [*placed, one]), self._load[one], one))
        placed.append(chosen)
        self._load[chosen] += 1

    def _list_arcs(self, name: TopicPartition) -> None:
        for giver, taker, cost in self._arcs_of(name):
            self._arcs.setdefault((giver, taker), {}).setdefault(cost, set()).add(name)

    def _unlist_arcs(self, name: TopicPartition) -> None:
        for giver, taker, cost in self._arcs_of(name):
            listed = self._arcs[giver, taker]
            listed[cost].discard(name)
            if not listed[cost]:
                del listed[cost]

    def _arcs_of(self, name: TopicPartition) -> list[tuple[int, int, int]]:
        placed, slot = self._placed[name], self._slots[name]
        now = self._cost(name, placed)
        found = []
        for at, giver in enumerate(placed):
            for taker in slot.able:
                if taker not in placed and taker not in slot.fixed:
                    after = [*placed[:at], taker, *placed[at + 1 :]]
                    found.append((giver, taker, self._cost(name, after) - now))
        return found

    def _apply_or_split(self, ring: list[_Arc]) -> bool:
        """Make the exchanges of a ring, if that makes it cheaper; otherwise those of a part of it.

        Two exchanges of one partition may together cost more than each alone (both add to one rack). Then the ring is
        two: crossed over at that partition, one of them is cheaper by itself.
        """
        if self._gain(ring) > 0:
            return True
        named = [at for at, arc in enumerate(ring) if arc.name is not None]
        for first in named:
            for second in named:
                if first < second and ring[first].name == ring[second].name:
                    one, other = ring[first], ring[second]
                    outer = [*ring[:first], one._replace(taker=other.taker), *ring[second + 1 :]]
                    inner = [*ring[first + 1 : second], other._replace(taker=one.taker)]
                    if self._apply_or_split(outer) or self._apply_or_split(inner):
                        return True
        return False

    def _gain(self, ring: Sequence[_Arc]) -> int:
        """What a ring saves; it is made if that is more than nothing, and undone otherwise."""
        exchanges = [arc for arc in ring if arc.name is not None]
        before = self._total(exchanges)
        for arc in exchanges:
            self._exchange(arc)
        gain = before - self._total(exchanges)
        if gain <= 0:
            for arc in reversed(exchanges):
                self._exchange(_Arc(arc.taker, arc.giver, arc.name))
        return gain

    def _total(self, exchanges: Sequence[_Arc]) -> int:
        """Of the partitions and brokers that these exchanges touch."""
        names = {arc.name for arc in exchanges if arc.name is not None}
        loads = {one for arc in exchanges for one in (arc.giver, arc.taker) if one is not None}
        return sum(self._cost(name, self._placed[name]) for name in names) + self._load_cost * sum(
            self._load[one] ** 2 for one in loads
        )

    def _exchange(self, arc: _Arc) -> None:
        assert arc.name is not None and arc.giver is not None and arc.taker is not None
        self._unlist_arcs(arc.name)
        placed = self._placed[arc.name]
        placed[placed.index(arc.giver)] = arc.taker
        self._load[arc.giver] -= 1
        self._load[arc.taker] += 1
        self._list_arcs(arc.name)

    def _cheaper(self) -> list[_Arc] | None:
        """Exchanges that together make it cheaper: a ring of brokers, or a path from a fuller to an emptier one.

        Bellman and Ford, with one node more (None) for the load: from it to a broker that gives one away, to it from
        one that keeps one more.
        """
        arcs: list[tuple[int | None, int | None, int]] = [
            (giver, taker, min(costs)) for (giver, taker), costs in self._arcs.items() if costs
        ]
        for one, load in self._load.items():
            arcs.append((None, one, -self._load_cost * (2 * load - 1)))
            arcs.append((one, None, self._load_cost * (2 * load + 1)))
        nodes: list[int | None] = [*self._brokers, None]
        distance: dict[int | None, int] = dict.fromkeys(nodes, 0)
        came_from: dict[int | None, int | None] = {}
        changed: int | None = None
        for _ in nodes:
            improved = False
            for giver, taker, cost in arcs:
                if distance[giver] + cost < distance[taker]:
                    distance[taker] = distance[giver] + cost
                    came_from[taker] = giver
                    changed, improved = taker, True
            if not improved:
                return None
        at = changed
        for _ in nodes:  # far enough back to be on the ring
            at = came_from[at]
        ring = [at]
        while (before := came_from[ring[-1]]) != at:
            ring.append(before)
        ring.reverse()
        return [self._arc(giver, taker) for giver, taker in zip(ring, [*ring[1:], ring[0]], strict=True)]

    def _arc(self, giver: int | None, taker: int | None) -> _Arc:
        """With the partition that can make the exchange at the least cost."""
        if giver is None or taker is None:
            return _Arc(giver, taker, None)
        listed = self._arcs[giver, taker]
        return _Arc(giver, taker, min(listed[min(listed)]))
