"""The topics of a copy: the one that is copied into has the partitions of the one that is copied from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from klog.errors import InvalidPartitions, UnknownTopicOrPartition

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.ops.copy import Target
    from klog.ops.copy_side import Side

BATCH_BYTES_MAX = 1_048_588
"""Kafka's default of ``max.message.bytes``, where it cannot be asked for."""


async def matching_topic(
    source: Cluster,
    target: Cluster,
    topic: str,
    into: str,
    *,
    may_grow: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> int:
    """Have the target's topic, made with as many partitions where it is missing; how many the source's has.

    Where the target's has fewer it is InvalidPartitions with what to do, or, with ``may_grow``, it is given them.
    """
    from klog.ops.topics import alter_topic, create_topic

    wanted = len((await source.topic(topic, fresh=True)).partitions)
    try:
        there = len((await target.topic(into, fresh=True)).partitions)
    except UnknownTopicOrPartition:
        made = await create_topic(target, into, partitions=wanted, if_not_exists=True)
        there = made.partitions
        if made.created:
            note(f"made topic {into} with {wanted} partitions in the target")
    if there >= wanted:
        return wanted
    if not may_grow:
        raise InvalidPartitions(
            f"topic {into} of the target has {there} partitions, and {topic} of the source has {wanted}:"
            " each is copied into the one of the same number",
            hint=f"klog topic alter {into} -p {wanted} -B {target.bootstrap}",
        )
    await alter_topic(target, into, wanted)
    note(f"topic {into} of the target has {wanted} partitions now, as in the source")
    return wanted


async def batch_bytes_max(cluster: Cluster, topic: str) -> int:
    """The largest batch that a topic takes."""
    from klog.ops.settings import describe_settings

    for one in (await describe_settings(cluster, [topic], names=["max.message.bytes"]))[topic]:
        if one.name == "max.message.bytes" and one.value is not None:
            return int(one.value)
    return BATCH_BYTES_MAX


async def open_target(side: Side, note: Callable[[str], None]) -> Target:
    """What appends to the target: exactly once where it is klog, else at least once, which is said."""
    if side.cluster.is_klog:
        from klog.ops.copy_target import ExactTarget

        return ExactTarget(side)
    from klog.ops.copy_plain import PlainTarget

    note(f"{side.bootstrap} is no klog and has no conditional append: at least once, so messages may come twice")
    return await asyncio.to_thread(PlainTarget, side)
