"""Expiry of offsets of groups without members for ``offsets.retention.minutes``.

An offset's retention begins at the latest of these times, all by ZooKeeper's clock:

    - the offset was written
    - the group's node was written, which a join does, and the leave of the last member of the brokers' protocol
    - consumers that coordinate through ZooKeeper were last seen. They leave no time behind, so while they live klog
      writes the folder ``/klog/commits/<g>`` now and then; its data is never read

Fences guard the removal (`Expired.operations`). Each node is deleted at the version that was read, so an offset that is
committed meanwhile stays. The group's node is checked at its version, so a group that a member joins meanwhile keeps
everything; a group without a node must still have none. Consumers of 0.8's time write no node of klog's and may come
between the read and the removal: they have read an offset as old as the retention, and commit it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from klog.coordination import committed, consumers, group_states, paths
from klog.coordination.group_states import COORDINATOR, FREE, GroupState
from klog.coordination.zookeeper import Create, Delete, Operation, ZooKeeper
from klog.names import TopicPartition

SEEN_PART = 8
"""Consumers are noted every eighth of the retention time, and count for an eighth longer."""
AT_ONCE = 500
"""Partitions per multi."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The offsets of a group to remove. ``next_ms``: the earliest time at which more expire."""

    state: GroupState
    partitions: tuple[TopicPartition, ...] = ()
    nodes: tuple[Delete, ...] = ()
    is_all: bool = False
    next_ms: int = 0

    @property
    def operations(self) -> list[Operation]:
        """Empty if nothing has expired. Removes the group's holder with its last offsets."""
        if not self.partitions:
            return []
        state = self.state
        if state.version < 0:
            node = paths.group(state.group)
            return [Create(node, b""), Delete(node), *self.nodes]
        if self.is_all and state.group_protocol != FREE:
            free = GroupState(state.group, generation=state.generation, version=state.version)
            return [free.operation, *self.nodes]
        return [state.fence, *self.nodes]


def of_group(zookeeper: ZooKeeper, group: str, now_ms: int, retention_ms: int) -> Expired:
    """The offsets of a group that have expired by ``now_ms``; at most `AT_ONCE` partitions."""
    state, part_ms = group_states.read(zookeeper, group), retention_ms // SEEN_PART
    if state.group_protocol == COORDINATOR and state.members:
        return Expired(state, next_ms=now_ms + retention_ms)
    if state.modified_ms + retention_ms >= now_ms:
        return Expired(state, next_ms=state.modified_ms + retention_ms)
    folder = zookeeper.find(paths.commits(group))
    is_noted = folder is not None and folder.stat.version > 0  # at version 0 a commit made it, not a note
    noted_ms = folder.stat.modified_ms if folder is not None and is_noted else 0
    if consumers.live(zookeeper, [group])[group]:
        if noted_ms + part_ms < now_ms:
            zookeeper.ensure_path(paths.commits(group))
            zookeeper.set(paths.commits(group), b"")  # the note: consumers of this group are alive now
        return Expired(state, next_ms=now_ms + part_ms)
    since_ms = max(state.modified_ms, noted_ms + part_ms if is_noted else 0)
    return _expired(zookeeper, state, since_ms, now_ms, retention_ms)


def _expired(zookeeper: ZooKeeper, state: GroupState, since_ms: int, now_ms: int, retention_ms: int) -> Expired:
    group = state.group
    partitions = committed.names(zookeeper, [group])[group]
    numbers = zookeeper.find_many(partitions, lambda one: paths.consumer_offset(group, *one))
    ends = {one: max(since_ms, number.stat.modified_ms) + retention_ms for one, number in numbers.items()}
    gone = [one for one, end_ms in ends.items() if end_ms < now_ms][:AT_ONCE]
    found = {paths.consumer_offset(group, *one): numbers[one] for one in gone}
    found |= zookeeper.find_many(paths.commit_note(group, *one) for one in gone)
    nodes = [Delete(path, node.stat.version) for path, node in found.items()]
    left = [end_ms for one, end_ms in ends.items() if one not in set(gone)]
    return Expired(state, tuple(gone), tuple(nodes), not left, min(left, default=now_ms + retention_ms))


def remove_empty_folders(zookeeper: ZooKeeper, group: str, topics: Iterable[str]) -> None:
    """Remove empty folders of these topics, and then of the group. A folder with a new child stays."""
    wanted = dict.fromkeys(topics)
    folders = [f"{paths.consumer_offsets(group)}/{topic}" for topic in wanted]
    folders += [f"{paths.commits(group)}/{topic}" for topic in wanted]
    for folder in folders:
        zookeeper.remove(folder)
    if committed.names(zookeeper, [group])[group]:
        return
    root = f"{paths.CONSUMERS}/{paths.group_node(group)}"
    owners = paths.consumer_owners(group)
    owned = [f"{owners}/{topic}" for topic in zookeeper.find_children(owners)]
    for folder in (*owned, f"{root}/offsets", owners, f"{root}/ids", root, paths.commits(group)):
        zookeeper.remove(folder)
