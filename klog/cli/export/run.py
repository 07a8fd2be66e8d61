"""``klog export run``: what is new of topics, as files."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from klog.cli.export.noun import export, servers_of
from klog.cli.invocation import Invocation
from klog.cli.words import OptionalTopics, position_range
from klog.render import Report


@export.command("run", rows="klog.ops.export.rows:ExportedRange")
async def run(
    invocation: Invocation,
    root: Annotated[str, typer.Option("--to", metavar="ROOT", help="The export's folder; made by its first run.")],
    topics: OptionalTopics = None,
    from_range: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="POSITION", help="Where a root's first run begins, or a range; start if not given."
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="MASTER", help="Spark's master; else this machine's cores."),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", metavar="N", min=1, help="At most N messages of each partition.")
    ] = None,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="Go on where retention took messages before they were exported.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be exported, without Spark.")] = False,
) -> Report:
    """Export what is new of topics, once each, as one batch of Parquet files with its manifest.

    Without a topic: all those that the export already has. Where nothing is new it says so, without starting Spark.
    """
    from klog.spark import export as exporting

    if from_range is not None:
        position_range(from_range, "--from")
    servers = await servers_of(invocation)
    rows = await asyncio.to_thread(
        exporting.run_export,
        servers,
        topics or (),
        root,
        from_range=from_range,
        max_messages=max_messages,
        dry_run=dry_run,
        allow_gaps=allow_gaps,
        master=master,
        on_step=lambda step: invocation.detail(f"export: {step}"),
    )
    if not rows:
        return invocation.report(rows, footer=f"nothing new for {root}")
    messages = sum(row.messages or 0 for row in rows)
    done = "would be exported" if dry_run else "exported"
    return invocation.report(rows, footer=f"{messages:,} messages {done} to {root}")
