"""Members of the brokers' protocol in 0.8's registry: ids and owners, for ZooKeeper-era tools and `klog zk` to see.

    /consumers/<g>/ids/<member id>    (e) what it subscribes to, a thread for each topic
    /consumers/<g>/owners/<t>/<p>     (e) <member id>-0

Written behind: nothing waits for it, and no decision rests on it. What is to be seen is compared with what is there,
and the difference written in multis behind the fence of the slot (rule G1) and, where something is made, of the group.
Nodes of another session, of the coordinator before us, are replaced (rule Z1). They go with our session, so what a dead
coordinator has shown is gone with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from klog.coordination import consumers, paths
from klog.coordination.consumers import ConsumerEntry
from klog.coordination.group_slots import SlotHolder
from klog.coordination.group_states import COORDINATOR, GroupState
from klog.coordination.zookeeper import (
    MULTI_BYTES_MAX,
    Check,
    Create,
    Delete,
    Operation,
    ZNode,
    ZooKeeper,
    batches,
    size_bytes,
)
from klog.errors import BadVersion, KlogError, NodeExists, NoNode, PeerError
from klog.names import TopicPartition, is_topic_name
from klog.protocol.consumer_protocol import PROTOCOL_TYPE, assigned_partitions, subscribed_topics

if TYPE_CHECKING:
    from klog.server.groups.coordinator import Coordinator, KeptGroup

log = logging.getLogger(__name__)

TRIES = 3
AGAIN_S = 1.0


class Shown:
    """Event loop only; ZooKeeper is asked in threads, one group at a time."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._todo: dict[str, KeptGroup] = {}
        self._showing: asyncio.Task[None] | None = None

    def show(self, kept: KeptGroup) -> None:
        """The group has been written, or taken over: let the registry show it as it is now."""
        self._todo[kept.group.name] = kept
        if self._showing is None or self._showing.done():
            self._showing = self._coordinator.broker.spawn(self._show_all())

    async def _show_all(self) -> None:
        while self._todo:
            name = next(iter(self._todo))
            kept = self._todo.pop(name)
            if not self._coordinator.is_kept(kept):
                continue
            state, zookeeper = kept.group.state, self._coordinator.zookeeper
            try:
                await self._coordinator.ask_zookeeper(_show, zookeeper, kept.holder, state)
            except KlogError as error:
                log.debug("members of group %r are not shown yet: %s", name, error.message)
                if self._coordinator.is_kept(kept) and not self._coordinator.broker.is_stopping:
                    self._todo.setdefault(name, kept)
                    await asyncio.sleep(AGAIN_S)


def _show(zookeeper: ZooKeeper, holder: SlotHolder, state: GroupState) -> None:
    """In a thread. Whoever has changed the group since shows it as it is then."""
    for _ in range(TRIES):
        wanted = _wanted(state)
        there = _there(zookeeper, state.group)
        session = zookeeper.session_id
        made = [path for path, data in wanted.items() if not _is_shown(there.get(path), data, session)]
        operations: list[list[Operation]] = [[Delete(path)] for path in there if path not in wanted]
        for path in made:
            create = Create(path, wanted[path], ephemeral=True)
            operations.append([Delete(path), create] if path in there else [create])
        if not operations:
            return
        try:
            for folder in sorted({path.rpartition("/")[0] for path in made}):
                zookeeper.ensure_path(folder)
            fences = [holder.fence, *([state.fence] if made else [])]
            _send(zookeeper, operations, fences)
        except BadVersion:
            return
        except (NoNode, NodeExists):
            continue
        return


def _send(zookeeper: ZooKeeper, operations: list[list[Operation]], fences: list[Check]) -> None:
    def size(operation: Operation) -> int:
        return size_bytes(operation, zookeeper.address.chroot)

    for batch in batches(operations, size, MULTI_BYTES_MAX - sum(map(size, fences))):
        zookeeper.multi([*fences, *batch])


def _there(zookeeper: ZooKeeper, group: str) -> dict[str, ZNode]:
    """What is shown of members, by whomever: their entries, and what they own."""
    entries = consumers.live(zookeeper, [group], of_members=True)[group]
    streams = {one.consumer_id for one in entries if not one.is_member}
    where = [paths.consumer_id(group, one.consumer_id) for one in entries if one.is_member]
    where += [
        paths.consumer_owner(group, *partition)
        for partition, owner in consumers.owners(zookeeper, [group])[group].items()
        if owner.rpartition("-")[0] not in streams
    ]
    nodes = zookeeper.get_many(where)
    return {path: node for path, node in zip(where, nodes, strict=True) if node is not None}


def _is_shown(node: ZNode | None, data: bytes, session: int) -> bool:
    """An entry is not written anew for the time in it alone."""
    if node is None or node.stat.owner_session != session:
        return False
    return node.data == data or (b'"timestamp"' in data and _timeless(node.data) == _timeless(data))


def _timeless(data: bytes) -> bytes:
    return data.partition(b'"timestamp"')[0]


def _wanted(state: GroupState) -> Mapping[str, bytes]:
    """Path -> data of what there is to be seen; nothing of what cannot be read."""
    wanted: dict[str, bytes] = {}
    if state.way != COORDINATOR or state.protocol_type != PROTOCOL_TYPE:
        return wanted
    for member in state.members:
        topics, partitions = _read(member.metadata, member.assignment if state.is_assigned else b"")
        entry = ConsumerEntry(member.member_id, dict.fromkeys(topics, 1), is_member=True)
        wanted[paths.consumer_id(state.group, member.member_id)] = consumers.encode(entry)
        for partition in partitions:
            wanted[paths.consumer_owner(state.group, *partition)] = f"{member.member_id}-0".encode()
    return wanted


def _read(metadata: bytes, assignment: bytes) -> tuple[list[str], list[TopicPartition]]:
    try:
        topics, partitions = subscribed_topics(metadata), assigned_partitions(assignment)
    except PeerError:
        return [], []
    return topics, [one for one in partitions if is_topic_name(one.topic) and one.partition >= 0]
