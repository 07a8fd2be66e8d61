"""Members of the brokers' protocol in 0.8's registry: ids and owners, for ZooKeeper-era tools and `klog zk`.

    /consumers/<g>/ids/<member id>    (e) its subscription, a thread for each topic
    /consumers/<g>/owners/<t>/<p>     (e) <member id>-0

Written after the answer: nothing waits for these entries, and no decision depends on them. The wanted entries are
compared with the existing ones, and the difference is written in multis behind the fence of the slot (rule G1) and,
where a node is created, of the group. Nodes of another session, an earlier coordinator's, are replaced (rule Z1). All
are ephemeral: the entries of a dead coordinator end with its session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from klog.coordination import consumers, paths
from klog.coordination.consumers import ConsumerEntry
from klog.coordination.group_slots import SlotHolder
from klog.coordination.group_states import COORDINATOR, GroupState
from klog.coordination.zookeeper import Create, Delete, Operation, ZNode, ZooKeeper
from klog.errors import BadVersion, KlogError, NodeExists, NoNode, PeerError, PolicyViolation
from klog.names import TopicPartition, is_topic_name
from klog.protocol.consumer_protocol import PROTOCOL_TYPE, assigned_partitions, subscribed_topics
from klog.server.groups.cached_group import CachedGroup
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

TRIES = 3
AGAIN_S = 1.0


class ZkProjection:
    """Event loop only; one group at a time."""

    def __init__(
        self,
        runtime: Runtime,
        call: Callable[..., Awaitable[None]],
        is_current: Callable[[CachedGroup], bool],
        admit: Callable[[int], None],
    ) -> None:
        """``call``: that of the cache. ``is_current``: whether this broker still coordinates a group. ``admit`` raises
        PolicyViolation if that many more entries are not allowed."""
        self._runtime = runtime
        self._call = call
        self._is_current = is_current
        self._admit = admit
        self._todo: dict[str, CachedGroup] = {}
        self._showing: asyncio.Task[None] | None = None

    def show(self, cached: CachedGroup) -> None:
        """The group was written, or taken over: update its entries in the registry, some time later."""
        self._todo[cached.group.name] = cached
        if self._showing is None or self._showing.done():
            self._showing = self._runtime.spawn(self._show_all())

    async def _show_all(self) -> None:
        while self._todo:
            name = next(iter(self._todo))
            cached = self._todo.pop(name)
            if not self._is_current(cached):
                continue
            try:
                await self._call(_show, cached.holder, cached.group.state, self._admit)
            except KlogError as error:
                log.debug("members of group %r are not in 0.8's registry yet: %s", name, error.message)
                if self._is_current(cached) and not self._runtime.is_stopping:
                    self._todo.setdefault(name, cached)
                    await asyncio.sleep(AGAIN_S)


def _show(zookeeper: ZooKeeper, holder: SlotHolder, state: GroupState, admit: Callable[[int], None]) -> None:
    """In a thread. A fence that fails ends it: a later change of the group comes with its own call. If ZooKeeper has no
    room for the entries they are skipped: nothing depends on them."""
    for _ in range(TRIES):
        wanted = _wanted(state, zookeeper.clock.now_ms())
        there = _there(zookeeper, state.group)
        session = zookeeper.session_id
        made = [path for path, data in wanted.items() if not _is_shown(there.get(path), data, session)]
        try:
            if made:
                admit(len(made))
        except PolicyViolation:
            made = []
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
            for batch in zookeeper.batches(operations, fences):
                zookeeper.multi([*fences, *batch])
        except BadVersion:
            return
        except (NoNode, NodeExists):
            continue
        return


def _there(zookeeper: ZooKeeper, group: str) -> dict[str, ZNode]:
    """All entries of members, whichever session wrote them: ids and owned partitions."""
    entries = consumers.live(zookeeper, [group], of_members=True)[group]
    streams = {one.consumer_id for one in entries if not one.is_member}
    where = [paths.consumer_id(group, one.consumer_id) for one in entries if one.is_member]
    where += [
        paths.consumer_owner(group, *partition)
        for partition, owner in consumers.owners(zookeeper, [group])[group].items()
        if owner.rpartition("-")[0] not in streams
    ]
    return zookeeper.find_many(where)


def _is_shown(node: ZNode | None, data: bytes, session: int) -> bool:
    """Whether the entry is there; one that differs only in its timestamp is not written again."""
    if node is None or node.stat.owner_session != session:
        return False
    return node.data == data or (b'"timestamp"' in data and _timeless(node.data) == _timeless(data))


def _timeless(data: bytes) -> bytes:
    return data.partition(b'"timestamp"')[0]


def _wanted(state: GroupState, now_ms: int) -> Mapping[str, bytes]:
    """Path -> data of the wanted entries; none for members with unreadable metadata."""
    wanted: dict[str, bytes] = {}
    if state.group_protocol != COORDINATOR or state.protocol_type != PROTOCOL_TYPE:
        return wanted
    for member in state.members:
        topics, partitions = _read(member.metadata, member.assignment if state.is_assigned else b"")
        entry = ConsumerEntry(member.member_id, dict.fromkeys(topics, 1), is_member=True)
        wanted[paths.consumer_id(state.group, member.member_id)] = consumers.encode(entry, now_ms)
        for partition in partitions:
            wanted[paths.consumer_owner(state.group, *partition)] = f"{member.member_id}-0".encode()
    return wanted


def _read(metadata: bytes, assignment: bytes) -> tuple[list[str], list[TopicPartition]]:
    try:
        topics, partitions = subscribed_topics(metadata), assigned_partitions(assignment)
    except PeerError:
        return [], []
    return topics, [one for one in partitions if is_topic_name(one.topic) and one.partition >= 0]
