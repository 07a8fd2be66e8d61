"""What groups have committed in ``/consumers/<g>/offsets/<t>/<p>``, 0.8's registry, against what the logs hold."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klog.errors import KlogError, NoNode
from klog.names import TopicPartition
from klog.ops.check_facts import GroupOffset

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper


async def group_offsets(cluster: Cluster, session: ZooKeeper) -> list[GroupOffset]:
    """Every committed offset, by group, topic and partition, with its lag in messages as the leaders count it."""
    from klog.client import asks

    committed = await asyncio.to_thread(_committed, session)
    metadata = await cluster.metadata()
    known = [
        (group, name, offset)
        for group, name, offset in committed
        if name.topic in metadata.topics and name.partition in metadata.topics[name.topic].partitions
    ]
    rows = []
    for group in dict.fromkeys(group for group, _, _ in committed):
        questions = {name: (offset, asks.LATEST) for one, name, offset in known if one == group}
        lags = await cluster.to_leaders(questions, asks.count_messages)
        spans = await cluster.to_leaders(dict.fromkeys(questions, (asks.EARLIEST, asks.LATEST)), asks.count_messages)
        for one, name, offset in committed:
            if one != group:
                continue
            lag, span = lags.get(name), spans.get(name)
            told = span if not isinstance(span, KlogError) else None
            rows.append(
                GroupOffset(
                    group,
                    name,
                    offset,
                    told.from_offset if told is not None else None,
                    told.to_offset if told is not None else None,
                    lag.messages if lag is not None and not isinstance(lag, KlogError) else None,
                )
            )
    return rows


def _committed(session: ZooKeeper) -> list[tuple[str, TopicPartition, int]]:
    """In a thread. Nodes that are no number are passed over: any tool may have written them."""
    from klog.coordination import paths

    try:
        groups = session.children(paths.CONSUMERS)
    except NoNode:
        return []
    folders = [(group, f"{paths.CONSUMERS}/{group}/offsets") for group in groups]
    topics = session.children_many([folder for _, folder in folders])
    places = [
        (group, topic, f"{folder}/{topic}")
        for (group, folder), names in zip(folders, topics, strict=True)
        for topic in names
    ]
    partitions = session.children_many([folder for _, _, folder in places])
    leaves = [
        (group, TopicPartition(topic, int(number)), f"{folder}/{number}")
        for (group, topic, folder), numbers in zip(places, partitions, strict=True)
        for number in numbers
        if number.isascii() and number.isdigit()
    ]
    nodes = session.get_many([path for _, _, path in leaves])
    return sorted(
        (group, name, int(node.data))
        for (group, name, _), node in zip(leaves, nodes, strict=True)
        if node is not None and node.data.isdigit()
    )
