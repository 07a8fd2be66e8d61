"""``klog group``: groups of consumers, live and dead: who is in them, how far behind they are, where they go on."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from klog.cli.command import Noun
from klog.cli.complete import remember_groups
from klog.cli.flags import limit
from klog.cli.invocation import Invocation, is_terminal
from klog.cli.words import Group, OptionalGroups, Partitions, Regex, TopicFlag, all_partitions, position
from klog.errors import BrokerNotAvailable, CannotConnect, KlogError, Refused, UsageError
from klog.render import Format, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper
    from klog.ops.group_lag import LagRow
    from klog.ops.rewind import Plan

group = Noun("group", "Consumer groups: members, lag, rewind, copy, delete.")

CHANGES = "klog.ops.offset_changes:OffsetChange"
WATCH_EVERY_S = 2.0
LINES_KEPT = 4
"""Of a terminal's height: the header, what was left out, the sum, and the cursor's line."""


@group.command("list", rows="klog.ops.groups:GroupRow")
async def list_groups(
    invocation: Invocation,
    pattern: Annotated[str | None, typer.Argument(help="Only groups whose name matches, as file names do.")] = None,
    regex: Regex = False,
) -> list[Any]:
    """List groups, live and dead, of stock clients and of consumers that coordinate through ZooKeeper."""
    from klog.ops import groups

    if regex and pattern is None:
        raise UsageError("--regex needs a PATTERN")
    session = await invocation.zookeeper()
    rows = await groups.list_groups(session, pattern, regex=regex, phases=await _phases(invocation))
    if pattern is None:
        remember_groups(invocation.target, [row.group for row in rows])
    return rows


@group.command("describe", rows="klog.ops.groups:MemberRow")
async def describe(invocation: Invocation, name: Group) -> Report:
    """Show a group's members: a row a partition that one reads."""
    from klog.ops import groups

    session = await invocation.zookeeper()
    found, rows = await groups.describe_group(session, name, phases=await _phases(invocation))
    by = f"broker {found.coordinator}" if found.coordinator is not None else "no broker"
    words = [
        f"group {found.group}: {found.state}",
        f"{found.members} member{'s' if found.members != 1 else ''}",
        f"protocol {found.protocol}" if found.protocol else "nobody has joined it yet",
        *([f"generation {found.generation}, coordinated by {by}"] if found.generation is not None else []),
        f"offsets in {found.partitions} partitions of {len(found.topics)} topics: `klog group lag {found.group}`",
    ]
    return invocation.report(rows, footer=", ".join(words))


async def _phases(invocation: Invocation) -> dict[str, str]:
    """What coordinators say of their groups; nothing where no broker can be asked: ZooKeeper knows the rest."""
    from klog.ops import groups

    try:
        return await groups.phases(await invocation.cluster())
    except (BrokerNotAvailable, CannotConnect):
        return {}


@group.command("lag", rows="klog.ops.group_lag:LagRow")
async def lag(
    invocation: Invocation,
    names: OptionalGroups = None,
    topics: TopicFlag = None,
    only_lagging: Annotated[bool, typer.Option("--only-lagging", help="Only where something is unread.")] = False,
    sort: Annotated[
        Literal["name", "lag", "bytes", "time"],
        typer.Option("--sort", metavar="WHAT", help="name, or the worst first: by lag, bytes or time."),
    ] = "name",
    total: Annotated[
        bool, typer.Option("--total", help="Sums in place of partitions: by topic, by group, and of all.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C; in a pipe as JSON Lines.")
    ] = False,
    every: Annotated[
        float | None, typer.Option("--every", metavar="DURATION", parser=limit, help="How often, with --watch (2s).")
    ] = None,
) -> Report | None:
    """Show how far groups are behind: in messages (exact), in bytes, and in time.

    LAG-MS is how long the first unread message has been waiting: now minus its timestamp. Where nothing is committed
    there is no lag to tell. What an offset below the log's start has missed is gone, and not in LAG.
    """
    from klog.ops import group_lag

    if watch and invocation.output in (Format.JSON, Format.YAML):
        raise UsageError(f"--watch shows many reports: {invocation.output.value} is one", hint="use -o jsonl")
    cluster, session = await invocation.cluster(), await invocation.zookeeper()

    async def look() -> tuple[list[LagRow], str, tuple[str, ...]]:
        found = await group_lag.lag(cluster, session, names or (), topics=topics or ())
        shown = group_lag.totals(found) if total else found
        shown = group_lag.lagging(shown) if only_lagging else shown
        return group_lag.in_order(shown, sort), group_lag.in_words(found), tuple(group_lag.remarks(found))

    if not watch:
        rows, footer, notes = await look()
        return invocation.report(rows, footer=footer, notes=notes)
    await _watch(invocation, look, every or WATCH_EVERY_S)
    return None


@group.command("rewind", rows=CHANGES, asks=True)
async def rewind(
    invocation: Invocation,
    name: Group,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="POSITION", help="start, end, 1000, +10, -10, @2026-02-01T10:00:00Z, @-1h."),
    ] = None,
    topics: TopicFlag = None,
    partitions: Partitions = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also while members live: they are fenced, and have to join again.")
    ] = False,
    undo: Annotated[
        Path | None, typer.Option("--undo", metavar="FILE", help="In place of --to: take back what wrote this file.")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Also for a group that is not there yet; -t says for which topics.")
    ] = False,
) -> Report:
    """Set where a group goes on reading: forward or back, in all topics it has committed in, or in those named.

    Asks first, with a preview. Refused while members live; the check and the write are one step. What the log does not
    have is moved to its start or its end, with a word about it. An undo file is written first.
    """
    from klog.ops import offset_changes
    from klog.ops import rewind as rewinding

    if (to is None) == (undo is None):
        raise UsageError("where to? --to POSITION, or --undo FILE, and not both")
    if undo is not None and (topics or partitions or create):
        raise UsageError("an undo file says which partitions: -t, -p and --create do not go with it")
    point = position(to, "--to") if to is not None else None
    chosen = all_partitions(partitions)
    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    if point is not None:
        plan = await rewinding.plan_rewind(
            cluster, session, name, point, topics=topics or (), partitions=chosen, create=create
        )
    else:
        assert undo is not None
        plan = await _plan_undo(cluster, session, name, undo)
    hint = "stop them first, or --force: they are fenced, and have to join again"
    members = await rewinding.members_of(session, name)
    if members and not force:
        await rewinding.refuse_members(session, [name], hint)
    summary = offset_changes.in_words(plan.rows)
    if not plan.changes:
        return invocation.report(plan.rows, footer=summary, notes=tuple(plan.notes))
    question = f"Rewind group {name}: {summary}"
    if members:
        question += f"; {rewinding.fencing_in_words(members)}"
    _say(invocation, plan.notes)
    invocation.confirm(question, invocation.report(plan.rows))
    kept = write_undo(invocation, plan)
    fenced = await rewinding.carry_out(cluster, session, plan, force=force, hint=hint)
    notes = receipt(invocation, *(f"fenced: {one}" for one in fenced), kept)
    return invocation.report(plan.rows, footer=summary, notes=notes)


@group.command("delete", rows=CHANGES, asks=True)
async def delete(invocation: Invocation, name: Group) -> Report:
    """Delete a group without members: what it has committed, and that it was there. Asks first."""
    from klog.ops import rewind as rewinding

    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    plan = await rewinding.plan_deletion(session, name)
    await rewinding.refuse_members(session, [name])
    question = f"Delete group {name}, with its offsets in {len(plan.rows)} partitions"
    invocation.confirm(question, invocation.report(plan.rows))
    kept = [write_undo(invocation, plan)] if plan.rows else []
    await rewinding.delete_group(cluster, session, name)
    return invocation.report(plan.rows, footer=f"group {name} is deleted", notes=receipt(invocation, *kept))


@group.command("copy", rows=CHANGES)
async def copy(
    invocation: Invocation,
    name: Group,
    target: Annotated[str, typer.Argument(metavar="NEW-GROUP", help="The group that gets the same offsets.")],
) -> Report:
    """Give a new group the offsets of another, with their metadata; refused where it has any already."""
    from klog.ops import rewind as rewinding

    cluster, session = await invocation.cluster(), await invocation.zookeeper()
    plan = await rewinding.plan_copy(cluster, session, name, target)
    await rewinding.refuse_members(session, [target])
    await rewinding.carry_out(cluster, session, plan)
    return invocation.report(plan.rows, footer=f"group {target} goes on where {name} stands")


def receipt(invocation: Invocation, *lines: str) -> tuple[str, ...]:
    """What a report notes of a change. Scripts get it too, on stderr: notes are left out where the output is for them,
    and no column says who was fenced and where the way back is.
    """
    if not invocation.output.is_structured and invocation.output is not Format.TSV:
        return lines
    _say(invocation, lines)
    return ()


def write_undo(invocation: Invocation, plan: Plan) -> str:
    """The undo file is written; what tells where it is and how it is used."""
    from klog.cli.target import klog_home
    from klog.ops import rewind as rewinding

    path = rewinding.undo_path(klog_home(), plan.group)
    rewinding.write_undo(path, plan)
    group, undo = shlex.quote(plan.group), f"--undo {shlex.quote(str(path))}"
    # A name that begins as a flag does is to stand behind all flags.
    words = f"{undo} -- {group}" if plan.group.startswith("-") else f"{group} {undo}"
    return f"the way back: klog group rewind {words}"


def _say(invocation: Invocation, notes: Sequence[str]) -> None:
    for note in notes:
        invocation.say(note)


async def _plan_undo(cluster: Cluster, session: ZooKeeper, name: str, path: Path) -> Plan:
    from klog.ops import offset_files
    from klog.ops import rewind as rewinding

    lines, bad = offset_files.read(path)
    others = [one for one in offset_files.groups_in(lines) if one != name]
    if others:
        raise UsageError(f"{path} is of group {others[0]!r}, not of {name!r}")
    plans, missing = await rewinding.plan_lines(cluster, session, lines)
    if missing and plans and not bad:  # a topic has been deleted since
        raise Refused(
            f"{path} cannot be taken back: {missing[0]}",
            hint=f"what is left of it: klog offset import --skip-bad {shlex.quote(str(path))}",
        )
    if bad or missing or not plans:
        raise UsageError(f"{path} cannot be taken back: {(*bad, *missing, 'it names no offsets')[0]}")
    return plans[0]


async def _watch(invocation: Invocation, look: Callable[[], Any], every_s: float) -> None:
    """Until somebody stops it. A terminal shows the last look, as much of it as it has lines for."""
    live = is_terminal(sys.stdout) and invocation.output in (Format.TABLE, Format.WIDE)
    if not live and invocation.shared.output is None:
        invocation.shared = replace(invocation.shared, output=Format.JSONL)
    loop = asyncio.get_running_loop()
    seen = False
    while True:
        due = loop.time() + every_s
        try:
            rows, footer, notes = await look()
        except KlogError as error:
            if not (seen and error.retriable):
                raise
            invocation.warn(error.message)  # who watches a cluster wants to see it come back, too
            await asyncio.sleep(max(0.0, due - loop.time()))
            continue
        seen = True
        if live:
            room = max(1, shutil.get_terminal_size().lines - LINES_KEPT - len(notes))
            hidden = len(rows) - room
            notes = (*((f"{hidden} more",) if hidden > 0 else ()), *notes)
            sys.stdout.write("\x1b[H\x1b[J")
            rows = rows[:room]
        invocation.show(invocation.report(rows, footer=footer, notes=notes))
        await asyncio.sleep(max(0.0, due - loop.time()))
