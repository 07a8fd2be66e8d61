"""What ZooKeeper holds: the registries decoded, and znodes as they are.

The decoded rows begin with the node's path, version and session, then the entry's own fields. Nothing here writes, and
no chroot is ever made: a session on a missing one is refused by `ZooKeeper.start`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING

from klog.coordination import brokers, consumers, controller_election, group_states, partition_states, paths, topics
from klog.errors import NoNode, UsageError
from klog.names import host_port
from klog.render.timestamps import moment

if TYPE_CHECKING:
    from klog.coordination.zookeeper import Stat, ZooKeeper

TREE_NODES_MAX = 100_000
"""A tree is read whole before it is shown; beyond this, ask for a part of it."""


@dataclass(frozen=True, slots=True)
class BrokerEntry:
    """One ``/brokers/ids/<id>``. `incarnation` is the czxid of this registration."""

    path: str
    version: int
    session: str | None
    broker: int
    host: str
    port: int
    jmx_port: int
    timestamp: datetime | str
    incarnation: int
    bind: str | None = field(metadata={"wide": True})
    rack: str | None = field(metadata={"wide": True})
    log_dirs: list[str] = field(metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """One ``/brokers/topics/<t>`` and what stands beside it. `replicas`: partition -> broker ids."""

    path: str
    version: int
    session: str | None
    topic: str
    topic_id: str | None
    partitions: int
    first_leader_epoch: int
    deleting: bool
    replicas: Mapping[str, list[int]] = field(metadata={"wide": True})
    config: Mapping[str, str] = field(metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class IsrEntry:
    """One ``/brokers/topics/<t>/partitions/<p>/state``; empty where the partition never had a leader.

    `catching_up`: replicas that are not in sync. `incarnations` are those of `isr`, in its order; `adding` and
    `removing` are in the topic's node while the partition is reassigned.
    """

    path: str
    version: int | None
    session: str | None
    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    isr: list[int]
    catching_up: list[int]
    controller_epoch: int | None
    new: bool = field(metadata={"wide": True})
    incarnations: list[int] = field(metadata={"wide": True})
    adding: list[int] = field(metadata={"wide": True})
    removing: list[int] = field(metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class ControllerEntry:
    """``/controller``, and the epoch it was elected under."""

    path: str
    version: int
    session: str | None
    broker: int
    epoch: int
    timestamp: datetime | str


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """One ``/klog/groups/<g>``, which says who holds the group, or one ``/consumers/<g>/ids/<id>``, a live consumer.

    `subscription`: topic, or filter, to the number of threads; `pattern` as 0.8 has it.
    """

    path: str
    version: int
    session: str | None
    group: str
    way: str | None
    generation: int | None
    members: int | None
    consumer: str | None
    pattern: str | None
    subscription: Mapping[str, int] | None
    timestamp: datetime | str | None
    protocol: str | None = field(metadata={"wide": True})
    assigned: bool | None = field(metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class OwnerEntry:
    """One ``/consumers/<g>/owners/<t>/<p>``. `claim`: how often the partition was claimed, where consumers do that."""

    path: str
    version: int
    session: str | None
    group: str
    topic: str
    partition: int
    owner: str
    claim: int | None = field(metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One znode in a listing. `session` is that of an ephemeral one."""

    path: str
    version: int
    session: str | None
    bytes: int
    children: int


@dataclass(frozen=True, slots=True)
class NodeData:
    """One znode with what it holds; bytes that are not text are shown in base64."""

    path: str
    version: int
    session: str | None
    data: bytes


@dataclass(frozen=True, slots=True)
class NodeStat:
    """zkCli's stat under its own names; `holder`: whose session an ephemeral node is, of brokers and consumers."""

    path: str
    c_zxid: int
    ctime: datetime | str
    m_zxid: int
    mtime: datetime | str
    p_zxid: int
    cversion: int
    data_version: int
    acl_version: int
    ephemeral_owner: str | None
    data_length: int
    num_children: int
    holder: str | None


# --- The registries, decoded ------------------------------------------------------------------------------------------


async def list_brokers(zookeeper: ZooKeeper) -> list[BrokerEntry]:
    """Every registered broker, by id."""
    return [
        BrokerEntry(
            path=paths.broker(entry.broker.broker_id),
            version=entry.version,
            session=_session(entry.session),
            broker=entry.broker.broker_id,
            host=entry.broker.host,
            port=entry.broker.port,
            jmx_port=entry.broker.jmx_port,
            timestamp=moment(entry.broker.timestamp_ms),
            incarnation=entry.incarnation,
            bind=entry.broker.bind or None,
            rack=entry.broker.rack or None,
            log_dirs=list(entry.broker.log_dirs),
        )
        for entry in await asyncio.to_thread(brokers.live, zookeeper)
    ]


async def list_topics(zookeeper: ZooKeeper) -> list[TopicEntry]:
    """Every registered topic, by name."""
    return await asyncio.to_thread(_topics, zookeeper)


def _topics(zookeeper: ZooKeeper) -> list[TopicEntry]:
    found = topics.read_all(zookeeper)
    names = [topic.name for topic in found]
    epochs = topics.first_leader_epochs(zookeeper, names)
    configs = topics.configs(zookeeper, names)
    deleting = set(topics.being_deleted(zookeeper))
    return [
        TopicEntry(
            path=paths.topic(topic.name),
            version=topic.version,
            session=None,
            topic=topic.name,
            topic_id=None if topic.topic_id is None else str(topic.topic_id),
            partitions=len(topic.partitions),
            first_leader_epoch=epochs[topic.name],
            deleting=topic.name in deleting,
            replicas={str(number): list(ids) for number, ids in topic.partitions.items()},
            config=configs[topic.name].settings,
        )
        for topic in found
    ]


async def list_isr(zookeeper: ZooKeeper) -> list[IsrEntry]:
    """The state of every partition, by topic and number."""
    return await asyncio.to_thread(_isr, zookeeper)


def _isr(zookeeper: ZooKeeper) -> list[IsrEntry]:
    found = topics.read_all(zookeeper)
    states = partition_states.read_many(zookeeper, [one for topic in found for one in topic.topic_partitions])
    rows = []
    for topic in found:
        for name in topic.topic_partitions:
            state, number = states[name], name.partition
            isr = list(state.isr) if state is not None else []
            rows.append(
                IsrEntry(
                    path=paths.partition_state(topic.name, number),
                    version=state.version if state is not None else None,
                    session=None,
                    topic=topic.name,
                    partition=number,
                    leader=state.leader if state is not None else None,
                    leader_epoch=state.leader_epoch if state is not None else None,
                    isr=isr,
                    catching_up=[broker for broker in topic.partitions[number] if broker not in isr],
                    controller_epoch=state.controller_epoch if state is not None else None,
                    new=state is not None and state.new,
                    incarnations=list(state.incarnations) if state is not None else [],
                    adding=list(topic.adding.get(number, ())),
                    removing=list(topic.removing.get(number, ())),
                )
            )
    return rows


async def show_controller(zookeeper: ZooKeeper) -> list[ControllerEntry]:
    """The controller; no row while there is none."""
    term = await asyncio.to_thread(controller_election.current, zookeeper)
    if term is None:
        return []
    return [
        ControllerEntry(
            paths.CONTROLLER,
            term.version,
            _session(term.session),
            term.broker_id,
            term.epoch,
            moment(term.timestamp_ms),
        )
    ]


async def list_groups(zookeeper: ZooKeeper, wanted: Sequence[str] = ()) -> list[GroupEntry]:
    """Who holds each group and which consumers live, of these groups or all; GroupIdNotFound."""
    return await asyncio.to_thread(_groups, zookeeper, wanted)


def _groups(zookeeper: ZooKeeper, wanted: Sequence[str]) -> list[GroupEntry]:
    from klog.coordination import groups

    if wanted:
        groups.check_known(zookeeper, wanted)
    names = list(wanted) or groups.names(zookeeper)
    states = group_states.read_many(zookeeper, names)
    live = consumers.live(zookeeper, names, of_members=True)
    rows = []
    for name in names:
        state = states[name]
        if state.version >= 0:
            rows.append(
                GroupEntry(
                    path=paths.group(name),
                    version=state.version,
                    session=None,
                    group=name,
                    way=state.group_protocol or None,
                    generation=state.generation,
                    members=len(state.members),
                    consumer=None,
                    pattern=None,
                    subscription=None,
                    timestamp=moment(state.modified_ms),
                    protocol=state.protocol or state.protocol_type or None,
                    assigned=state.is_assigned,
                )
            )
        rows += [
            GroupEntry(
                path=paths.consumer_id(name, one.consumer_id),
                version=0,
                session=_session(one.session),
                group=name,
                way=None,
                generation=None,
                members=None,
                consumer=one.consumer_id,
                pattern=one.pattern,
                subscription=one.subscription,
                timestamp=moment(one.timestamp_ms),
                protocol=None,
                assigned=None,
            )
            for one in live[name]
        ]
    return rows


async def list_owners(zookeeper: ZooKeeper, wanted: Sequence[str] = ()) -> list[OwnerEntry]:
    """Which thread of which consumer owns which partition, of these groups or all; GroupIdNotFound."""
    return await asyncio.to_thread(_owners, zookeeper, wanted)


def _owners(zookeeper: ZooKeeper, wanted: Sequence[str]) -> list[OwnerEntry]:
    from klog.coordination import groups

    if wanted:
        groups.check_known(zookeeper, wanted)
    names = list(wanted) or groups.names(zookeeper)
    owned = [(name, one) for name, some in consumers.owners(zookeeper, names).items() for one in sorted(some)]
    where = [paths.consumer_owner(name, *one) for name, one in owned]
    nodes = zookeeper.get_many([*where, *(paths.ownership_fence(name, *one) for name, one in owned)])
    return [
        OwnerEntry(
            path=path,
            version=node.stat.version,
            session=_session(node.stat.owner_session),
            group=name,
            topic=one.topic,
            partition=one.partition,
            owner=node.data.decode("utf-8", "replace"),
            claim=claim.stat.version if claim is not None else None,
        )
        for (name, one), path, node, claim in zip(owned, where, nodes[: len(where)], nodes[len(where) :], strict=True)
        if node is not None
    ]


# --- Raw --------------------------------------------------------------------------------------------------------------


async def list_nodes(zookeeper: ZooKeeper, path: str) -> list[NodeRow]:
    """The children of a node, by name; NoNode, naming the nearest node that is there."""
    return await asyncio.to_thread(_list, zookeeper, check_path(path))


async def tree(zookeeper: ZooKeeper, path: str, *, depth: int | None = None) -> list[NodeRow]:
    """A node and all below it, each parent before its children; `depth` 0 is the node alone."""
    return await asyncio.to_thread(_tree, zookeeper, check_path(path), depth)


NOT_SHOWN = b"(the cluster's secret is not shown)"


def true_path(zookeeper: ZooKeeper, path: str) -> str:
    """The path in ZooKeeper itself: a session's chroot may be inside a cluster's nodes, or above them."""
    return f"{zookeeper.address.chroot}{path}".rstrip("/")


def shown(zookeeper: ZooKeeper, path: str, data: bytes) -> bytes:
    """What may be shown of a node's data."""
    return NOT_SHOWN if true_path(zookeeper, path).endswith(paths.SECRET) else data


async def get_node(zookeeper: ZooKeeper, path: str) -> NodeData:
    """What a node holds."""
    path = check_path(path)
    try:
        node = await asyncio.to_thread(zookeeper.get, path)
    except NoNode as error:
        raise await asyncio.to_thread(_no_node, zookeeper, path) from error
    return NodeData(path, node.stat.version, _session(node.stat.owner_session), shown(zookeeper, path, node.data))


async def stat_node(zookeeper: ZooKeeper, path: str) -> NodeStat:
    """A node's metadata, and whose it is."""
    return await asyncio.to_thread(_stat, zookeeper, check_path(path))


SIBLINGS_MAX = 10_000
"""Nodes that are compared with a name that is not there; half a second."""
_NOT_IN_PATHS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_path(path: str) -> str:
    """The path without a slash at its end; UsageError for a path that is not absolute."""
    cleaned = "/" + path.strip("/")
    if not path.startswith("/") or "//" in cleaned or {".", ".."} & set(cleaned.split("/")):
        hint = "paths start with / and are relative to the chroot"
        if path and path[0] not in "./":
            hint = f"did you mean /{path}? {hint}"
        raise UsageError(f"{path!r} is not a ZooKeeper path", hint=hint)
    wrong = _NOT_IN_PATHS.search(path)
    if wrong is not None:  # ZooKeeper refuses them, and kazoo cannot even send some
        raise UsageError(f"{path!r} is not a ZooKeeper path: the character {wrong[0]!r} is not allowed")
    return cleaned


def _list(zookeeper: ZooKeeper, path: str) -> list[NodeRow]:
    try:
        names = zookeeper.children(path)
    except NoNode as error:
        raise _no_node(zookeeper, path) from error
    return _rows(zookeeper, [_child(path, name) for name in names])


def _tree(zookeeper: ZooKeeper, root: str, depth: int | None) -> list[NodeRow]:
    if zookeeper.exists(root) is None:
        raise _no_node(zookeeper, root)
    below: dict[str, list[str]] = {}
    level, seen = [root], 1
    while level and depth != 0:
        next_level = []
        for path, names in zip(level, zookeeper.children_many(level), strict=True):
            below[path] = [_child(path, name) for name in names]
            next_level += below[path]
        seen += len(next_level)
        if seen > TREE_NODES_MAX:
            raise UsageError(f"{root} has more than {TREE_NODES_MAX} nodes", hint="name a part of it, or a depth")
        level = next_level
        depth = None if depth is None else depth - 1
    ordered: list[str] = []
    stack = [root]
    while stack:
        path = stack.pop()
        ordered.append(path)
        stack += reversed(below.get(path, []))
    return _rows(zookeeper, ordered)


def _rows(zookeeper: ZooKeeper, listed: list[str]) -> list[NodeRow]:
    """What has gone since it was listed is left out."""
    return [
        NodeRow(
            path,
            node.stat.version,
            _session(node.stat.owner_session),
            node.stat.data_bytes,
            node.stat.children,
        )
        for path, node in zip(listed, zookeeper.get_many(listed), strict=True)
        if node is not None
    ]


def _stat(zookeeper: ZooKeeper, path: str) -> NodeStat:
    stat = zookeeper.exists(path)
    if stat is None:
        raise _no_node(zookeeper, path)
    return NodeStat(
        path=path,
        c_zxid=stat.created_zxid,
        ctime=moment(stat.created_ms),
        m_zxid=stat.modified_zxid,
        mtime=moment(stat.modified_ms),
        p_zxid=stat.children_zxid,
        cversion=stat.children_version,
        data_version=stat.version,
        acl_version=stat.acl_version,
        ephemeral_owner=_session(stat.owner_session),
        data_length=stat.data_bytes,
        num_children=stat.children,
        holder=_holder(zookeeper, stat),
    )


def _holder(zookeeper: ZooKeeper, stat: Stat) -> str | None:
    if not stat.owner_session:
        return None
    for entry in brokers.live(zookeeper):
        if entry.session == stat.owner_session:
            return f"broker {entry.broker.broker_id} ({host_port(entry.broker.host, entry.broker.port)})"
    from klog.coordination import groups

    for group, live in consumers.live(zookeeper, groups.names(zookeeper)).items():
        for one in live:
            if one.session == stat.owner_session:
                return f"consumer {one.consumer_id} of group {group}"
    return None


async def no_node(zookeeper: ZooKeeper, path: str) -> NoNode | None:
    """The error that a command would end with where there is no such node."""
    path = check_path(path)
    is_there = await asyncio.to_thread(zookeeper.exists, path)
    return await asyncio.to_thread(_no_node, zookeeper, path) if is_there is None else None


def _no_node(zookeeper: ZooKeeper, path: str) -> NoNode:
    above = [*reversed(paths.ancestors(path)), "/"]
    nearest = next((one for one in above if zookeeper.exists(one) is not None), "/")
    wrong, _, rest = path.removeprefix(nearest).lstrip("/").partition("/")
    siblings = zookeeper.children(nearest)[:SIBLINGS_MAX]
    near = [_child(nearest, name) for name in get_close_matches(wrong, siblings, n=2)]
    whole = [f"{one}/{rest}" for one in near if rest and zookeeper.exists(f"{one}/{rest}") is not None]
    meant = f"did you mean {' or '.join(whole or near)}? " if near else ""
    return NoNode(
        f"ZooKeeper at {zookeeper.address} has no node {path}", hint=f"{meant}the nearest node above it: {nearest}"
    )


def _child(path: str, name: str) -> str:
    return f"/{name}" if path == "/" else f"{path}/{name}"


def _session(session: int) -> str | None:
    """As ZooKeeper's own tools and logs print it; None for a persistent node."""
    return f"{session:#x}" if session else None
