"""Maintenance of an export: list its batches, merge them, remove unused files."""

from __future__ import annotations

import asyncio

from klog.cli.export.noun import Root, export
from klog.cli.flags import duration, flag
from klog.cli.invocation import Invocation
from klog.cli.progress import counting
from klog.errors import UsageError
from klog.names import counted
from klog.render import Report


@export.command("list", rows="klog.export.listing:ExportedBatch", connects=False)
async def list_batches(
    invocation: Invocation,
    root: Root,
    parts: bool = flag("--parts", "Show merged batches as they were committed, one row each."),
) -> Report:
    """List the batches of an export from its manifests. Needs no broker."""
    from klog.export import listing

    rows = await asyncio.to_thread(lambda: list(listing.list_batches(root, parts=parts)))
    messages, size = sum(row.messages for row in rows), sum(row.bytes for row in rows)
    return invocation.report(rows, footer=f"{counted(messages, 'message')}, {size:,} bytes")


@export.command("compact", rows="klog.export.compact:CompactedBatches", connects=False)
async def compact(
    invocation: Invocation,
    root: Root,
    below: str | None = flag("--below SIZE", "Merge neighbouring batches smaller than this (128MiB)."),
    batches: str | None = flag("--batches A-B", "Merge these batches, whatever their size."),
    dry_run: bool = flag("--dry-run", "Show what would be merged."),
) -> Report:
    """Merge batches into fewer, larger files, atomically. Offsets and counts stay the same.

    Other runs may continue meanwhile. Replaced files stay until `klog export gc`.
    """
    from klog.config.units import parse_size
    from klog.export import compact as compacting

    if below is not None and batches is not None:
        raise UsageError("--below and --batches exclude each other")
    async with counting(invocation, "bytes") as count:
        rows = await asyncio.to_thread(
            compacting.compact,
            root,
            below_bytes=compacting.BELOW_BYTES if below is None else parse_size(below),
            batches=None if batches is None else compacting.parse_batches(batches),
            dry_run=dry_run,
            on_step=lambda step: invocation.detail(f"compact: {step}"),
            count=count,
        )
    if not rows:
        return invocation.report(rows, footer=f"nothing to merge in {root}")
    before = sum(row.files_before for row in rows)
    now = "would be fewer" if dry_run else f"are {sum(row.files or 0 for row in rows):,} now"
    return invocation.report(rows, footer=f"{counted(before, 'file')} {now}")


@export.command("gc", rows="klog.export.gc:Garbage", connects=False, asks=True)
async def collect(
    invocation: Invocation,
    root: Root,
    older_than: float = flag(
        "--older-than DURATION", "Only files not modified for this long (24h).", "24h", parser=duration
    ),  # type: ignore[assignment]  # parsed as if it had been given
) -> Report:
    """Remove unused files: leftovers of killed runs and files that a compaction replaced. Asks first."""
    from klog.export import gc

    rows = await asyncio.to_thread(gc.find_garbage, root, older_than_s=older_than)
    if not rows:
        return invocation.report(rows, footer=f"nothing to remove from {root}")
    size = sum(row.bytes for row in rows)
    invocation.confirm(
        f"Remove {counted(len(rows), 'folder or file', 'folders and files')}, {size:,} bytes, from {root}",
        invocation.report(rows),
    )
    async with counting(invocation, "bytes") as count:
        removed = await asyncio.to_thread(gc.collect, root, rows, count=count)
    return invocation.report(removed, footer=f"removed {sum(row.bytes for row in removed):,} bytes")
