"""``klog where``: the file and the byte at which a message lies."""

from __future__ import annotations

from typing import Annotated

import typer

from klog.cli.command import top_command
from klog.cli.invocation import Invocation
from klog.cli.words import Topic
from klog.errors import KlogError
from klog.render import Report


@top_command("where", rows="klog.ops.where:Place")
async def where(
    invocation: Invocation,
    topic: Topic,
    offset: Annotated[int, typer.Argument(help="The message's offset.", min=0)],
    partition: Annotated[int, typer.Option("-p", "--partition", metavar="N", min=0, help="Its partition.")],
) -> Report:
    """Show where a message is: the offset is the address, so here are the file and the byte.

    Also which groups have read past it, and the line that dumps those bytes on the broker's host.
    """
    from klog.ops import where as places

    place = await places.where(await invocation.cluster(), topic, partition, offset)
    try:
        place = await places.with_groups(await invocation.zookeeper(), place, topic, partition, offset)
    except KlogError as error:
        invocation.detail(f"which groups are past it is not known: {error.message}")
    notes = (f"read already by: {', '.join(place.groups_past)}",) if place.groups_past else ()
    return invocation.report([place], footer=place.dump or None, notes=notes)
