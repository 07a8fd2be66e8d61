"""Where a group goes on reading, set by hand: to a position, to what a file says, to where another group stands.

A plan is made first, from what is committed and what the partitions' leaders say, and shown; then the offsets are
written, in one transaction with their act. Nothing is committed that the log does not have: what lies outside is moved
to its start or its end, with a word about it.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from klog.admin.acts import here
from klog.admin.offset_files import BadLine, OffsetLine
from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.group_requests import to_coordinator
from klog.client.positions import Anchor, Position
from klog.client.resolve import Bounds, bounds, messages_in, resolve
from klog.clock import SYSTEM_CLOCK
from klog.config.units import parse_duration_ms
from klog.coordination import committed, groups, offset_changes
from klog.coordination.committed import CommittedOffset
from klog.coordination.groups import Member
from klog.coordination.offset_changes import OffsetChange
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError, Refused, UsageError
from klog.names import TopicPartition, counted
from klog.protocol.apis import ApiKey

REASON = "fenced by klog group rewind --force"
"""Told to the coordinator, which logs it (KIP-800)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be committed for one group. ``before`` is what there was.

    ``rows`` show it; ``notes`` say what was moved to where the log has messages, and what is left out.
    """

    group: str
    before: Mapping[TopicPartition, CommittedOffset | None]
    wanted: Mapping[TopicPartition, CommittedOffset | None]
    rows: Sequence[OffsetChange]
    notes: Sequence[str] = ()

    @property
    def changes(self) -> dict[TopicPartition, CommittedOffset | None]:
        """Those partitions of which something changes."""
        return {name: new for name, new in self.wanted.items() if not _is_same(self.before[name], new)}


def _is_same(before: CommittedOffset | None, new: CommittedOffset | None) -> bool:
    """The time of the commit does not matter."""
    if before is None or new is None:
        return before is new
    return (before.offset, before.leader_epoch, before.metadata) == (new.offset, new.leader_epoch, new.metadata)


# --- Plans ------------------------------------------------------------------------------------------------------------


class Shift(NamedTuple):
    """From where the group is: by so many messages, or by a time between the messages. Negative: back."""

    messages: int | None = None
    ms: int | None = None


def parse_shift(text: str) -> Shift:
    """``-1000``, ``+10`` or ``-1h``. UsageError."""
    found = re.fullmatch(r"[+-][0-9]{1,18}", text)
    if found is not None:
        return Shift(messages=int(text))
    if text[:1] in ("+", "-") and text[1:2] in tuple("0123456789"):
        try:
            return Shift(ms=(-1 if text[0] == "-" else 1) * parse_duration_ms(text[1:]))
        except ValueError:
            pass
    raise UsageError(
        f"expected messages or a duration with their sign, got {text!r}", hint="--by -1000, --by +10, --by -1h"
    )


async def plan_rewind(
    cluster: Cluster,
    zookeeper: ZooKeeper,
    group: str,
    position: Position | Shift,
    *,
    topics: Sequence[str] = (),
    partitions: Sequence[int] | None = None,
    create: bool = False,
) -> Plan:
    """To a position in these topics, or in all that the group has committed in, in all of their partitions; or from
    what is committed there, by a shift.

    GroupIdNotFound (unless ``create``), UnknownTopicOrPartition; UsageError where partitions of no one topic are meant,
    or several by one offset; Refused where messages counted from the end would move the group forward.
    """
    if partitions is not None and len(topics) != 1:
        raise UsageError("-p selects partitions of one topic", hint="name it: -t TOPIC -p 0,2")
    if create and not topics:
        raise UsageError("a new group has no topics yet", hint="name them: -t TOPIC")
    if not create:
        await asyncio.to_thread(groups.check_known, zookeeper, [group])
    known = await asyncio.to_thread(committed.read, zookeeper, group)
    metadata = await cluster.metadata(fresh=True)
    chosen = list(dict.fromkeys(topics)) or sorted({name.topic for name in known})
    notes = []
    wanted: list[TopicPartition] = []
    for topic in chosen:
        node = metadata.topics.get(topic)
        if node is None and not topics:
            notes.append(f"topic {topic} no longer exists: its offsets stay as they are")
            continue
        node = node or await cluster.topic(topic)
        node.check(partitions or ())
        wanted += node.names(partitions)
    if not wanted:
        raise Refused(f"group {group!r} has no committed offsets in an existing topic", hint="name a topic: -t TOPIC")
    if isinstance(position, Shift):
        without = [name for name in wanted if name not in known]
        wanted = [name for name in wanted if name in known]
        if not wanted:
            raise Refused(f"group {group!r} has committed nothing there to count from", hint="--to POSITION")
        if without:
            notes.append(f"{counted(len(without), 'partition')} without a committed offset left out")
        return await _plan_shift(cluster, group, {name: known[name] for name in wanted}, position, notes)
    if position.anchor is Anchor.OFFSET and len(wanted) > 1:
        raise UsageError(
            f"an offset is an address in one partition, and this would set {counted(len(wanted), 'partition')} to it",
            hint=f"-t {shlex.quote(wanted[0].topic)} -p N; a point in all of them: --to start, end, +N, -N or @TIME",
        )
    limits = await bounds(cluster, wanted)
    offsets = await resolve(cluster, dict.fromkeys(wanted, position), limits)
    words = await _moved(cluster, position, offsets, limits)
    plan = await _plan(cluster, group, known, _committed(offsets), words, notes)
    forward = [row for row in plan.rows if row.delta is not None and row.delta > 0]
    if position.anchor is Anchor.BACK and position.value and forward:
        raise Refused(
            f"--to -{position.value} is {counted(position.value, 'message')} before the end, which would move group "
            f"{group!r} forward in {counted(len(forward), 'partition')}, first in {forward[0].name}",
            hint=f"from where the group is: --by -{position.value}; to skip what is unread: --to end",
        )
    return plan


def _committed(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset | None]:
    return {name: CommittedOffset(offset) for name, offset in offsets.items()}


async def _plan_shift(
    cluster: Cluster, group: str, known: Mapping[TopicPartition, CommittedOffset], shift: Shift, notes: list[str]
) -> Plan:
    """By messages, each partition counted by its leader; or to the time of the committed message, earlier or later."""
    limits = await bounds(cluster, known)
    begin = {name: min(max(known[name].offset, limit.start), limit.end) for name, limit in limits.items()}
    words: dict[TopicPartition, str] = {}
    if shift.messages is not None:
        back = shift.messages < 0
        held = await messages_in(
            cluster,
            {name: (limits[name].start, at) if back else (at, limits[name].end) for name, at in begin.items()},
        )
        for name, messages in held.items():
            if messages is not None and messages < abs(shift.messages):
                where = f"{'before' if back else 'behind'} the committed offset"
                words[name] = f"{name}: {counted(messages, 'message')} {where}; set to the {'start' if back else 'end'}"
        position = Position(Anchor.BACK if back else Anchor.FORWARD, abs(shift.messages))
        around = {
            name: Bounds(limits[name].start, at) if back else Bounds(at, limits[name].end) for name, at in begin.items()
        }
        offsets = await resolve(cluster, dict.fromkeys(known, position), around)
    else:
        times = await cluster.to_leaders({name: [at] for name, at in begin.items()}, leader_requests.message_times)
        positions: dict[TopicPartition, Position] = {}
        for name, at in begin.items():
            told = times.get(name)
            time_ms = None if told is None or isinstance(told, KlogError) else told.get(at)
            if time_ms is None:
                words[name] = f"{name}: no message at the committed offset; counted from now"
                time_ms = SYSTEM_CLOCK.now_ms()
            positions[name] = Position(Anchor.TIME, max(0, time_ms + (shift.ms or 0)))
        offsets = await resolve(cluster, positions, limits)
    return await _plan(cluster, group, known, _committed(offsets), words, notes)


async def plan_lines(
    cluster: Cluster, zookeeper: ZooKeeper, lines: Iterable[OffsetLine]
) -> tuple[list[Plan], list[BadLine]]:
    """To what a file says, a plan a group, and the lines about partitions that are not there."""
    metadata = await cluster.metadata(fresh=True)
    good: dict[str, dict[TopicPartition, CommittedOffset | None]] = {}
    bad = []
    for line in lines:
        if (error := metadata.lacking(line.name)) is not None:
            bad.append(BadLine(line.number, error.message))
        else:
            good.setdefault(line.group, {})[line.name] = line.committed
    known = await asyncio.to_thread(committed.read_many, zookeeper, {group: list(some) for group, some in good.items()})
    within = await bounds(cluster, {name for some in good.values() for name in some})
    plans = []
    for group, some in good.items():
        words: dict[TopicPartition, str] = {}
        wanted = dict(some)
        for name, new in some.items():
            limit = within[name]
            if new is not None and not limit.start <= new.offset <= limit.end:
                wanted[name] = CommittedOffset(min(max(new.offset, limit.start), limit.end))
                words[name] = _outside(name, new.offset, limit)
        plans.append(await _plan(cluster, group, known[group], wanted, words))
    return plans, bad


async def plan_copy(cluster: Cluster, zookeeper: ZooKeeper, source: str, target: str) -> Plan:
    """To where another group stands. Refused where the target has committed anything: it would be mixed with that."""
    if not target:
        raise UsageError("the new group's name must not be empty")
    if source == target:
        raise UsageError(f"group {source!r} cannot be copied to itself")
    await asyncio.to_thread(groups.check_known, zookeeper, [source])
    found = await asyncio.to_thread(committed.read_many, zookeeper, {source: None, target: None})
    if found[target]:
        raise Refused(
            f"group {target!r} already has committed offsets in {counted(len(found[target]), 'partition')}",
            hint=f"`klog group delete {shlex.quote(target)}` removes them",
        )
    if not found[source]:
        raise Refused(f"group {source!r} has no committed offsets to copy")
    wanted = {name: replace(one, commit_ms=0) for name, one in found[source].items()}
    return await _plan(cluster, target, {}, wanted)


async def committed_by(zookeeper: ZooKeeper, group: str) -> dict[TopicPartition, CommittedOffset]:
    """All that a group has committed; GroupIdNotFound."""
    await asyncio.to_thread(groups.check_known, zookeeper, [group])
    return await asyncio.to_thread(committed.read, zookeeper, group)


async def plan_deletion(zookeeper: ZooKeeper, group: str, topic: str | None = None) -> Plan:
    """To nothing at all, or to nothing in a topic, which need no longer exist. GroupIdNotFound; Refused where the
    group has committed nothing in the topic."""
    known = await committed_by(zookeeper, group)
    if topic is not None:
        known = {name: one for name, one in known.items() if name.topic == topic}
        if not known:
            raise Refused(
                f"group {group!r} has no committed offsets in topic {topic!r}",
                hint="`klog lag GROUP` shows where it has",
            )
    rows = [OffsetChange(group, *name, one.offset, None, None, None) for name, one in known.items()]
    return Plan(group, known, dict.fromkeys(known), rows)


# --- Carrying them out ------------------------------------------------------------------------------------------------


async def refuse_members(zookeeper: ZooKeeper, wanted: Iterable[str], hint: str | None = None) -> None:
    """NonEmptyGroup, naming members and hosts, where one of these groups has any."""
    found = await asyncio.to_thread(groups.read_many, zookeeper, list(wanted))
    for group in found.values():
        offset_changes.refuse_members(group, hint)


async def carry_out(
    cluster: Cluster,
    zookeeper: ZooKeeper,
    plan: Plan,
    *,
    force: bool = False,
    hint: str | None = None,
) -> list[Member]:
    """Write what changes, fenced; the members that were fenced for it. NonEmptyGroup where there are, without force."""
    fenced = await asyncio.to_thread(
        offset_changes.write, zookeeper, plan.group, plan.changes, force=force, hint=hint, actor=here(zookeeper)
    )
    coordinated = [one for one in fenced if one.client_id is not None]
    if coordinated:
        await _send_away(cluster, plan.group, coordinated)
    return fenced


async def _send_away(cluster: Cluster, group: str, members: Sequence[Member]) -> None:
    """Have the coordinator look at the group again, whose members then join again at once.

    They are fenced already, and learn it at their next commit at the latest; but one that reads nothing commits
    nothing. So a coordinator that cannot be asked here is not an error.
    """
    try:
        leaving = [{"member_id": one.member_id, "group_instance_id": None, "reason": REASON} for one in members]
        await to_coordinator(cluster, group, ApiKey.LEAVE_GROUP, 5, 3, group_id=group, members=leaving)
    except KlogError:
        pass


async def delete_group(cluster: Cluster, zookeeper: ZooKeeper, group: str) -> None:
    """Take away all that a group without members has left: what it committed, and who held it. NonEmptyGroup else."""
    await asyncio.to_thread(offset_changes.delete, zookeeper, group, here(zookeeper))
    try:
        # A coordinator that still remembers the group would have its next member join twice.
        await to_coordinator(
            cluster, group, ApiKey.DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=False
        )
    except KlogError:
        pass


# --- What is shown ----------------------------------------------------------------------------------------------------


async def _moved(
    cluster: Cluster,
    position: Position,
    offsets: Mapping[TopicPartition, int],
    limits: Mapping[TopicPartition, Bounds],
) -> dict[TopicPartition, str]:
    """A word about each partition in which the position lies outside of the log."""
    words: dict[TopicPartition, str] = {}
    match position.anchor:
        case Anchor.OFFSET:
            for name, limit in limits.items():
                if not limit.start <= position.value <= limit.end:
                    words[name] = _outside(name, position.value, limit)
        case Anchor.TIME:
            for name, limit in limits.items():
                if offsets[name] == limit.end > limit.start:
                    words[name] = f"{name}: has no message at or after that time; set to the end, {limit.end}"
        case Anchor.FORWARD | Anchor.BACK:
            held = await messages_in(cluster, {name: (limit.start, limit.end) for name, limit in limits.items()})
            for name, messages in held.items():
                if messages is not None and messages < position.value:
                    where = "end" if position.anchor is Anchor.FORWARD else "start"
                    words[name] = (
                        f"{name}: has only {counted(messages, 'message')}; set to the {where}, {offsets[name]}"
                    )
    return words


def _outside(name: TopicPartition, offset: int, limit: Bounds) -> str:
    if offset < limit.start:
        return f"{name}: offset {offset} is below the log's start; set to the start, {limit.start}"
    return f"{name}: offset {offset} is beyond the log's end; set to the end, {limit.end}"


async def _plan(
    cluster: Cluster,
    group: str,
    known: Mapping[TopicPartition, CommittedOffset],
    wanted: Mapping[TopicPartition, CommittedOffset | None],
    words: Mapping[TopicPartition, str] = {},
    notes: Sequence[str] = (),
) -> Plan:
    """From what is committed to what is wanted, with these words about some of the partitions."""
    before, then = {name: known.get(name) for name in wanted}, dict(wanted)
    between = {}
    for name, new in wanted.items():
        old = before[name]
        if old is not None and new is not None:
            if old.offset == new.offset and not new.metadata:
                then[name] = old  # who says nothing but the offset does not take the rest away
            else:
                between[name] = (min(old.offset, new.offset), max(old.offset, new.offset))
    messages = await messages_in(cluster, between)
    rows = []
    for name, new in then.items():
        prior, offset = (None if one is None else one.offset for one in (before[name], new))
        delta = None if prior is None or offset is None else offset - prior
        count = 0 if delta == 0 else messages.get(name)
        if count is not None and delta is not None and delta < 0:
            count = -count
        rows.append(OffsetChange(group, *name, prior, offset, delta, count, words.get(name)))
    return Plan(group, before, then, rows, [*notes, *words.values()])
