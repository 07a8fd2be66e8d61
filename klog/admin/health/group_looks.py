"""What groups own, and what they do not: asked for `klog status`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from klog.admin import groups
from klog.client.cluster import Cluster
from klog.coordination import groups as registry
from klog.coordination.group_states import COORDINATOR
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError, ZooKeeperError
from klog.names import TopicPartition
from klog.protocol.consumer_protocol import PROTOCOL_TYPE, subscribed_topics

STABLE: Final = "Stable"


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group. ``since_ms``: when its members last changed, as far as the registry tells."""

    name: str
    members: tuple[registry.Member, ...]
    idle: tuple[str, ...] = ()
    """Members that own nothing."""
    unowned: tuple[TopicPartition, ...] = ()
    """Partitions of its topics that no member owns."""
    gone: tuple[str, ...] = ()
    """Topics that its members read, and that do not exist."""
    since_ms: int = 0


async def group_looks(
    cluster: Cluster, session: ZooKeeper, topics: Mapping[str, Any], silent: Collection[int] = ()
) -> list[GroupLook]:
    """Every group; ``silent`` brokers are not asked.

    A group whose nodes cannot be read is left out: `klog group list` shows the error.
    """
    phases, found = await asyncio.gather(groups.phases(cluster, silent), asyncio.to_thread(_read, session))
    return [
        look_of(one, phases.get(name, one.phase), topics)
        for name, one in found.items()
        if not isinstance(one, ZooKeeperError)
    ]


def _read(session: ZooKeeper) -> dict[str, registry.Group | ZooKeeperError]:
    return registry.read_each(session, registry.names(session))


def look_of(group: registry.Group, phase: str, topics: Mapping[str, Any]) -> GroupLook:
    """Who owns nothing and what is not owned, of a group that has shared its partitions out."""
    look = GroupLook(group.name, group.members, since_ms=group.state.modified_ms)
    if phase != STABLE or not group.members:
        return look
    unowned = [
        TopicPartition(topic, number)
        for topic in sorted(topics_of(group))
        if topic in topics
        for number in topics[topic].partitions
        if TopicPartition(topic, number) not in group.readers
    ]
    idle = [str(one) for one in group.members if not one.partitions] if group.readers else []
    gone = sorted(topics_of(group) - topics.keys())
    return replace(look, idle=tuple(idle), unowned=tuple(unowned), gone=tuple(gone))


def topics_of(group: registry.Group) -> frozenset[str]:
    """The topics that a group's members subscribe to; of consumers that coordinate through ZooKeeper, those that they
    own partitions of."""
    found = {name.topic for name in group.readers}
    if group.state.group_protocol == COORDINATOR and group.state.protocol_type == PROTOCOL_TYPE:
        for one in group.state.members:
            try:
                found |= set(subscribed_topics(one.metadata))
            except KlogError:
                continue  # a format that only its members understand
    return frozenset(found)
