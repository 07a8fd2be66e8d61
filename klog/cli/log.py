"""``klog log``: segment files, without a broker. The one noun that reads a broker's files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klog.cli.arguments import Partitions, all_partitions
from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.errors import UsageError
from klog.render import Report
from klog.render.counts import counted

log = Noun("log", "Dump, verify and repair segment files, merge state-change logs; needs no broker.")

ROWS = "klog.tools.log_files:LogRow"

LogPath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A segment file, a partition's folder or a log directory.")
]


@log.command("dump", rows=ROWS, connects=False)
def dump(
    invocation: Invocation,
    path: LogPath,
    from_offset: Annotated[
        int | None,
        typer.Option("--from", metavar="OFFSET", min=0, help="Begin with the batch that contains this offset."),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to", metavar="OFFSET", min=0, help="End before this offset.")
    ] = None,
) -> Report:
    """Show one row per batch, and one per address range without a valid batch."""
    from klog.tools import log_files

    if from_offset is not None and to_offset is not None and from_offset >= to_offset:
        raise UsageError(f"--from must be below --to, got {from_offset} and {to_offset}")
    return invocation.report(log_files.dump(path, from_offset=from_offset, to_offset=to_offset))


@log.command("verify", rows=ROWS, connects=False)
def verify(invocation: Invocation, path: LogPath) -> Report:
    """Check every batch. One row per run of valid batches in a file, and one per address range without a valid batch.

    Exit 1 on any damage.
    """
    from klog.tools import log_files

    rows = list(log_files.verify(path))
    faults = sum(row.is_fault for row in rows)
    messages = sum(row.messages or 0 for row in rows)
    found = (
        f"{counted(faults, 'damaged range')}, {counted(messages, 'valid message')}"
        if faults
        else f"{counted(messages, 'message')}, no damage"
    )
    return invocation.report(rows, failed=faults > 0, footer=found)


@log.command("repair", rows=ROWS, connects=False, asks=True)
def repair(invocation: Invocation, path: LogPath) -> Report:
    """Repair damaged logs: truncate a torn end, and turn a damaged range into a recorded hole.

    Asks first. The damaged bytes are kept beside the log, and every valid batch stays. Fails while a broker uses the
    log.
    """
    from klog.tools import log_repair

    plan = log_repair.plan_repair(path)
    if not plan.rows:
        return invocation.report([], footer="nothing to repair")
    where = f"{counted(len(plan.rows), 'range')} in {counted(len(plan.folders), 'folder')}"
    question = f"Repair {where} ({counted(plan.kept_messages, 'message')} stay)"
    invocation.confirm(question, invocation.report(plan.rows))
    return invocation.report(log_repair.apply_repair(plan))


@log.command("merge-state", rows="klog.tools.merge_state:StateRow", connects=False)
def merge_state(
    invocation: Invocation,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="State-change logs of one or more brokers.")],
    topics: Annotated[
        list[str] | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Only lines about this topic.")
    ] = None,
    partitions: Partitions = None,
    kinds: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Only lines of this kind, as leader-elected.")
    ] = None,
) -> Report:
    """Merge the state-change logs of brokers, by time and then by epoch.

    Each broker writes state-change.log into its first log directory. An invalid line becomes a failed row.
    """
    from klog.tools import merge_state as merging

    rows = merging.merge_state(files, topics=topics, partitions=all_partitions(partitions), kinds=kinds)
    return invocation.report(rows)
