"""``klog where``: the file and the byte at which a message lies."""

from __future__ import annotations

from typing import Annotated

import typer

from klog.cli.arguments import Topic
from klog.cli.command import top_command
from klog.cli.invocation import Invocation
from klog.errors import KlogError
from klog.render import Report


@top_command("where", rows="klog.tools.where:Place")
async def where(
    invocation: Invocation,
    topic: Topic,
    offset: Annotated[int, typer.Argument(help="Offset of the message.", min=0)],
    partition: Annotated[int, typer.Option("-p", "--partition", metavar="N", min=0, help="Partition of the message.")],
) -> Report:
    """Show the file and byte position of a message.

    Also shows the groups that have read past it, and the command that dumps those bytes on the broker's host.
    """
    from klog.tools import where as places

    place = await places.where(await invocation.cluster(), topic, partition, offset)
    try:
        place = await places.with_groups(await invocation.zookeeper(), place, topic, partition, offset)
    except KlogError as error:
        invocation.detail(f"cannot tell which groups have read it: {error.message}")
    notes = (f"already read by: {', '.join(place.groups_past)}",) if place.groups_past else ()
    return invocation.report([place], footer=place.dump or None, notes=notes)
