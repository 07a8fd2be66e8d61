"""Why a group does not move: from facts to steps. Nothing here asks the cluster anything.

The rules are ordered, the strongest first: the first that has a cause ends the search.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from klog.admin.group_lag import LagRow
from klog.admin.health.group_looks import look_of
from klog.coordination import paths
from klog.coordination.group_states import COORDINATOR
from klog.coordination.groups import Group
from klog.names import TopicPartition, counted, first_few
from klog.tools.events import Event, EventFilter
from klog.tools.why.causes import broker_steps, partition_steps, why_gone
from klog.tools.why.steps import Known, Step, listed, moment, shortened_by, time_of, told

LOOP_WITHIN: Final = timedelta(minutes=10)
LOOP_MIN: Final = 5
"""Rebalances within `LOOP_WITHIN` that are a loop: deploying a few members one by one is fewer."""
STANDS_STILL: Final = timedelta(seconds=30)
"""A message waits for longer, and nothing was committed for as long: clients commit every 5 s unless told otherwise."""
REFUSED_WITHIN: Final = timedelta(hours=1)
AWAITED_MAX: Final = 3
"""Members named that a rebalance waits for; more are counted."""
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
    """Partitions that cannot be read; of a group with unread messages and no member, that is not the nearest cause."""
    if of.unread and not of.group.members:
        return
    for row in of.rows:
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


def _gone(known: Known, of: GroupFacts) -> Iterator[Step]:
    """A topic that its members read, and that does not exist."""
    for topic in look_of(of.group, of.phase, known.metadata.topics).gone[:1]:
        do = f"`klog topic create {shlex.quote(topic)}`, or other topics for its members"
        yield from why_gone(known, topic) or [known.step(f"topic {topic} does not exist", "metadata", do)]


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


def _outside(known: Known, of: GroupFacts) -> Iterator[Step]:
    """Offsets outside of the log: retention was faster, or the topic is another."""
    row = next((row for row in of.rows if row.is_outside), None)
    if row is None or row.current_offset is None or row.log_start_offset is None:
        return
    emptied = _emptied(known, of)
    if emptied is not None and not of.group.members:
        yield told(emptied)
    name = f"{row.topic}-{row.partition}"
    if row.current_offset < row.log_start_offset:
        evidence = f"committed offset {row.current_offset}, log start offset {row.log_start_offset}"
        do = (
            "raise the topic's retention.ms; what was deleted is lost: "
            f"`klog group rewind {shlex.quote(of.name)} --to start` goes on with what there is"
        )
        act = shortened_by(known, str(row.topic), do)
        what = f"{name}: retention deleted messages that the group had not read"
        yield Step(row.committed, what, evidence, do if act is None else None)
        if act is not None:
            yield act
    else:
        evidence = f"committed offset {row.current_offset}, log end offset {row.log_end_offset}"
        do = f"was the topic deleted and made again? `klog events topic {row.topic}`; then `klog group rewind`"
        yield Step(row.committed, f"{name}: the committed offset is beyond the log's end", evidence, do)


def _no_member(known: Known, of: GroupFacts) -> Iterator[Step]:
    if of.group.members or not of.unread:
        return
    emptied = _emptied(known, of)
    last = told(emptied) if emptied is not None else Step(None, "", "ZooKeeper")
    gone = next(iter(_entries(emptied, "left")), None) if emptied is not None else None
    name = shlex.quote(of.name)
    unneeded = f"where it is not needed, `klog group delete {name}`"
    if gone is None:
        do = f"start its consumers: `klog events group {name}` shows its last members; {unneeded}"
        yield Step(last.time or of.committed, f"group {of.name} has no member", last.evidence, do)
        return
    member, where = gone.get("member"), f"client {gone.get('client')} at {gone.get('host')}"
    if "stopped answering" in str(gone.get("why")):
        do = f"look at the process of {where}: `kill -CONT PID` if it was stopped, start it if it died"
        yield Step(last.time, f"the last member, {member}, hangs or died", f"{where} {gone.get('why')}", do)
    else:
        do = f"start its consumers, the last of which was {where}; {unneeded}"
        yield Step(last.time, f"group {of.name} has no member", f"{where} {gone.get('why')}", do)


def _refused(known: Known, of: GroupFacts) -> Iterator[Step]:
    """Commits that the coordinator refuses, where nothing was committed since."""
    event = known.last(EventFilter(group=of.name, kinds=("commit-refused",)))
    at = time_of(event) if event is not None else None
    if event is None or at is None or at < known.now - REFUSED_WITHIN:
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


def _never(known: Known, of: GroupFacts) -> Iterator[Step]:
    rows = [row for row in of.rows if row.has_committed_nothing]
    owners = {row.owner for row in rows}
    lazy = sorted(owner for owner in owners if owner and all(row in rows for row in of.rows if row.owner == owner))
    if not lazy:
        return
    mine = [f"{row.topic}-{row.partition}" for row in rows if row.owner == lazy[0]]
    evidence = f"ZooKeeper: no committed offset of {listed(mine)}, which it reads"
    do = "let it commit: enable.auto.commit=true, or commit after each batch; if it only began, wait"
    what = f"member {_member(of, lazy[0])} has never committed"
    yield Step(_since(of), what, evidence, do)


def _unowned(known: Known, of: GroupFacts) -> Iterator[Step]:
    missing = look_of(of.group, of.phase, known.metadata.topics).unowned
    if missing:
        show = f"`klog group describe {shlex.quote(of.name)}`"
        do = f"restart its consumers, so that they share the partitions out again; {show}"
        what = f"no live consumer owns {listed(missing, 6)}"
        yield Step(_since(of), what, f"owners by {'coordinator' if of.coordinator is not None else 'ZooKeeper'}", do)


def _stuck(known: Known, of: GroupFacts) -> Iterator[Step]:
    still = [
        row
        for row in of.rows
        if row.owner and row.lag and row.committed is not None and known.now - row.committed > STANDS_STILL
        and (row.lag_ms or 0) > STANDS_STILL.total_seconds() * 1000
    ]  # fmt: skip
    if not still:
        return
    worst = max(still, key=lambda row: row.lag_ms or 0)
    unread = counted(worst.lag or 0, "message")
    evidence = f"{worst.place}: committed offset {worst.current_offset}, {unread} unread"
    do = "look at its process: it sends heartbeats, and does not commit; a message that it cannot process, perhaps"
    assert worst.owner is not None
    what = f"member {_member(of, worst.owner)} stopped committing"
    yield Step(worst.committed, what, evidence, do)


def _idle(known: Known, of: GroupFacts) -> Iterator[Step]:
    idle = look_of(of.group, of.phase, known.metadata.topics).idle
    if idle:
        partitions = len(of.group.readers)
        evidence = f"{counted(partitions, 'partition')} for {counted(len(of.group.members), 'member')}"
        do = "more partitions (`klog topic alter TOPIC -p N`), or fewer members; a standby may stay"
        yield Step(_since(of), f"members that own nothing: {listed(idle, 3)}", evidence, do)


RULES: Final[tuple[Rule, ...]] = (
    _coordinator,
    _partitions,
    _gone,
    _loop,
    _joining,
    _outside,
    _no_member,
    _refused,
    _never,
    _unowned,
    _stuck,
    _idle,
)


# --- Parts ------------------------------------------------------------------------------------------------------------


def _since(of: GroupFacts) -> datetime | None:
    return moment(of.group.state.modified_ms) if of.group.state.modified_ms else None


def _member(of: GroupFacts, owner: str) -> str:
    found = next((one for one in of.group.members if owner == one.member_id or owner.startswith(one.member_id)), None)
    return owner if found is None else str(found)


def _emptied(known: Known, of: GroupFacts) -> Event | None:
    return known.last(EventFilter(group=of.name, kinds=("group-empty",)))


def _entries(event: Event, name: str) -> list[Mapping[str, Any]]:
    """Members in an event: anyone can write to the topic."""
    found = event.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
