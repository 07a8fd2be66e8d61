"""``klog reassign``: plan, execute, status, cancel: which brokers hold which partitions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klog.cli.command import Noun
from klog.cli.complete import topic_names
from klog.cli.flags import duration
from klog.cli.invocation import Invocation, is_terminal
from klog.errors import UsageError
from klog.render import Format, Report

if TYPE_CHECKING:
    from klog.ops.reassign import ReassignRow

reassign = Noun("reassign", "Move replicas between brokers, and change how many there are.")

ROWS = "klog.ops.reassign:ReassignRow"
WATCH_EVERY_S = 1.0

PlanFile = Annotated[Path, typer.Argument(metavar="FILE", help="A plan, as `reassign plan --file` writes it.")]
OptionalFile = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Only the partitions of this plan, those that are done too.")
]


def _brokers(words: Sequence[str] | None, flag: str) -> list[int]:
    """``1,2`` or the flag several times, as numbers."""
    try:
        return sorted({int(one) for word in words or () for one in word.split(",")})
    except ValueError:
        raise UsageError(f"{flag} {','.join(words or ())!r}: ids of brokers are wanted", hint="write 1,2,3") from None


@reassign.command("plan", rows=ROWS)
async def plan(
    invocation: Invocation,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Write the plan here, and the way back to FILE.rollback."),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topics", metavar="TOPIC,...", help="Only these topics.", autocompletion=topic_names),
    ] = None,
    brokers: Annotated[
        list[str] | None,
        typer.Option("--brokers", metavar="ID,...", help="The brokers to use; others are emptied. Else: all alive."),
    ] = None,
    remove_broker: Annotated[
        list[str] | None, typer.Option("--remove-broker", metavar="ID", help="A broker to be emptied.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", metavar="R", min=1, help="How many replicas there shall be.")
    ] = None,
) -> Report:
    """Plan which replicas go where, with the fewest moves. Nothing is changed.

    Without a flag that says what for, replicas and leaders are spread evenly over all live brokers, new ones among
    them. With --remove-broker or --replication-factor only what must move does. Where the brokers have racks, each
    partition is in as many as possible.
    """
    from klog.ops import reassign as ops

    rows = await ops.plan(
        await invocation.cluster(),
        topics=[one for word in topics or () for one in word.split(",")],
        brokers=_brokers(brokers, "--brokers"),
        removed=_brokers(remove_broker, "--remove-broker"),
        factor=replication_factor,
        file=file,
    )
    if not rows:
        return invocation.report(rows, footer="nothing has to move")
    moved = sum(len(set(row.to) - set(row.from_)) for row in rows)
    footer = f"{ops.summary(rows)}; {ops.counted_in_words(moved, 'replica')} to be filled"
    then = f"written to {file}: klog reassign execute {file}" if file else "--file FILE writes it for execute"
    return invocation.report(rows, footer=footer, notes=(then,))


@reassign.command("execute", rows=ROWS, asks=True)
async def execute(
    invocation: Invocation,
    file: PlanFile,
    throttle: Annotated[
        str | None,
        typer.Option("--throttle", metavar="RATE", help="What each broker takes in at most: 20MB/s. Ends by itself."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="DURATION", parser=duration, help="Wait so long until all of it is done."),
    ] = None,
) -> Report:
    """Begin what a plan says. Asks first. The brokers go on with it by themselves.

    A partition that is being reassigned goes to the new target instead; executed again, a plan takes the new throttle.
    """
    from klog.ops import reassign as ops
    from klog.ops import reassignment_file

    rate = _rate(throttle)
    cluster = await invocation.cluster()
    rows = await ops.preview(cluster, file)
    ops.refuse_failed(rows)
    todo = [row for row in rows if row.state != ops.DONE]
    if not todo:
        return invocation.report(rows, footer="nothing to do: all of it is as the plan wants it")
    moved = sum(len(set(row.to) - set(row.from_)) for row in todo)
    limit = f", at most {throttle} into each broker" if rate else ""
    what = f"{ops.counted_in_words(len(todo), 'partition')}, {ops.counted_in_words(moved, 'replica')} to be filled"
    question = f"Reassign {what}{limit}"
    invocation.confirm(question, invocation.report(rows))
    rollback = reassignment_file.rollback_path(file)
    if not rollback.exists():
        reassignment_file.write(rollback, {row.name: row.from_ for row in todo})
    rows = await ops.execute(cluster, rows, rate)
    if wait is not None:
        rows = await ops.wait(cluster, rows, wait)
    late = wait is not None and any(row.state not in (ops.DONE, ops.FAILED) for row in rows)
    notes = (*ops.reasons(rows), f"the way back: klog reassign execute {rollback}")
    if late:
        notes = (*notes, f"not done within {wait:g} s; it goes on: klog reassign status --watch")
    return invocation.report(rows, footer=ops.summary(rows), notes=notes, failed=late)


@reassign.command("status", rows=ROWS)
async def status(
    invocation: Invocation,
    file: OptionalFile = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it every second, until nothing is under way.")] = False,
) -> Report | None:
    """Show what is being reassigned: how much is there, what is left, when it will be done, why it stands still."""
    from klog.ops import reassign as ops

    cluster = await invocation.cluster()
    if not watch:
        return _status(invocation, await ops.status(cluster, file))
    if invocation.output in (Format.JSON, Format.YAML):
        raise UsageError(f"--watch shows many reports: {invocation.output.value} is one", hint="use -o jsonl")
    before = await ops.look(cluster)
    while True:
        if before.underway:
            await asyncio.sleep(WATCH_EVERY_S)
        now = await ops.look(cluster)
        rows = ops.rows_of(now, before)
        report = _status(invocation, rows if file is None else await ops.of_file(cluster, file, rows))
        if not now.underway:
            return report
        if is_terminal(sys.stdout):
            sys.stdout.write("\x1b[H\x1b[J")
        invocation.show(report)
        before = now


def _status(invocation: Invocation, rows: Sequence[ReassignRow]) -> Report:
    from klog.ops import reassign as ops

    return invocation.report(rows, footer=ops.summary(rows), notes=ops.reasons(rows))


@reassign.command("cancel", rows=ROWS, asks=True)
async def cancel(invocation: Invocation, file: OptionalFile = None) -> Report:
    """Take back what is under way: each partition goes back to where it was. Asks first."""
    from klog.ops import reassign as ops

    cluster = await invocation.cluster()
    rows = await ops.cancellable(cluster, file)
    if not rows:
        return invocation.report(rows, footer="nothing to cancel: nothing is being reassigned")
    invocation.confirm(
        f"Cancel the reassignment of {ops.counted_in_words(len(rows), 'partition')}", invocation.report(rows)
    )
    rows = await ops.cancel(cluster, rows)
    return invocation.report(rows, footer=ops.summary(rows), notes=ops.reasons(rows))


def _rate(text: str | None) -> int:
    from klog.ops.units import parse_rate

    if text is None:
        return 0
    rate = parse_rate(text)
    if rate.what != "bytes":
        raise UsageError(f"--throttle {text!r}: bytes a second are wanted", hint="write 20MB/s")
    return max(1, int(rate.per_second))
