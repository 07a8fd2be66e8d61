"""Consumer groups in ZooKeeper: groups, their members, and the partitions of each member.

A group exists while it has a folder under ``/consumers`` or while members or a coordinator hold it. The persistent
state ``/klog/groups/<g>`` lists the members of the brokers' protocol. The ephemeral entries ``/consumers/<g>/ids`` list
the consumers that coordinate through ZooKeeper, 0.8's own among them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from klog.coordination import committed, consumers, group_states
from klog.coordination.group_states import COORDINATOR, FREE, ZOOKEEPER, GroupState
from klog.errors import GroupIdNotFound, PeerError, SessionLost, ZooKeeperError
from klog.names import TopicPartition, first_few, near_hint
from klog.protocol.consumer_protocol import PROTOCOL_TYPE, assigned_partitions

if TYPE_CHECKING:
    from klog.coordination.consumers import ConsumerEntry
    from klog.coordination.zookeeper import ZooKeeper

EMPTY, JOINING, STABLE = "Empty", "CompletingRebalance", "Stable"
"""The protocol's names of states. The members of a joining group have no assignment yet."""

NAMED_MAX = 5
"""Members, or groups, named in a sentence; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, of either protocol. ``threads``: partition -> the stream that reads it, for a consumer with
    streams."""

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
    """A group in the registry. ``owners``: owner of each partition, from 0.8's nodes."""

    state: GroupState
    members: tuple[Member, ...]
    owners: Mapping[TopicPartition, str]

    @property
    def name(self) -> str:
        return self.state.group

    @property
    def readers(self) -> Mapping[TopicPartition, str]:
        """The reader of each partition: by the assignment for members of the brokers' protocol, by the owner nodes for
        other consumers."""
        if self.state.group_protocol == COORDINATOR:
            return {name: one.member_id for one in self.members for name in one.partitions}
        return self.owners

    @property
    def phase(self) -> str:
        """The state, by the protocol's name."""
        if not self.members:
            return EMPTY
        return JOINING if self.state.group_protocol == COORDINATOR and not self.state.is_assigned else STABLE

    @property
    def protocol(self) -> str | None:
        """How partitions are assigned: an assignor's name, or ``zookeeper``; None while none is chosen."""
        if self.state.group_protocol == COORDINATOR:
            return self.state.protocol or self.state.protocol_type or None
        return ZOOKEEPER if self.state.group_protocol == ZOOKEEPER or self.members else None


def names(zookeeper: ZooKeeper) -> list[str]:
    """Every group, by name, without deleted groups, whose node stays to keep its version."""
    with_folder = set(committed.groups(zookeeper))
    others = [one for one in group_states.names(zookeeper) if one not in with_folder]
    try:
        held = {
            name for name, state in group_states.read_many(zookeeper, others).items() if state.group_protocol != FREE
        }
    except SessionLost:
        raise
    except ZooKeeperError:  # one cannot be read: `read_each` tells which
        held = set(others)
    return sorted(with_folder | held)


def check_known(zookeeper: ZooKeeper, wanted: Sequence[str]) -> None:
    """Raise GroupIdNotFound, with the name of every group that does not exist."""
    known = names(zookeeper)
    missing = [one for one in dict.fromkeys(wanted) if one not in known]
    if not missing:
        return
    raise GroupIdNotFound(
        f"there is no group {' and no group '.join(map(repr, missing))} on ZooKeeper {zookeeper.address}",
        hint=near_hint(missing[0], known, "`klog group list` shows those there are"),
    )


def read_many(zookeeper: ZooKeeper, wanted: Sequence[str]) -> dict[str, Group]:
    """These groups, in few rounds; a missing one has no members and a state at version -1."""
    states = group_states.read_many(zookeeper, wanted)
    live = consumers.live(zookeeper, wanted)
    owners = consumers.owners(zookeeper, wanted)
    return {
        name: Group(
            states[name],
            _coordinated(states[name])
            if states[name].group_protocol == COORDINATOR
            else _streaming(name, live[name], owners[name]),
            owners[name],
        )
        for name in wanted
    }


def read_each(zookeeper: ZooKeeper, wanted: Sequence[str]) -> dict[str, Group | ZooKeeperError]:
    """As `read_many`; for a group with an invalid node, the error that names the node."""
    try:
        return dict(read_many(zookeeper, wanted))
    except SessionLost:
        raise
    except ZooKeeperError as error:
        if len(wanted) == 1:
            return {wanted[0]: error.bare()}
        half = len(wanted) // 2  # one of a thousand costs some twenty rounds
        return {**read_each(zookeeper, wanted[:half]), **read_each(zookeeper, wanted[half:])}


def past(zookeeper: ZooKeeper, name: TopicPartition, offset: int) -> tuple[str, ...]:
    """The groups that have committed an offset beyond this one: they have read the message there."""
    found = committed.read_many(zookeeper, {group: [name] for group in names(zookeeper)})
    return tuple(group for group, some in found.items() if name in some and some[name].offset > offset)


def read(zookeeper: ZooKeeper, group: str) -> Group:
    """As `read_many`, for one group."""
    return read_many(zookeeper, [group])[group]


def _coordinated(state: GroupState) -> tuple[Member, ...]:
    members = []
    for one in state.members:
        try:
            known = state.is_assigned and state.protocol_type == PROTOCOL_TYPE
            partitions = tuple(assigned_partitions(one.assignment)) if known else ()
        except PeerError:
            partitions = ()  # a leader may assign in a format of its own that only its members understand
        members.append(
            Member(one.member_id, one.client_id, one.host, partitions, one.instance_id, one.session_timeout_ms)
        )
    return tuple(sorted(members, key=lambda one: one.member_id))


def _streaming(group: str, live: Sequence[ConsumerEntry], owners: Mapping[TopicPartition, str]) -> tuple[Member, ...]:
    """The members of a group of stream consumers. An owner is ``<consumer id>-<thread>``."""
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
    """The host in an id of 0.8's form, ``<group>_<host>-<ms>-<8 hex digits>``."""
    found = re.fullmatch(re.escape(group) + r"_(.+)-\d+-[0-9a-f]{8}", consumer_id)
    return found[1] if found else None


def in_words(members: Sequence[Member]) -> str:
    """The members, the first few by name."""
    return first_few(members, NAMED_MAX)
