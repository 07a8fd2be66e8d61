"""Groups of consumers as rows: the groups, their state, their members and what each member reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from klog.admin.topics import name_matcher
from klog.client.cluster import Cluster
from klog.coordination import committed, group_slots
from klog.coordination.group_states import COORDINATOR
from klog.coordination.groups import Group, check_known, names, read, read_each
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import BrokerNotAvailable, CannotConnect, KlogError, ZooKeeperError
from klog.protocol.apis import ApiKey
from klog.render.columns import MayFail
from klog.render.values import moment

UNKNOWN = "Unknown"
"""The state of a group whose nodes cannot be read."""


@dataclass(frozen=True, slots=True)
class GroupRow(MayFail):
    """A group. ``coordinator`` is the broker that holds it; None where ZooKeeper does (``protocol`` zookeeper).

    One of which a node cannot be read has failed; nothing else is known of it.
    """

    group: str
    state: str
    protocol: str | None = field(metadata={"rank": 1})
    coordinator: int | None
    members: int
    generation: int | None = field(default=None, metadata={"wide": True})
    topics: list[str] = field(default_factory=list, metadata={"wide": True})
    """Those in which it has committed offsets."""
    partitions: int = field(default=0, metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A partition that a member reads, or a member that reads none. ``instance``: the id of a static member.

    ``committed``: when the group last committed in the partition, and ``committed_offset`` what. ``heartbeat_ms``: how
    long ago the member's last heartbeat was; None where ZooKeeper coordinates, and while it waits for a rebalance.
    """

    member: str
    client: str | None
    host: str | None = field(metadata={"rank": 2})
    topic: str | None
    partition: int | None
    committed: datetime | str | None = field(metadata={"rank": 1})
    heartbeat_ms: int | None
    committed_offset: int | None = field(default=None, metadata={"wide": True})
    instance: str | None = field(default=None, metadata={"wide": True})
    thread: int | None = field(default=None, metadata={"wide": True})
    session_timeout_ms: int | None = field(default=None, metadata={"wide": True})


async def phases(cluster: Cluster | None, silent: Collection[int] = ()) -> dict[str, str]:
    """Group -> what its coordinator says it is doing, for the registry does not know all of it.

    A broker that does not answer says nothing, and those that are known to be ``silent`` are not asked; without a
    cluster none is.
    """
    if cluster is None:
        return {}
    try:
        answers = await cluster.to_each(ApiKey.LIST_GROUPS, 4, 4, without=silent, states_filter=[])
    except (BrokerNotAvailable, CannotConnect):
        return {}
    listed = [one for answer in answers.values() if not isinstance(answer, KlogError) for one in answer.groups]
    return {str(one.group_id): str(one.group_state) for one in listed}


async def list_groups(
    zookeeper: ZooKeeper, cluster: Cluster | None, pattern: str | None = None, *, regex: bool = False
) -> list[GroupRow]:
    """Every group, or those whose name matches (as file names do, or a regular expression for the whole name).

    ``cluster`` None: no broker can be asked, and the registry says as much as it knows.
    """
    return await asyncio.to_thread(_list, zookeeper, name_matcher(pattern, regex), await phases(cluster))


async def describe_group(zookeeper: ZooKeeper, cluster: Cluster | None, group: str) -> tuple[GroupRow, list[MemberRow]]:
    """A group and its members, one row per partition that they read; GroupIdNotFound where it is not there.

    Without ``cluster`` nothing is known of heartbeats.
    """
    found, rows = await asyncio.to_thread(_describe, zookeeper, group, await phases(cluster))
    if cluster is None or found.coordinator is None:
        return found, rows
    heartbeats = await heartbeats_ms(cluster, found.coordinator, group)
    return found, [replace(row, heartbeat_ms=heartbeats.get(row.member)) for row in rows]


async def heartbeats_ms(cluster: Cluster, coordinator: int, group: str) -> dict[str, int]:
    """Member -> how long ago its last heartbeat was, without those that wait for a rebalance; empty if the coordinator
    does not say."""
    try:
        answer = await cluster.to_broker(coordinator, ApiKey.DESCRIBE_MEMBERS, 0, group=group)
    except KlogError:
        return {}
    return {str(one.member_id): int(one.heartbeat_ms) for one in answer.members if one.heartbeat_ms >= 0}


def _list(zookeeper: ZooKeeper, matches: Callable[[str], object], phases: Mapping[str, str]) -> list[GroupRow]:
    return _rows(zookeeper, read_each(zookeeper, [one for one in names(zookeeper) if matches(one)]), phases)


def _describe(zookeeper: ZooKeeper, group: str, phases: Mapping[str, str]) -> tuple[GroupRow, list[MemberRow]]:
    check_known(zookeeper, [group])
    found = read(zookeeper, group)
    offsets = committed.read(zookeeper, group, [name for one in found.members for name in one.partitions])
    rows = []
    for one in found.members:
        for partition in one.partitions or (None,):
            topic, number = (None, None) if partition is None else partition
            offset = None if partition is None else offsets.get(partition)
            rows.append(
                MemberRow(
                    one.member_id,
                    one.client_id,
                    one.host,
                    topic,
                    number,
                    moment(offset.commit_ms) if offset is not None and offset.commit_ms else None,
                    None,
                    None if offset is None else offset.offset,
                    one.instance_id,
                    None if partition is None else one.threads.get(partition),
                    one.session_timeout_ms,
                )
            )
    return _rows(zookeeper, {group: found}, phases)[0], rows


def _rows(
    zookeeper: ZooKeeper, groups: Mapping[str, Group | ZooKeeperError], phases: Mapping[str, str]
) -> list[GroupRow]:
    slots = group_slots.read_all(zookeeper)
    offsets = committed.names(zookeeper, list(groups))
    rows = []
    for name, group in groups.items():
        if isinstance(group, ZooKeeperError):
            rows.append(GroupRow(name, UNKNOWN, None, None, 0).failed_by(group))
            continue
        by_broker = group.state.group_protocol == COORDINATOR
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
