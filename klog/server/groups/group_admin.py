"""Operators' requests about groups: list, describe, delete a group, delete committed offsets.

The phase of a group is known in memory; ZooKeeper knows whether it exists, and whether consumers that coordinate
through ZooKeeper use it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from klog.coordination import committed, group_states, offset_changes
from klog.coordination import groups as registry
from klog.coordination.acts import Actor
from klog.coordination.group_slots import slot_of
from klog.coordination.group_states import COORDINATOR, FREE, ZOOKEEPER
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    KlogError,
    NonEmptyGroup,
    PeerError,
    UnknownTopicOrPartition,
)
from klog.groups.group import Group
from klog.groups.phases import Phase
from klog.names import TopicPartition, counted
from klog.protocol.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from klog.server.groups.commits import Commits
from klog.server.groups.group_cache import GroupCache

UNSHARED = (Phase.PREPARING, Phase.COMPLETING)
"""Phases in which the partitions are not assigned yet."""
DEAD: Final = {"group_state": Phase.DEAD.value, "protocol_type": "", "protocol_data": "", "members": ()}
OF_ZOOKEEPER: Final = {"group_instance_id": None, "client_id": "", "member_metadata": b"", "member_assignment": b""}
"""What is not known of a member that coordinates through ZooKeeper."""


class GroupAdmin:
    """Event loop only."""

    def __init__(self, cache: GroupCache, commits: Commits) -> None:
        self._cache = cache
        self._commits = commits

    async def list(self, states: Collection[str] = ()) -> list[dict[str, Any]]:
        """The groups of our slots, by name, as ListGroups has them; only those in one of ``states`` if any.

        Raises CoordinatorNotAvailable.
        """
        found = await self._cache.call(_read_of_slots, self._cache.slots)
        wanted = {state.lower() for state in states}
        listed = []
        for name, group in found.items():
            cached = self._cache.find(name)
            if cached is not None and cached.group.phase is not Phase.EMPTY:
                protocol_type, state = cached.group.protocol_type, cached.group.phase.value
            else:
                protocol_type, state = _protocol_type(group), group.phase
            if not wanted or state.lower() in wanted:
                listed.append({"group_id": name, "protocol_type": protocol_type, "group_state": state})
        return listed

    async def describe(self, name: str) -> dict[str, Any]:
        """A group and its members, as DescribeGroups has them. One that does not exist is ``Dead``, as in Kafka.

        Raises NotCoordinator, CoordinatorNotAvailable.
        """
        cached = await self._cache.load(name)
        group = cached.group
        if group.phase is not Phase.EMPTY:
            return _described(group)
        if not await self._exists(name):
            self._cache.forget(cached)
            return DEAD
        found = await self._cache.call(registry.read, name)
        members = [{**OF_ZOOKEEPER, "member_id": one.member_id, "client_host": one.host or ""} for one in found.members]
        return {**DEAD, "group_state": found.phase, "protocol_type": _protocol_type(found), "members": members}

    def heartbeats_ms(self, name: str) -> dict[str, int | None]:
        """Member -> milliseconds since its last heartbeat or commit; None while it waits for a rebalance.

        Empty for a group that is not in memory: it is not loaded for this. Raises NotCoordinator.
        """
        self._cache.holder(name)
        cached = self._cache.find(name)
        if cached is None:
            return {}
        return {one.member_id: one.heartbeat_ms(self._cache.now_s) for one in cached.group.members}

    async def delete(self, name: str, actor: Actor) -> None:
        """Delete a group without members, with its offsets. Raises NonEmptyGroup, GroupIdNotFound, other KlogError."""
        cached = await self._cache.load(name)
        if cached.group.phase is not Phase.EMPTY:
            raise NonEmptyGroup(f"group {name!r} has {counted(len(cached.group.members), 'member')}")
        if not await self._exists(name):
            self._cache.forget(cached)
            raise GroupIdNotFound(f"group {name!r} does not exist")
        try:
            await self._cache.call(offset_changes.delete, name, actor)
        finally:
            await self._cache.refresh(cached)

    async def delete_offsets(
        self, name: str, partitions: Sequence[TopicPartition], actor: Actor
    ) -> dict[TopicPartition, KlogError | None]:
        """Delete what a group has committed in these partitions, except in topics that its members read.

        Partition -> error. Raises a KlogError that concerns the whole request.
        """
        cached = await self._cache.load(name)
        group = cached.group
        if group.phase is Phase.EMPTY and not await self._exists(name):
            self._cache.forget(cached)
            raise GroupIdNotFound(f"group {name!r} does not exist")
        if group.phase is not Phase.EMPTY and group.protocol_type != PROTOCOL_TYPE:
            raise NonEmptyGroup(f"group {name!r} has members of the type {group.protocol_type!r}")
        await self._cache.check_without_streams(cached)
        read = _subscribed(group)
        outcomes: dict[TopicPartition, KlogError | None] = {}
        for one in partitions:
            known = self._cache.image.topics.get(one.topic)
            if known is None or one.partition not in known.partitions:
                outcomes[one] = UnknownTopicOrPartition(f"partition {one} does not exist")
            elif one.topic in read:
                outcomes[one] = GroupSubscribedToTopic(f"members of group {name!r} read {one.topic}")
            else:
                outcomes[one] = None
        await self._commits.delete(cached, [one for one, error in outcomes.items() if error is None], actor)
        return outcomes

    async def _exists(self, name: str) -> bool:
        """Whether the group was used since it was last deleted, or has committed offsets."""
        return await self._cache.call(_exists, name)


def _exists(zookeeper: ZooKeeper, name: str) -> bool:
    if group_states.read(zookeeper, name).group_protocol != FREE:
        return True
    return bool(committed.names(zookeeper, [name])[name] or registry.read(zookeeper, name).members)


def _read_of_slots(zookeeper: ZooKeeper, slots: Collection[int]) -> dict[str, registry.Group]:
    names = [name for name in registry.names(zookeeper) if slot_of(name) in slots]
    return registry.read_many(zookeeper, names)


def _protocol_type(group: registry.Group) -> str:
    """The protocol type of a group without members: its last one, ``zookeeper``, or "" for one that only commits."""
    if group.state.group_protocol == COORDINATOR:
        return group.state.protocol_type
    return ZOOKEEPER if group.members or group.state.group_protocol == ZOOKEEPER else ""


def _described(group: Group) -> dict[str, Any]:
    is_shared = group.phase not in UNSHARED
    return {
        "group_state": group.phase.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol if is_shared else "",
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.instance_id,
                "client_id": one.client_id,
                "client_host": one.host,
                "member_metadata": one.metadata(group.protocol) if is_shared else b"",
                "member_assignment": one.assignment if is_shared else b"",
            }
            for one in group.members
        ],
    }


def _subscribed(group: Group) -> set[str]:
    """The topics to which any member subscribes; none for members with unreadable metadata."""
    topics: set[str] = set()
    for member in group.members:
        for _, metadata in member.protocols:
            try:
                topics.update(subscribed_topics(metadata))
            except PeerError:
                continue
    return topics
