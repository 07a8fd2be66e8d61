"""``klog group``: groups of consumers, live and dead: who is in them, how far behind they are."""

from __future__ import annotations

import asyncio
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from klog.cli.command import Noun
from klog.cli.complete import remember_groups
from klog.cli.flags import limit
from klog.cli.invocation import Invocation, is_terminal
from klog.cli.words import Group, OptionalGroups, Regex, TopicFlag
from klog.errors import KlogError, UsageError
from klog.render import Format, Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.ops.group_lag import LagRow

group = Noun("group", "Groups of consumers: list, describe, lag, rewind, copy, delete.")

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
    rows = await groups.list_groups(await invocation.zookeeper(), pattern, regex=regex)
    if pattern is None:
        remember_groups(invocation.target, [row.group for row in rows])
    return rows


@group.command("describe", rows="klog.ops.groups:MemberRow")
async def describe(invocation: Invocation, name: Group) -> Report:
    """Show a group's members: a row a partition that one reads."""
    from klog.ops import groups

    found, rows = await groups.describe_group(await invocation.zookeeper(), name)
    by = f"broker {found.coordinator}" if found.coordinator is not None else "no broker"
    words = [
        f"group {found.group}: {found.state}",
        f"{found.members} member{'s' if found.members != 1 else ''}",
        f"protocol {found.protocol}" if found.protocol else "nobody has joined it yet",
        *([f"generation {found.generation}, coordinated by {by}"] if found.generation is not None else []),
        f"offsets in {found.partitions} partitions of {len(found.topics)} topics: `klog group lag {found.group}`",
    ]
    return invocation.report(rows, footer=", ".join(words))


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
        float, typer.Option("--every", metavar="DURATION", parser=limit, help="How often, with --watch.")
    ] = WATCH_EVERY_S,
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
    await _watch(invocation, look, every)
    return None


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
