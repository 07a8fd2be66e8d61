"""What is done with an export that is there: how far it is behind, and whether it is whole."""

from __future__ import annotations

import asyncio

from klog.cli.export.noun import Root, export, servers_of
from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.cli.progress import counting
from klog.names import counted
from klog.render import Report


@export.command("status", rows="klog.export.rows:ExportStatus")
async def status(
    invocation: Invocation,
    root: Root,
    max_lag: int | None = flag(
        "--max-lag N", "Exit 1 if a partition lags by more than N messages, or if any are lost.", min=0
    ),
) -> Report:
    """Show the lag of an export, and the messages that retention deleted before they were exported."""
    from klog.export import status as export_status

    servers = await servers_of(invocation)
    rows = await asyncio.to_thread(export_status.status, servers, root)
    behind = max((row.lag or 0 for row in rows), default=0)
    late = max_lag is not None and behind > max_lag
    footer = f"a partition lags by {counted(behind, 'message')}; the limit is {max_lag:,}" if late else None
    lost = tuple(export_status.losses(rows))
    return invocation.report(rows, notes=lost, footer=footer, failed=late or (max_lag is not None and bool(lost)))


@export.command("verify", rows="klog.export.rows:ExportCheck")
async def verify(
    invocation: Invocation,
    root: Root,
    without_brokers: bool = flag("--without-brokers", "Check only files and manifests; needs no broker."),
) -> Report:
    """Count an export again, and compare it with its manifests and the brokers. Exit 1 on any problem."""
    from klog.export import verify as export_verify

    servers = None if without_brokers else await servers_of(invocation)
    async with counting(invocation, "batches") as count:
        return invocation.report(await asyncio.to_thread(export_verify.verify, servers, root, count))
