"""``klog log``: segment files, without a broker. The one noun that reads a broker's files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.words import Partitions, all_partitions
from klog.errors import UsageError
from klog.render import Report

log = Noun("log", "Dump, verify and repair segment files, merge state-change logs; no broker needed.")

ROWS = "klog.tools.log_files:LogRow"

LogPath = Annotated[Path, typer.Argument(metavar="PATH", help="A segment file, a partition's folder or a log dir.")]


@log.command("dump", rows=ROWS, connects=False)
def dump(
    invocation: Invocation,
    path: LogPath,
    from_offset: Annotated[
        int | None, typer.Option("--from", metavar="OFFSET", min=0, help="From the batch that holds this offset.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to", metavar="OFFSET", min=0, help="Up to, not with, this offset.")
    ] = None,
) -> Report:
    """Show a row a batch, and one for each stretch of addresses that holds none."""
    from klog.tools import log_files

    if from_offset is not None and to_offset is not None and from_offset >= to_offset:
        raise UsageError(f"--from {from_offset} is not before --to {to_offset}")
    return invocation.report(log_files.dump(path, from_offset=from_offset, to_offset=to_offset))


@log.command("verify", rows=ROWS, connects=False)
def verify(invocation: Invocation, path: LogPath) -> Report:
    """Check every batch; a row for each run of good ones in a file, and for each stretch that holds none.

    Exit 1 where anything is damaged.
    """
    from klog.tools import log_files

    rows = list(log_files.verify(path))
    faults = sum(row.is_fault for row in rows)
    messages = sum(row.messages or 0 for row in rows)
    found = (
        f"{faults} damaged stretches, {messages:,} messages are good" if faults else f"{messages:,} messages, all good"
    )
    return invocation.report(rows, failed=faults > 0, footer=found)


@log.command("repair", rows=ROWS, connects=False, asks=True)
def repair(invocation: Invocation, path: LogPath) -> Report:
    """Make damaged logs readable again: a torn end is cut, a damaged stretch becomes a recorded hole.

    Asks first. The damaged bytes are kept beside the log, every good batch stays. Refused while a broker has it.
    """
    from klog.tools import log_repair

    plan = log_repair.plan_repair(path)
    if not plan.rows:
        return invocation.report([], footer="nothing to repair")
    question = (
        f"Repair {len(plan.rows)} stretches in {len(plan.folders)} folders ({plan.kept_messages:,} messages stay)"
    )
    invocation.confirm(question, invocation.report(plan.rows))
    return invocation.report(log_repair.apply_repair(plan))


@log.command("merge-state", rows="klog.tools.merge_state:StateRow", connects=False)
def merge_state(
    invocation: Invocation,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="State-change logs, of one broker or several.")],
    topics: Annotated[
        list[str] | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Only lines about this topic.")
    ] = None,
    partitions: Partitions = None,
    kinds: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Only lines of this kind: leader-elected.")
    ] = None,
) -> Report:
    """Show the state-change logs of brokers in one order: by time, and then by epoch.

    A broker writes state-change.log in its first log dir. A line that is none is a failed row.
    """
    from klog.tools import merge_state as merging

    rows = merging.merge_state(files, topics=topics, partitions=all_partitions(partitions), kinds=kinds)
    return invocation.report(rows)
