"""Groups of consumers: which there are, who is in them, what each member reads. Read from ZooKeeper, live or dead.

A group is there while it has a folder under ``/consumers`` or somebody holds it. Who is in it, the persistent state
``/klog/groups/<g>`` says for members of the brokers' protocol, and the ephemeral entries ``/consumers/<g>/ids`` for
consumers that coordinate through ZooKeeper, 0.8's own among them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from klog.coordination import committed, consumers, group_slots, group_states
from klog.coordination.group_states import COORDINATOR, FREE, ZOOKEEPER, GroupState
from klog.errors import GroupIdNotFound, KlogError, PeerError, SessionLost, ZooKeeperError
from klog.names import TopicPartition
from klog.ops.topics import name_matcher
from klog.protocol.apis import ApiKey
from klog.protocol.consumer_protocol import PROTOCOL_TYPE, assigned_partitions

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.consumers import ConsumerEntry
    from klog.coordination.zookeeper import ZooKeeper

EMPTY, JOINING, STABLE, UNKNOWN = "Empty", "CompletingRebalance", "Stable", "Unknown"
"""The protocol's words. A group that is being joined has members that do not know yet what they read."""

NAMED_MAX = 5
"""Members, or groups, named in a sentence; more are counted."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group. ``coordinator`` is the broker that holds it; None where ZooKeeper does (``protocol`` zookeeper).

    One of which a node cannot be read has failed; nothing else is known of it.
    """

    group: str
    state: str
    protocol: str | None
    coordinator: int | None
    members: int
    generation: int | None = field(default=None, metadata={"wide": True})
    topics: list[str] = field(default_factory=list, metadata={"wide": True})
    """Those in which it has committed offsets."""
    partitions: int = field(default=0, metadata={"wide": True})
    error: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A partition that a member reads, or a member that reads none. ``instance``: the id of a static member."""

    member: str
    client: str | None
    host: str | None
    topic: str | None
    partition: int | None
    instance: str | None = field(default=None, metadata={"wide": True})
    thread: int | None = field(default=None, metadata={"wide": True})
    session_timeout_ms: int | None = field(default=None, metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class Member:
    """Who is in a group, whichever way. ``threads``: of a consumer with streams, which of them reads a partition."""

    member_id: str
    client_id: str | None
    host: str | None
    partitions: tuple[TopicPartition, ...] = ()
    instance_id: str | None = None
    session_timeout_ms: int | None = None
    threads: Mapping[TopicPartition, int] = field(default_factory=dict)

    def __str__(self) -> str:
        where = [f"client {self.client_id}"] if self.client_id else []
        where += [f"host {self.host.lstrip('/')}"] if self.host else []
        return f"{self.member_id} ({', '.join(where)})" if where else self.member_id


@dataclass(frozen=True, slots=True)
class Group:
    """A group as the registry has it. ``owners``: who reads what, as 0.8's nodes say it."""

    state: GroupState
    members: tuple[Member, ...]
    owners: Mapping[TopicPartition, str]

    @property
    def name(self) -> str:
        return self.state.group

    @property
    def readers(self) -> Mapping[TopicPartition, str]:
        """Who reads what: members of the brokers' protocol as they were told, other consumers as their nodes say."""
        if self.state.way == COORDINATOR:
            return {name: one.member_id for one in self.members for name in one.partitions}
        return self.owners

    @property
    def phase(self) -> str:
        """The state, in the protocol's words."""
        if not self.members:
            return EMPTY
        return JOINING if self.state.way == COORDINATOR and not self.state.is_assigned else STABLE

    @property
    def protocol(self) -> str | None:
        """How the partitions are given out: an assignor's name, or ``zookeeper``; None while nobody has chosen."""
        if self.state.way == COORDINATOR:
            return self.state.protocol or self.state.protocol_type or None
        return ZOOKEEPER if self.state.way == ZOOKEEPER or self.members else None


# --- The verbs --------------------------------------------------------------------------------------------------------


Phases = Mapping[str, str]
"""Group -> what its coordinator says it is doing; of others, the registry says as much as it knows."""


async def phases(cluster: Cluster) -> dict[str, str]:
    """What every broker says of the groups that it coordinates; one that does not answer says nothing."""

    async def ask(broker: int) -> list[Any]:
        try:
            answer = await cluster.to_broker(broker, ApiKey.LIST_GROUPS, 4, 4, states_filter=[])
        except KlogError:
            return []
        return list(answer.groups)

    answers = await asyncio.gather(*(ask(one.broker_id) for one in await cluster.brokers()))
    return {str(one.group_id): str(one.group_state) for listed in answers for one in listed}


async def list_groups(
    zookeeper: ZooKeeper, pattern: str | None = None, *, regex: bool = False, phases: Phases | None = None
) -> list[GroupRow]:
    """Every group, or those whose name matches (as file names do, or a regular expression for the whole name)."""
    return await asyncio.to_thread(_list, zookeeper, name_matcher(pattern, regex), phases or {})


async def describe_group(
    zookeeper: ZooKeeper, group: str, *, phases: Phases | None = None
) -> tuple[GroupRow, list[MemberRow]]:
    """A group and its members, a row a partition that they read; GroupIdNotFound where it is not there."""
    return await asyncio.to_thread(_describe, zookeeper, group, phases or {})


def _list(zookeeper: ZooKeeper, matches: Callable[[str], object], phases: Phases) -> list[GroupRow]:
    return _rows(zookeeper, read_each(zookeeper, [one for one in names(zookeeper) if matches(one)]), phases)


def _describe(zookeeper: ZooKeeper, group: str, phases: Phases) -> tuple[GroupRow, list[MemberRow]]:
    check_known(zookeeper, [group])
    found = read(zookeeper, group)
    rows = [
        MemberRow(
            one.member_id,
            one.client_id,
            one.host,
            partition.topic if partition is not None else None,
            partition.partition if partition is not None else None,
            one.instance_id,
            one.threads.get(partition) if partition is not None else None,
            one.session_timeout_ms,
        )
        for one in found.members
        for partition in (one.partitions or (None,))
    ]
    return _rows(zookeeper, {group: found}, phases)[0], rows


def _rows(zookeeper: ZooKeeper, groups: Mapping[str, Group | ZooKeeperError], phases: Phases) -> list[GroupRow]:
    slots = group_slots.read_all(zookeeper)
    offsets = committed.names(zookeeper, list(groups))
    rows = []
    for name, group in groups.items():
        if isinstance(group, ZooKeeperError):
            rows.append(GroupRow(name, UNKNOWN, None, None, 0, error=group.code, message=group.message))
            continue
        by_broker = group.state.way == COORDINATOR
        holder = slots.get(group_slots.slot_of(name)) if by_broker else None
        rows.append(
            GroupRow(
                name,
                phases.get(name, group.phase) if by_broker else group.phase,
                group.protocol,
                holder.broker_id if holder is not None else None,
                len(group.members),
                group.state.generation if by_broker else None,
                sorted({one.topic for one in offsets[name]}),
                len(offsets[name]),
            )
        )
    return rows


# --- What the registry says; in threads -------------------------------------------------------------------------------


def names(zookeeper: ZooKeeper) -> list[str]:
    """Every group, by name. One that was deleted, and has left its node for the sake of the version, is none."""
    with_folder = set(committed.groups(zookeeper))
    others = [one for one in group_states.names(zookeeper) if one not in with_folder]
    try:
        held = {name for name, state in group_states.read_many(zookeeper, others).items() if state.way != FREE}
    except SessionLost:
        raise
    except ZooKeeperError:  # one cannot be read: `read_each` says which
        held = set(others)
    return sorted(with_folder | held)


def check_known(zookeeper: ZooKeeper, wanted: Sequence[str]) -> None:
    """GroupIdNotFound, naming all that are not there."""
    known = names(zookeeper)
    missing = [one for one in dict.fromkeys(wanted) if one not in known]
    if not missing:
        return
    near = get_close_matches(missing[0], known, n=2)
    raise GroupIdNotFound(
        f"there is no group {' and no group '.join(map(repr, missing))} on ZooKeeper {zookeeper.address}",
        hint=f"did you mean {' or '.join(near)}?" if near else "`klog group list` shows those there are",
    )


def read_many(zookeeper: ZooKeeper, wanted: Sequence[str]) -> dict[str, Group]:
    """These groups, in few rounds; one that is not there has no members and a state at version -1."""
    states = group_states.read_many(zookeeper, wanted)
    live = consumers.live(zookeeper, wanted)
    owners = consumers.owners(zookeeper, wanted)
    return {
        name: Group(
            states[name],
            _coordinated(states[name])
            if states[name].way == COORDINATOR
            else _streaming(name, live[name], owners[name]),
            owners[name],
        )
        for name in wanted
    }


def read_each(zookeeper: ZooKeeper, wanted: Sequence[str]) -> dict[str, Group | ZooKeeperError]:
    """As `read_many`; where a node of a group is none that could be read, the error that names it, for that group."""
    try:
        return dict(read_many(zookeeper, wanted))
    except SessionLost:
        raise
    except ZooKeeperError as error:
        if len(wanted) == 1:
            return {wanted[0]: error}
        half = len(wanted) // 2  # one of a thousand costs some twenty rounds
        return {**read_each(zookeeper, wanted[:half]), **read_each(zookeeper, wanted[half:])}


def past(zookeeper: ZooKeeper, name: TopicPartition, offset: int) -> tuple[str, ...]:
    """The groups that have committed an offset behind this one: they have read what is there."""
    found = committed.read_many(zookeeper, {group: [name] for group in names(zookeeper)})
    return tuple(group for group, some in found.items() if name in some and some[name].offset > offset)


def read(zookeeper: ZooKeeper, group: str) -> Group:
    """As `read_many`, of one."""
    return read_many(zookeeper, [group])[group]


def _coordinated(state: GroupState) -> tuple[Member, ...]:
    members = []
    for one in state.members:
        try:
            known = state.is_assigned and state.protocol_type == PROTOCOL_TYPE
            partitions = tuple(assigned_partitions(one.assignment)) if known else ()
        except PeerError:
            partitions = ()  # a leader may give out what it likes; only its members have to understand it
        members.append(
            Member(one.member_id, one.client_id, one.host, partitions, one.instance_id, one.session_timeout_ms)
        )
    return tuple(sorted(members, key=lambda one: one.member_id))


def _streaming(group: str, live: Sequence[ConsumerEntry], owners: Mapping[TopicPartition, str]) -> tuple[Member, ...]:
    """An owner is ``<consumer id>-<thread>``."""
    read: dict[str, dict[TopicPartition, int]] = {}
    for partition, owner in sorted(owners.items()):
        consumer, _, thread = owner.rpartition("-")
        read.setdefault(consumer, {})[partition] = int(thread) if thread.isdigit() else 0
    return tuple(
        Member(
            one.consumer_id,
            None,
            _host_in(group, one.consumer_id),
            tuple(read.get(one.consumer_id, ())),
            threads=read.get(one.consumer_id, {}),
        )
        for one in live
    )


def _host_in(group: str, consumer_id: str) -> str | None:
    """0.8's ids are ``<group>_<host>-<ms>-<8 hex digits>``."""
    found = re.fullmatch(re.escape(group) + r"_(.+)-\d+-[0-9a-f]{8}", consumer_id)
    return found[1] if found else None


def in_words(members: Sequence[Member]) -> str:
    """Who they are, the first few by name."""
    shown = ", ".join(map(str, members[:NAMED_MAX]))
    return shown + (f" and {len(members) - NAMED_MAX} more" if len(members) > NAMED_MAX else "")
