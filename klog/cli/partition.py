"""``klog partition``: partitions, and which of them are not well."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.words import OptionalTopics

partition = Noun("partition", "Partitions and their health.")


@partition.command("list", rows="klog.ops.partitions:PartitionRow")
async def list_partitions(
    invocation: Invocation,
    topics: OptionalTopics = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Those with a replica that is not in sync.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Those without a leader.")] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Those with fewer replicas in sync than acks=all wants.")
    ] = False,
) -> list[Any]:
    """List partitions: all, or those that any of the chosen filters is about."""
    from klog.ops import partitions

    return await partitions.list_partitions(
        await invocation.cluster(),
        topics,
        under_replicated=under_replicated,
        offline=offline,
        under_min_isr=under_min_isr,
    )
