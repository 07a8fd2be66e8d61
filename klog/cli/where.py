"""``klog where``: the file and the byte at which a message lies."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from klog.cli.arguments import Topic
from klog.cli.command import top_command
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.render import Report


@top_command("where", rows="klog.tools.where:Place")
async def where(
    invocation: Invocation,
    topic: Topic,
    offset: int = argument("OFFSET", "Offset of the message.", ..., min=0),
    partition: int = flag("-p --partition N", "Partition of the message.", ..., min=0),
    root: str | None = flag("--export ROOT", "Also name the batch of this export or table."),
) -> Report:
    """Show the file and byte position of a message.

    Also shows the groups that have read past it, and the command that dumps those bytes on the broker's host. A row of
    an export or table has the topic, partition and offset to ask with; --export goes the other way.
    """
    from klog.coordination import groups
    from klog.tools import where as places

    one = TopicPartition(topic, partition)
    place = await places.where(await invocation.cluster(), topic, partition, offset)
    try:
        past = await asyncio.to_thread(groups.past, await invocation.zookeeper(), one, offset)
        place = replace(place, groups_past=past)
    except KlogError as error:
        invocation.detail(f"cannot tell which groups have read it: {error.message}")
    notes = [f"already read by: {', '.join(place.groups_past)}"] if place.groups_past else []
    if root is not None:
        from klog.export.listing import batch_with, commit_of
        from klog.spark.running.hadoop import register_stores

        register_stores()  # ROOT may be in Hadoop's file systems
        found = await asyncio.to_thread(batch_with, root, one, offset)
        place = replace(place, batch=None if found is None else found.batch)
        if found is None:
            notes.append(f"not in {root}")
        else:
            notes.append(
                f"in batch {found.batch} of {root}, of run {found.run}, committed at {found.committed_at:%F %T} UTC"
            )
            commit = await asyncio.to_thread(commit_of, root, found.batch)
            notes += [] if commit is None else [f"the table's own commit: {commit}"]
    return invocation.report([place], footer=place.dump or None, notes=tuple(notes))
