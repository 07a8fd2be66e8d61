"""Filters by name that match nothing: what they name may not be there at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klog.errors import BrokerNotAvailable

if TYPE_CHECKING:
    from klog.cli.invocation import Invocation


async def check_there(
    invocation: Invocation, *, topic: str | None = None, group: str | None = None, broker: int | None = None
) -> None:
    """UnknownTopicOrPartition, GroupIdNotFound or BrokerNotAvailable for what is named and is not there.

    The error names what is similar. A broker is there while it lives, and while it has replicas.
    """
    if topic is not None:
        await (await invocation.cluster()).topic(topic)
    if group is not None:
        from klog.coordination.groups import check_known

        await asyncio.to_thread(check_known, await invocation.zookeeper(), [group])
    if broker is not None:
        cluster = await invocation.cluster()
        metadata = await cluster.metadata()
        partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
        there = {*metadata.brokers, *(replica for one in partitions for replica in one.replicas)}
        if broker not in there:
            raise BrokerNotAvailable(
                f"{cluster} does not have a broker {broker}", hint=f"brokers: {', '.join(map(str, sorted(there)))}"
            )
