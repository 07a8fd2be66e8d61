"""``klog offset``: the offsets at a position."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.words import Partitions, Topic, all_partitions, position

offset = Noun("offset", "Offsets at a position: start, end, a time.")


@offset.command("list", rows="klog.ops.offsets:OffsetRow")
async def list_offsets(
    invocation: Invocation,
    topic: Topic,
    at: Annotated[
        str, typer.Option("--at", metavar="POSITION", help="start, end, 1000, +10, -10, @2026-02-01T10:00:00Z, @-1h.")
    ] = "end",
    partitions: Partitions = None,
) -> list[Any]:
    """Show the offset of a position in each partition of a topic."""
    from klog.ops import offsets

    point = position(at, "--at")
    return await offsets.list_offsets(await invocation.cluster(), topic, point, all_partitions(partitions))
