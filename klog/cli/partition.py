"""``klog partition``: partitions, and which of them are not well."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from klog.cli.arguments import OptionalTopics
from klog.cli.command import Noun
from klog.cli.invocation import Invocation

partition = Noun("partition", "List partitions, and find unhealthy ones.")


@partition.command("list", rows="klog.admin.partitions:PartitionRow")
async def list_partitions(
    invocation: Invocation,
    topics: OptionalTopics = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with a replica that is not in sync.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Only partitions without a leader.")] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option("--under-min-isr", help="Only partitions with fewer in-sync replicas than min.insync.replicas."),
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option("--at-min-isr", help="Only partitions with exactly min.insync.replicas in-sync replicas."),
    ] = False,
) -> list[Any]:
    """List partitions: all, or those that match any of the given filters."""
    from klog.admin import partitions

    return await partitions.list_partitions(
        await invocation.cluster(),
        topics,
        under_replicated=under_replicated,
        offline=offline,
        under_min_isr=under_min_isr,
        at_min_isr=at_min_isr,
    )
