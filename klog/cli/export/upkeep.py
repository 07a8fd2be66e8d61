"""What keeps an export in order: its batches, fewer and larger files, and what belongs to nobody."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from klog.cli.export.noun import Root, export
from klog.cli.flags import duration
from klog.cli.invocation import Invocation
from klog.errors import UsageError
from klog.render import Report


@export.command("list", rows="klog.ops.export.listing:ExportedBatch", connects=False)
async def list_batches(
    invocation: Invocation,
    root: Root,
    parts: Annotated[
        bool, typer.Option("--parts", help="Batches that were merged as they were committed, each with its own row.")
    ] = False,
) -> Report:
    """List the batches of an export, as its manifests have them. Asks no broker."""
    from klog.ops.export import listing

    rows = await asyncio.to_thread(lambda: list(listing.list_batches(root, parts=parts)))
    messages, size = sum(row.messages for row in rows), sum(row.bytes for row in rows)
    return invocation.report(rows, footer=f"{messages:,} messages, {size:,} bytes")


@export.command("compact", rows="klog.ops.export.compact:CompactedBatches", connects=False)
async def compact(
    invocation: Invocation,
    root: Root,
    below: Annotated[
        str | None,
        typer.Option("--below", metavar="SIZE", help="Merge neighbours that are smaller than this (128MiB)."),
    ] = None,
    batches: Annotated[
        str | None, typer.Option("--batches", metavar="A-B", help="Merge these batches, whatever their size.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be merged.")] = False,
) -> Report:
    """Merge batches into fewer, larger files, in one step. Offsets, chain and counts are kept.

    Runs may go on meanwhile. What was replaced is kept until `klog export gc`.
    """
    from klog.ops.export import compact as compacting
    from klog.ops.units import parse_size

    if below is not None and batches is not None:
        raise UsageError("--below chooses batches by their size, --batches names them: one of the two")
    rows = await asyncio.to_thread(
        compacting.compact,
        root,
        below_bytes=compacting.BELOW_BYTES if below is None else parse_size(below),
        batches=None if batches is None else compacting.parse_batches(batches),
        dry_run=dry_run,
        on_step=lambda step: invocation.detail(f"compact: {step}"),
    )
    if not rows:
        return invocation.report(rows, footer=f"nothing to merge in {root}")
    before = sum(row.files_before for row in rows)
    now = "would be fewer" if dry_run else f"are {sum(row.files or 0 for row in rows):,} now"
    return invocation.report(rows, footer=f"{before:,} files {now}")


@export.command("gc", rows="klog.ops.export.gc:Rubbish", connects=False, asks=True)
async def collect(
    invocation: Invocation,
    root: Root,
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than", metavar="DURATION", parser=duration, help="Only what nobody has touched for so long (24h)."
        ),
    ] = "24h",  # type: ignore[assignment]  # parsed as if it had been given
) -> Report:
    """Remove what belongs to nobody: left by killed runs, never committed, replaced by compaction. Asks first."""
    from klog.ops.export import gc

    rows = await asyncio.to_thread(gc.rubbish, root, older_than_s=older_than)
    if not rows:
        return invocation.report(rows, footer=f"nothing to remove from {root}")
    size = sum(row.bytes for row in rows)
    invocation.confirm(f"Remove {len(rows):,} folders and files, {size:,} bytes, from {root}", invocation.report(rows))
    removed = await asyncio.to_thread(gc.collect, root, rows)
    return invocation.report(removed, footer=f"removed {sum(row.bytes for row in removed):,} bytes")
