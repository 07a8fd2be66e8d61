"""Why a group does not move: from facts to steps. Nothing here asks the cluster anything.

What is wrong with it now, `klog.admin.health.group_rules` decides; here is what its coordinator and history say of why.
The rules are ordered, the strongest first: the first that has a cause ends the search.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from klog.admin.group_lag import LagRow
from klog.admin.health.group_looks import look_of
from klog.admin.health.group_rules import groups
from klog.coordination import paths
from klog.coordination.group_states import COORDINATOR
from klog.coordination.groups import Group
from klog.names import TopicPartition, counted, first_few
from klog.tools.events import Event, EventFilter
from klog.tools.why.causes import broker_steps, partition_steps, why_gone
from klog.tools.why.steps import EXPECTED, Known, Step, moment, shortened_by, time_of, told, with_act

LOOP_WITHIN: Final = timedelta(minutes=10)
LOOP_MIN: Final = 5
"""Rebalances within `LOOP_WITHIN` that are a loop: deploying a few members one by one is fewer."""
REFUSED_WITHIN: Final = timedelta(hours=1)
AWAITED_MAX: Final = 3
"""Members named that a rebalance waits for; more are counted."""
OF_COMMITS: Final = ("group-stopped", "no-member", "offset-behind-end", "offset-below-start")
"""The findings that are since the last commit."""
JOINING: Final = ("PreparingRebalance", "CompletingRebalance")


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group, what it has committed, and what its coordinator says of it (``phase``)."""

    group: Group
    phase: str
    coordinator: int | None = None
    rows: Sequence[LagRow] = ()
    awaited: Mapping[str, int] = field(default_factory=dict)
    """Members that a rebalance waits for, and how many ms ago their last heartbeats were."""

    @property
    def name(self) -> str:
        return self.group.name

    @property
    def unread(self) -> int:
        """Messages; those of partitions without a committed offset are not counted."""
        return sum(row.lag or 0 for row in self.rows)

    @property
    def is_deserted(self) -> bool:
        """Messages wait, and it has no member: that is nearer than other causes."""
        return bool(self.unread and not self.group.members)

    @property
    def committed(self) -> datetime | None:
        return max((row.committed for row in self.rows if row.committed is not None), default=None)


Rule = Callable[[Known, GroupFacts], Iterator[Step]]


def why_group(known: Known, of: GroupFacts) -> list[Step]:
    """Why the group does not move, or not as it should; of one that is well, its state."""
    for rule in RULES:
        steps = list(rule(known, of))
        if steps:
            return [_symptom(known, of), *steps]
    return [_symptom(known, of)]


def _symptom(known: Known, of: GroupFacts) -> Step:
    behind = [row for row in of.rows if row.lag]
    never = [row for row in of.rows if row.has_committed_nothing]
    what = f"group {of.name} is {of.phase} with {counted(len(of.group.members), 'member')}"
    if behind:
        what += f"; {counted(of.unread, 'message')} unread in {counted(len(behind), 'partition')}"
    elif never:
        what += f"; {counted(len(never), 'partition')} without a committed offset"
    at = of.committed
    evidence = "nothing is committed" if at is None else f"last commit {at:%Y-%m-%d %H:%M:%S}"
    return known.step(what, f"`klog lag`: {evidence}")


# --- The rules --------------------------------------------------------------------------------------------------------


def _coordinator(known: Known, of: GroupFacts) -> Iterator[Step]:
    broker = of.coordinator
    if of.group.state.group_protocol != COORDINATOR or not of.group.members:
        return
    if broker is None:
        do = "wait: the controller gives its slot to a broker; `klog status brokers`"
        yield known.step(f"group {of.name} has no coordinator", f"ZooKeeper: {paths.GROUP_SLOTS}", do)
    elif known.snapshot.is_away(broker):
        yield known.step(f"its coordinator is broker {broker}", f"ZooKeeper: {paths.GROUP_SLOTS}")
        yield from broker_steps(known, broker)


def _partitions(known: Known, of: GroupFacts) -> Iterator[Step]:
    """Partitions that cannot be read."""
    for row in of.rows if not of.is_deserted else ():
        topic = known.metadata.topics.get(row.topic or "")
        one = topic.partitions.get(row.partition if row.partition is not None else -1) if topic is not None else None
        if topic is not None and one is not None and (one.leader is None or one.leader in known.snapshot.silent):
            name = TopicPartition(topic.name, one.partition)
            if one.leader is None:
                yield from partition_steps(known, name, one)
            else:
                yield known.step(f"{name} cannot be read", f"its leader is broker {one.leader}")
                yield from broker_steps(known, one.leader)
            return


def _loop(known: Known, of: GroupFacts) -> Iterator[Step]:
    """Rebalances in a loop, and whose."""
    since = known.now - LOOP_WITHIN
    recent = [event for event in known.chosen(EventFilter(group=of.name, kinds=("rebalance", "group-empty")))
              if (at := time_of(event)) is not None and at >= since]  # fmt: skip
    if len(recent) < LOOP_MIN:
        return
    first, last = time_of(recent[0]), time_of(recent[-1])
    minutes = int(LOOP_WITHIN.total_seconds() // 60)
    yield Step(first, f"{len(recent)} rebalances in {minutes} minutes", "events rebalance")
    who: Counter[str] = Counter()
    why: dict[str, str] = {}
    for event in recent:
        for one in (*_entries(event, "left"), *_entries(event, "joined")):
            name = f"client {one.get('client')} at {one.get('host')}"
            who[name] += 1
            if one.get("why"):
                why[name] = str(one["why"])
    if not who:
        do = f"`klog events group {of.name}` shows each of them"
        yield Step(last, f"group {of.name} rebalances in a loop", "its members stay the same", do)
        return
    (name, times), *_ = who.most_common(1)
    evidence = f"{name} joined or left {times} times" + (f"; last it {why[name]}" if name in why else "")
    do = f"look at {name}: raise max.poll.interval.ms and session.timeout.ms, or let it do less between two polls"
    yield Step(last, f"group {of.name} rebalances in a loop because of {name}", evidence, do)


def _joining(known: Known, of: GroupFacts) -> Iterator[Step]:
    if of.phase not in JOINING or not of.group.members:
        return
    last = known.last(EventFilter(group=of.name, kinds=("rebalance", "group-empty")))
    since = _since(of)
    evidence = f"coordinator: {of.phase}" + (f"; before: {told(last).what}" if last is not None else "")
    clients = {one.member_id: one for one in of.group.members}
    awaited = [
        f"{clients.get(name, name)} ({ms / 1000:.0f} s since its last heartbeat)"
        for name, ms in sorted(of.awaited.items(), key=lambda pair: -pair[1])
    ]
    if not awaited:
        do = f"look at its members (`klog group describe {shlex.quote(of.name)}`): one of them does not join again"
        yield Step(since, f"group {of.name} waits for members to join again", evidence, do)
        return
    do = "look there: clients join again in their next poll, and are removed after max.poll.interval.ms without one"
    what = f"group {of.name} waits for {first_few(awaited, AWAITED_MAX)} to join again"
    yield Step(since, what, evidence, do)


def _refused(known: Known, of: GroupFacts) -> Iterator[Step]:
    """Commits that the coordinator refuses, where nothing was committed since."""
    event = known.last(EventFilter(group=of.name, kinds=("commit-refused",)))
    at = time_of(event)
    if event is None or at is None or at < known.now - REFUSED_WITHIN or of.is_deserted:
        return
    if of.committed is not None and of.committed > at:
        return
    member, where = str(event.get("member") or ""), f"client {event.get('client')} at {event.get('host')}"
    evidence = f"event commit-refused: {event.get('error')}: {event.get('reason')}"
    if member:
        do = f"restart {where}; if it comes again, raise its session.timeout.ms or max.poll.interval.ms"
        yield Step(at, f"the coordinator refuses the commits of {where}: it is fenced", evidence, do)
    else:
        do = f"stop {where}, or give it a group.id of its own: it commits beside the members of the group"
        yield Step(at, f"the coordinator refuses the commits of {where}: it is not a member", evidence, do)


def _found(known: Known, of: GroupFacts) -> Iterator[Step]:
    """What is wrong with it now; and who did that, and when, as far as history tells."""
    look = look_of(of.group, of.phase, known.metadata.topics)
    one = next(groups(replace(known.snapshot, groups=list(of.rows), group_looks=[look]), alone=True), None)
    if one is None:
        return
    place = one.what.partition(", partition ")[2]
    time = of.committed if one.kind in OF_COMMITS else _since(of)
    step = Step(time, f"{place}: {one.found}" if place else one.found, f"{EXPECTED}{one.expected}", one.do)
    emptied = None if of.group.members else known.last(EventFilter(group=of.name, kinds=("group-empty",)))
    if one.kind == "topic-gone":
        yield from why_gone(known, look.gone[0]) or [step]
    elif one.kind == "no-member":
        yield step if emptied is None else _left(of, emptied, step)
    else:
        act = shortened_by(known, place.rpartition("-")[0], one.do) if one.kind == "offset-below-start" else None
        yield from [told(emptied)] if emptied is not None else []
        yield from with_act(step, act)


def _left(of: GroupFacts, emptied: Event, step: Step) -> Step:
    """A group without a member, and how the last one left it."""
    gone = next(iter(_entries(emptied, "left")), None)
    if gone is None:
        return replace(step, time=time_of(emptied))
    what, where = f"group {of.name} has no member", f"client {gone.get('client')} at {gone.get('host')}"
    do = f"start its consumers, the last of which was {where}; {str(step.do).partition('; ')[2]}"
    if "stopped answering" in str(gone.get("why")):
        what = f"the last member, {gone.get('member')}, hangs or died"
        do = f"look at the process of {where}: `kill -CONT PID` if it was stopped, start it if it died"
    return Step(time_of(emptied), what, f"{where} {gone.get('why')}", do)


RULES: Final[tuple[Rule, ...]] = (_coordinator, _partitions, _loop, _joining, _refused, _found)


# --- Parts ------------------------------------------------------------------------------------------------------------


def _since(of: GroupFacts) -> datetime | None:
    return moment(of.group.state.modified_ms) if of.group.state.modified_ms else None


def _entries(event: Event, name: str) -> list[Mapping[str, Any]]:
    """Members in an event: anyone can write to the topic."""
    found = event.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
