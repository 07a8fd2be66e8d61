"""Changes of committed offsets by an administrator, fenced against members that commit.

The check that the group is empty and the write are one step: each multi checks ``/klog/groups/<g>`` at the version at
which the group had no members, and a member that joins writes that node. With `force` the multi writes the node itself,
without members and with the next generation: the coordinator's next write fails, and the members join again. Consumers
that coordinate through ZooKeeper are fenced by removing their entries and owner nodes.

The same multi raises the versions of the partitions' claims. Otherwise a consumer that was paused for longer than its
session, and is no longer listed, would wake up and commit over the change. 0.8's own consumers do not know these nodes;
for them klog can only read their entries first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from klog.coordination import committed, consumers, entries, group_states, groups, offset_acts, paths
from klog.coordination.acts import STATE_BYTES_MAX, Actor
from klog.coordination.committed import CommittedOffset, OffsetWriter
from klog.coordination.group_states import COORDINATOR, FREE, GroupState
from klog.coordination.groups import Group, Member
from klog.coordination.zookeeper import MULTI_BYTES_MAX, Check, Delete, Operation, SetData, ZooKeeper
from klog.errors import BadVersion, NodeExists, NonEmptyGroup, NoNode, Refused, SessionLost
from klog.names import TopicPartition

TRIES = 20
"""Fenced members join again at once; if one joins between the read and the write, the read is repeated."""

ACT_BYTES_MAX = STATE_BYTES_MAX + 4096
"""Bytes that a multi reserves for an act's node, with its path."""

PARTITIONS_AT_ONCE = 1500
"""Partitions tried for one multi: with names of common length somewhat more than it holds."""

Wanted = Mapping[TopicPartition, CommittedOffset | None]
"""Partition -> the offset to commit; None removes the committed offset."""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A partition's committed offset before and after; None for none. ``delta``: difference of the offsets.

    ``messages``: number of messages between the two, negative if they will be read again; None if it cannot be counted.
    """

    group: str
    topic: str
    partition: int
    prior: int | None
    new: int | None
    delta: int | None
    messages: int | None
    note: str | None = field(default=None, metadata={"wide": True})

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def in_words(rows: Sequence[OffsetChange]) -> str:
    """The number of changes, and of messages that will be read again or skipped."""
    again = -sum(row.messages for row in rows if row.messages is not None and row.messages < 0)
    past = sum(row.messages for row in rows if row.messages is not None and row.messages > 0)
    changed = sum(row.prior != row.new for row in rows)
    parts = [f"{changed} of {len(rows)} partition{'s' if len(rows) != 1 else ''} will change"]
    parts += [f"{again:,} message{'s' if again != 1 else ''} will be read again"] if again else []
    parts += [f"{past:,} message{'s' if past != 1 else ''} will be skipped"] if past else []
    return ", ".join(parts)


def refuse_members(group: Group, hint: str | None = None) -> None:
    """Raise NonEmptyGroup with the members' names if a group has live ones."""
    if not group.members:
        return
    count = len(group.members)
    raise NonEmptyGroup(
        f"group {group.name!r} has {count} live member{'s' if count > 1 else ''}: {groups.in_words(group.members)}",
        hint=hint or "stop them first",
    )


def write(
    zookeeper: ZooKeeper,
    group: str,
    wanted: Wanted,
    *,
    force: bool = False,
    hint: str | None = None,
    actor: Actor | None = None,
    kind: str = offset_acts.OFFSETS,
    check_before: Callable[[offset_acts.State], bool] = lambda before: True,
) -> list[Member]:
    """Commit these offsets for a group without members. Returns the members fenced by ``force``.

    Raises NonEmptyGroup if the group has members, unless ``force``. A multi changes as many partitions as it holds;
    more take several multis, each fenced like the first. Each multi has an act by ``actor`` of its changes; without an
    actor the change is a program's progress, not an act. With an actor a multi replaces exactly the state in its act's
    ``before``, which ``check_before`` can refuse. Blocks.
    """
    writer, todo, failures = OffsetWriter(zookeeper), dict(wanted), 0
    fenced: dict[str, Member] = {}
    while todo:
        found = groups.read(zookeeper, group)
        try:
            if not force:
                refuse_members(found, hint)
            elif found.members:
                fenced.update((one.member_id, one) for one in found.members)
                if found.state.group_protocol != COORDINATOR:
                    _end_streams(zookeeper, found)
            head = _head(found)
            done, operations = _some(zookeeper, writer, group, todo, head, 0 if actor is None else ACT_BYTES_MAX)
            noted = list[Operation]()
            if actor is not None:
                after = {name: wanted[name] for name in done}
                noted = offset_acts.noted(zookeeper, kind, actor, group, after, check_before)
            changes = [*noted, *operations]
            zookeeper.commit([head, *changes], changes)
        except (BadVersion, NodeExists, NoNode) as error:
            # A member joined, left or committed, or the group was deleted, since the read.
            writer.forget(group)
            failures += 1
            if failures >= TRIES:
                raise Refused(
                    f"group {group!r} changes all the time: {error.message}; {_so_far(wanted, todo)}",
                    hint="stop its consumers first",
                ) from error
            continue
        except (NonEmptyGroup, SessionLost) as error:
            if len(todo) == len(wanted):
                raise
            raise type(error)(f"{error.message}; {_so_far(wanted, todo)}", hint=error.hint) from error
        writer.landed(group, operations)
        for name in done:
            del todo[name]
    return list(fenced.values())


def _so_far(wanted: Wanted, todo: Wanted) -> str:
    return f"{len(wanted) - len(todo)} of {len(wanted)} partitions were written"


def _head(group: Group) -> Operation:
    """The first operation of every multi: a check if the group is empty, else a write of its node without members."""
    state = group.state
    if group.members:
        free = replace(state, members=(), leader="", is_assigned=False, generation=state.generation + 1)
        return free.operation
    return state.fence if state.version >= 0 else state.operation


def _some(
    zookeeper: ZooKeeper, writer: OffsetWriter, group: str, todo: Wanted, head: Operation, kept_bytes: int
) -> tuple[list[TopicPartition], list[Operation]]:
    """The first partitions that fit into one multi beside ``kept_bytes``, and the operations that change them."""
    some = list(todo)[:PARTITIONS_AT_ONCE]
    puts = {name: commit for name in some if (commit := todo[name]) is not None}
    made = writer.operations(group, puts)
    writes = {name: made[2 * at : 2 * at + 2] for at, name in enumerate(puts)}
    doomed = {name: committed.nodes_of(group, name) for name in some if name not in puts}
    claims = [paths.ownership_fence(group, *name) for name in some]
    where = [*chain.from_iterable(doomed.values()), *claims]
    there = zookeeper.find_many(where)
    for name, nodes in doomed.items():
        writes[name] = [Delete(path) for path in nodes if path in there]
    parts = [
        [*writes[name], *([SetData(claim, entries.encode({"version": 1}))] if claim in there else [])]
        for name, claim in zip(some, claims, strict=True)
    ]
    size = zookeeper.size_bytes
    operations: list[Operation] = []
    done: list[TopicPartition] = []
    room = MULTI_BYTES_MAX - kept_bytes - size(head)
    for name, part in zip(some, parts, strict=True):
        room -= sum(map(size, part)) + (size(Check(paths.consumer_offset(group, *name), 0)) if kept_bytes else 0)
        if room < 0 and done:
            break
        operations += part
        done.append(name)
    return done, operations


def _end_streams(zookeeper: ZooKeeper, group: Group) -> None:
    """Remove the consumers' entries and owner nodes, and fence their claims, as if their sessions had ended."""
    live = consumers.live(zookeeper, [group.name])[group.name]
    owned = list(group.owners)
    ends = [paths.consumer_id(group.name, one.consumer_id) for one in live]
    ends += [paths.consumer_owner(group.name, *name) for name in owned]
    claims = [paths.ownership_fence(group.name, *name) for name in owned]
    there = zookeeper.find_many([*ends, *claims])
    parts: list[list[Operation]] = [[SetData(path, entries.encode({"version": 1}))] for path in claims if path in there]
    parts += [[Delete(path)] for path in ends if path in there]
    zookeeper.commit_each(parts)


# --- The end of a group -----------------------------------------------------------------------------------------------


def delete(zookeeper: ZooKeeper, group: str, actor: Actor | None = None) -> None:
    """Remove the offsets, owners and fences of a group without members. Raises NonEmptyGroup if it has members.

    The offsets are removed with an act by ``actor``, as in `write`.

    The group's own node stays, without a holder: a coordinator that remembers it would take a new node at an old
    version for the one it knows (rule Z1). No list shows a group that has only this node.
    """
    gone = dict.fromkeys(committed.read(zookeeper, group))
    write(zookeeper, group, gone, actor=actor, kind=offset_acts.GROUP_DELETE)
    for _ in range(TRIES):
        found = groups.read(zookeeper, group)
        refuse_members(found)
        state = found.state
        if state.version < 0 or state.group_protocol == FREE:
            break
        try:
            group_states.write(zookeeper, GroupState(group, generation=state.generation, version=state.version))
        except (BadVersion, NoNode):
            continue  # a member came or went meanwhile
    node = paths.group_node(group)
    for root in (f"{paths.CONSUMERS}/{node}", f"{paths.COMMITS}/{node}", f"{paths.CLAIMS}/{node}"):
        _remove_tree(zookeeper, root)


def _remove_tree(zookeeper: ZooKeeper, root: str) -> None:
    """Remove everything under `root`, except nodes that are created again at the same moment."""
    level, everything = [root], [root]
    while level:
        below = zookeeper.children_many(level)
        level = [f"{path}/{name}" for path, names in zip(level, below, strict=True) for name in names]
        everything += level
    for path in reversed(everything):
        zookeeper.remove(path)
