"""``klog group``: groups of consumers, live and dead: who is in them, how far behind they are, where they go on."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from klog.cli import watching
from klog.cli.arguments import (
    Group,
    OptionalGroups,
    Partitions,
    Regex,
    TopicFlag,
    all_partitions,
)
from klog.cli.by_schema import BySchema, decoder_by
from klog.cli.command import Noun, top_command
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.name_cache import remember
from klog.cli.watching import Every, Watch
from klog.client.positions import Position, parse_position
from klog.clock import SYSTEM_CLOCK
from klog.errors import BrokerNotAvailable, CannotConnect, UsageError
from klog.names import counted, regular_expression
from klog.render import Report

if TYPE_CHECKING:
    from klog.admin.group_peek import PeekRow
    from klog.client.cluster import Cluster
    from klog.tools.schemas import MessageDecoder

group = Noun("group", "Consumer groups: members, lag, rewind, copy, delete.")

CHANGES = "klog.coordination.offset_changes:OffsetChange"


@group.command("list", rows="klog.admin.groups:GroupRow")
async def list_groups(
    invocation: Invocation,
    pattern: str | None = argument("PATTERN", "Only groups whose name matches this glob pattern."),
    regex: Regex = False,
) -> Report:
    """List groups: those of stock clients, and those of consumers that coordinate through ZooKeeper.

    The exit code is 1 if a pattern matches no group.
    """
    from klog.admin import groups

    if regex and pattern is None:
        raise UsageError("--regex needs a PATTERN")
    if regex and pattern is not None:
        regular_expression(pattern, "PATTERN")
    session = await invocation.zookeeper()
    rows = await groups.list_groups(session, await _cluster(invocation), pattern, regex=regex)
    if pattern is None:
        remember(invocation.target, "groups", [row.group for row in rows])
    missing = pattern is not None and not rows
    return invocation.report(rows, footer=f"no group matches {pattern!r}" if missing else "", failed=missing)


@group.command("describe", rows="klog.admin.groups:MemberRow")
async def describe(invocation: Invocation, name: Group) -> Report:
    """Show the members of a group, one row per partition that a member reads."""
    from klog.admin import groups

    found, rows = await groups.describe_group(await invocation.zookeeper(), await _cluster(invocation), name)
    by = f"broker {found.coordinator}" if found.coordinator is not None else "no broker"
    words = [
        f"group {found.group}: {found.state}",
        counted(found.members, "member"),
        f"protocol {found.protocol}" if found.protocol else "no members have joined yet",
        *([f"generation {found.generation}, coordinated by {by}"] if found.generation is not None else []),
        f"offsets in {counted(found.partitions, 'partition')} of {counted(len(found.topics), 'topic')}: "
        f"`klog lag {shlex.quote(found.group)}`",
    ]
    return invocation.report(rows, footer=", ".join(words))


async def _cluster(invocation: Invocation) -> Cluster | None:
    """None where no broker can be asked: ZooKeeper knows the rest."""
    try:
        return await invocation.cluster()
    except (BrokerNotAvailable, CannotConnect):
        return None


@top_command("lag", rows="klog.admin.group_lag:LagRow")
async def lag(
    invocation: Invocation,
    names: OptionalGroups = None,
    topics: TopicFlag = None,
    only_lagging: bool = flag("--only-lagging", "Only partitions with lag."),
    sort: Literal["name", "lag", "bytes", "time"] = flag(
        "--sort WHAT", "Sort by name, or descending by lag, bytes or time.", "name"
    ),
    total: bool = flag("--total", "Show sums instead of partitions: by topic, by group and in total."),
    trend: bool = flag("--trend", "Show whether each group's lag grows or shrinks, and the time until it is gone."),
    watch: Watch = False,
    every: Every = None,
) -> Report | int:
    """Show the lag of groups: in messages (exact), in bytes and in time.

    LAG-MS is the age of the first unread message: now minus its timestamp. Where a member has never committed, the lag
    counts from the log start. Messages below the log start offset are deleted, and LAG does not count them.
    """
    from klog.admin import group_lag

    watching.check_watchable(invocation, watch=watch, every=every)
    if trend and (watch or total or only_lagging or sort != "name"):
        raise UsageError(
            "--trend shows one row per group, from what brokers remember of the last ten minutes",
            hint="leave out --watch, --total, --only-lagging and --sort",
        )
    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    if trend:
        from klog.tools.group_curves import TREND_MS, LagTrend, lag_history, trends

        rows = await group_lag.lag(cluster, session, names or (), topics=topics or ())
        now_ms = SYSTEM_CLOCK.now_ms()
        brokers = [one.broker_id for one in await cluster.brokers()]
        history, missing = await lag_history(cluster, brokers, now_ms - TREND_MS)
        notes = tuple(f"not known: {one}" for one in missing)
        found = await asyncio.to_thread(trends, history, rows, now_ms)
        return Report(invocation.command, LagTrend, found, notes=notes)

    async def look() -> Report:
        found = await group_lag.lag(cluster, session, names or (), topics=topics or ())
        shown = group_lag.totals(found) if total else found
        shown = group_lag.lagging(shown) if only_lagging else shown
        footer, notes = group_lag.in_words(found), tuple(group_lag.remarks(found))
        return invocation.report(group_lag.in_order(shown, sort), footer=footer, notes=notes)

    if watch:
        return await watching.watch(invocation, look, every)
    return await look()


@group.command("rewind", rows=CHANGES, asks=True, changes=True, acts=True)
async def rewind(
    invocation: Invocation,
    name: Group,
    to: Position | None = flag(
        "--to POSITION", "start, end, 1000, +10, -10, @2026-02-01T10:00:00Z, @-1h.", parser=parse_position
    ),
    by: str | None = flag(
        "--by SHIFT", "From what is committed: messages (-1000, +10), or the time between messages (-1h).", parser=str
    ),
    topics: TopicFlag = None,
    partitions: Partitions = None,
    force: bool = flag("--force", "Also if the group has live members: they are fenced and must rejoin."),
    create: bool = flag("--create", "Create the group if it does not exist; needs -t."),
) -> Report:
    """Set the committed offsets of a group, forward or back. Asks first, with a preview.

    Without -t it covers all topics that the group has committed in. --to counts from the log, --by from where the group
    is. An offset is an address in one partition: it needs -t and -p where there are several. Fails if the group has
    live members; check and write are atomic. An offset outside the log is moved to the log's start or end, and a note
    says so.
    """
    from klog.admin import rewind as rewinding
    from klog.coordination import groups, offset_changes

    if (to is None) == (by is None):
        raise UsageError("give one of --to POSITION and --by SHIFT")
    if by is not None and create:
        raise UsageError("--by counts from what is committed, and a new group has committed nothing")
    point = to or rewinding.parse_shift(by or "")
    chosen = all_partitions(partitions)
    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    plan = await rewinding.plan_rewind(
        cluster, session, name, point, topics=topics or (), partitions=chosen, create=create
    )
    hint = "stop them first; with --force they are fenced and must rejoin"
    found = await asyncio.to_thread(groups.read, session, name)
    if not force and not invocation.shared.dry_run:
        offset_changes.refuse_members(found, hint)
    summary = offset_changes.in_words(plan.rows)
    if not plan.changes:
        return invocation.report(plan.rows, footer=summary, notes=tuple(plan.notes))
    question = f"Rewind group {name}: {summary}"
    members, named = counted(len(found.members), "live member"), groups.in_words(found.members)
    if found.members and force:
        question += f"; {members} will be fenced: {named}"
    elif found.members:
        invocation.warn(f"it would be refused: {members}: {named}; {hint}")
    for note in plan.notes:
        invocation.say(note)
    invocation.confirm(question, invocation.report(plan.rows))
    for one in await rewinding.carry_out(cluster, session, plan, force=force, hint=hint):
        invocation.say(f"fenced: {one}")
    return invocation.report(plan.rows, footer=summary)


@group.command("delete", rows=CHANGES, asks=True, changes=True, acts=True)
async def delete(invocation: Invocation, name: Group) -> Report:
    """Delete a group without members, and its committed offsets. Asks first."""
    from klog.admin import rewind as rewinding

    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    plan = await rewinding.plan_deletion(session, name)
    await rewinding.refuse_members(session, [name])
    question = f"Delete group {name} and its offsets in {counted(len(plan.rows), 'partition')}"
    invocation.confirm(question, invocation.report(plan.rows))
    await rewinding.delete_group(cluster, session, name)
    return invocation.report(plan.rows, footer=f"group {name} deleted")


@group.command("forget", rows=CHANGES, asks=True, changes=True, acts=True)
async def forget(
    invocation: Invocation, name: Group, topic: str = flag("-t --topic TOPIC", "The topic.", ...)
) -> Report:
    """Remove the offsets that a group without members has committed in one topic, which may be gone. Asks first."""
    from klog.admin import rewind as rewinding

    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    plan = await rewinding.plan_deletion(session, name, topic)
    await rewinding.refuse_members(session, [name])
    question = f"Forget the offsets of group {name} in {counted(len(plan.rows), 'partition')} of {topic}"
    invocation.confirm(question, invocation.report(plan.rows))
    await rewinding.carry_out(cluster, session, plan)
    footer = f"group {name} has no offsets in {topic} now"
    return invocation.report(plan.rows, footer=footer)


@group.command("peek", rows="klog.admin.group_peek:PeekRow", value_optional=("--schema",))
async def peek(
    invocation: Invocation,
    name: Group,
    topics: TopicFlag = None,
    partitions: Partitions = None,
    count: int = flag("-n --count N", "Messages of each partition.", 1, min=1, max=1000),
    schema: BySchema = None,
) -> Report:
    """Show the next messages that a group would read, without moving it.

    Where the group has never committed, messages from the start of the log are shown. `--schema` shows Avro values as
    JSON, as `klog tail --schema` does.
    """
    from klog.admin import group_peek

    chosen = all_partitions(partitions)
    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    decoder = None if schema is None else await decoder_by(invocation, schema)
    rows = await group_peek.peek(cluster, session, name, topics=topics or (), partitions=chosen, count=count)
    if decoder is not None:
        rows = await asyncio.to_thread(_decoded, rows, decoder, invocation.say)
    return invocation.report(rows, footer="" if rows else f"group {name} has read everything")


def _decoded(rows: list[PeekRow], decoder: MessageDecoder, note: Callable[[str], None]) -> list[PeekRow]:
    """With values as JSON; those that cannot be decoded stay as they are, and ``note`` gets the reasons."""
    found = []
    for row in rows:
        value = decoder.of(row.value)
        if "value_error" in value:
            note(f"{row.topic}-{row.partition} at {row.offset}: {value['value_error']}")
        shown = json.dumps(value["value"], ensure_ascii=False).encode() if "value" in value else row.value
        found.append(replace(row, value=shown))
    return found


@group.command("copy", rows=CHANGES, changes=True, dry_run=True, acts=True)
async def copy(
    invocation: Invocation, name: Group, target: str = argument("NEW-GROUP", "The new group.", ...)
) -> Report:
    """Copy the offsets of a group, with their metadata, to a new group. Fails if the new group has offsets already."""
    from klog.admin import rewind as rewinding

    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    plan = await rewinding.plan_copy(cluster, session, name, target)
    await rewinding.refuse_members(session, [target])
    what = f"copy the offsets of group {name} in {counted(len(plan.rows), 'partition')} to {target}"
    invocation.end_dry_run(what, invocation.report(plan.rows))
    await rewinding.carry_out(cluster, session, plan)
    return invocation.report(plan.rows, footer=f"offsets of group {name} copied to {target}")
