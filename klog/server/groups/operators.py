"""What operators ask of groups: which there are, who is in one, and to take away what one has committed.

Memory says in which phase a group is; whether it is there at all, and who holds it the other way, ZooKeeper says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.coordination import committed, group_states
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
from klog.names import TopicPartition
from klog.ops import groups as registry
from klog.ops import offset_changes
from klog.protocol.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from klog.server.groups.machine import Phase

if TYPE_CHECKING:
    from klog.server.groups.coordinator import Coordinator
    from klog.server.groups.group import Group

UNSHARED = (Phase.PREPARING, Phase.COMPLETING)
"""In these nobody knows yet who reads what."""


class Listed(NamedTuple):
    name: str
    protocol_type: str
    state: str


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    metadata: bytes = b""
    assignment: bytes = b""


class Described(NamedTuple):
    """A group that there is not is ``Dead``, without an error, as Kafka has it."""

    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class Operators:
    """Event loop only."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._zookeeper = coordinator.zookeeper

    async def list(self, states: Collection[str] = ()) -> list[Listed]:
        """The groups of our slots, by name; of these states if any are named. Raises CoordinatorNotAvailable."""
        coordinator = self._coordinator
        found = await coordinator.ask_zookeeper(_read_of_slots, self._zookeeper, coordinator.slots)
        wanted = {state.lower() for state in states}
        listed = []
        for name, group in found.items():
            kept = coordinator.find(name)
            if kept is not None and kept.group.phase is not Phase.EMPTY:
                one = Listed(name, kept.group.protocol_type, kept.group.phase.value)
            else:
                one = Listed(name, _protocol_type(group), group.phase)
            if not wanted or one.state.lower() in wanted:
                listed.append(one)
        return listed

    async def describe(self, name: str) -> Described:
        """A group and its members. Raises NotCoordinator, CoordinatorNotAvailable."""
        kept = await self._coordinator.kept(name)
        group = kept.group
        if group.phase is not Phase.EMPTY:
            return _described(group)
        if not await self._is_there(name):
            self._coordinator.forget(kept)
            return Described(Phase.DEAD.value)
        found = await self._coordinator.ask_zookeeper(registry.read, self._zookeeper, name)
        members = tuple(DescribedMember(one.member_id, None, "", one.host or "") for one in found.members)
        return Described(found.phase, _protocol_type(found), "", members)

    async def delete(self, name: str) -> None:
        """Take away a group in which nobody lives, with all it has committed. Raises what it is refused with."""
        kept = await self._coordinator.kept(name)
        if kept.group.phase is not Phase.EMPTY:
            raise NonEmptyGroup(f"group {name!r} has {len(kept.group.members)} members")
        if not await self._is_there(name):
            self._coordinator.forget(kept)
            raise GroupIdNotFound(f"there is no group {name!r}")
        try:
            await self._coordinator.ask_zookeeper(offset_changes.delete, self._zookeeper, name)
        finally:
            await self._coordinator.look_again(kept)

    async def delete_offsets(
        self, name: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, KlogError | None]:
        """Take away what a group has committed in these partitions, but for topics that its members read.

        Raises what the whole is refused with.
        """
        coordinator = self._coordinator
        kept = await coordinator.kept(name)
        group = kept.group
        if group.phase is Phase.EMPTY and not await self._is_there(name):
            coordinator.forget(kept)
            raise GroupIdNotFound(f"there is no group {name!r}")
        if group.phase is not Phase.EMPTY and group.protocol_type != PROTOCOL_TYPE:
            raise NonEmptyGroup(f"group {name!r} has members of the type {group.protocol_type!r}")
        await coordinator.check_way(kept)
        read = _subscribed(group)
        outcomes: dict[TopicPartition, KlogError | None] = {}
        for one in partitions:
            known = coordinator.broker.image.topics.get(one.topic)
            if known is None or one.partition not in known.partitions:
                outcomes[one] = UnknownTopicOrPartition(f"there is no partition {one}")
            elif one.topic in read:
                outcomes[one] = GroupSubscribedToTopic(f"members of group {name!r} read {one.topic}")
            else:
                outcomes[one] = None
        await coordinator.commits.delete(kept, [one for one, error in outcomes.items() if error is None])
        return outcomes

    async def _is_there(self, name: str) -> bool:
        """Whether anybody has held the group since it was deleted, or has committed in it."""
        return await self._coordinator.ask_zookeeper(_is_there, self._zookeeper, name)


def _is_there(zookeeper: ZooKeeper, name: str) -> bool:
    if group_states.read(zookeeper, name).way != FREE:
        return True
    return bool(committed.names(zookeeper, [name])[name] or registry.read(zookeeper, name).members)


def _read_of_slots(zookeeper: ZooKeeper, slots: Collection[int]) -> dict[str, registry.Group]:
    names = [name for name in registry.names(zookeeper) if slot_of(name) in slots]
    return registry.read_many(zookeeper, names)


def _protocol_type(group: registry.Group) -> str:
    """Of a group without members of ours: what they were, or who holds it, or nothing for one that only commits."""
    if group.state.way == COORDINATOR:
        return group.state.protocol_type
    return ZOOKEEPER if group.members or group.state.way == ZOOKEEPER else ""


def _described(group: Group) -> Described:
    is_shared = group.phase not in UNSHARED
    members = tuple(
        DescribedMember(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.host,
            one.metadata(group.protocol) if is_shared else b"",
            one.assignment if is_shared else b"",
        )
        for one in group.members
    )
    return Described(group.phase.value, group.protocol_type, group.protocol if is_shared else "", members)


def _subscribed(group: Group) -> set[str]:
    """The topics that any member wants; of what cannot be read nothing."""
    topics: set[str] = set()
    for member in group.members:
        for _, metadata in member.protocols:
            try:
                topics.update(subscribed_topics(metadata))
            except PeerError:
                continue
    return topics
