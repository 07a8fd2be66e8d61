"""What ZooKeeper holds: znodes, with their entries decoded where they are of a registry.

Nothing here writes, and no chroot is ever made: a session on a missing one is refused by `ZooKeeper.start`. What takes
a session blocks.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from klog.coordination import brokers, consumers, group_states, groups, paths
from klog.coordination.znode_acls import letters
from klog.coordination.zookeeper import Stat, ZooKeeper
from klog.errors import NoNode, UsageError, ZooKeeperError
from klog.names import host_port
from klog.render.values import moment, rfc3339

Data = bytes
"""A name for the type where a column is called ``bytes``."""
TREE_NODES_MAX = 100_000
"""A tree is read whole before it is shown; beyond this, ask for a part of it."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One znode in a listing. `session` is that of an ephemeral one; `entry`: what it says, of a registry's entry."""

    path: str
    version: int
    session: str | None
    bytes: int
    children: int
    entry: str | None
    data: Data = field(default=b"", metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class NodeData:
    """One znode with what it holds; bytes that are not text are shown in base64."""

    path: str
    version: int
    session: str | None
    data: bytes
    entry: str | None = field(default=None, metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class NodeStat:
    """zkCli's stat under its own names; `holder`: whose session an ephemeral node is, of brokers and consumers; `acl`:
    the entries of its list, as zkCli takes them, None where the session may not read it."""

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
    acl: tuple[str, ...] | None


NOT_SHOWN = b"(the cluster's secret is not shown)"


def true_path(zookeeper: ZooKeeper, path: str) -> str:
    """The path in ZooKeeper itself: a session's chroot may be inside a cluster's nodes, or above them."""
    return f"{zookeeper.address.chroot}{path}".rstrip("/")


def shown(zookeeper: ZooKeeper, path: str, data: bytes) -> bytes:
    """What may be shown of a node's data."""
    return NOT_SHOWN if true_path(zookeeper, path).endswith(paths.SECRET) else data


_REGISTRIES: Final = re.compile(
    r"/(brokers/ids/\d+|brokers/topics/[^/]+(/partitions/\d+/state)?|controller|controller_epoch|config/topics/[^/]+"
    r"|consumers/[^/]+/(ids/[^/]+|(owners|offsets)/[^/]+/\d+)|klog/groups/[^/]+)$"
)
"""Where entries are that are shown decoded; none of them has a secret."""


def entry_text(path: str, data: bytes) -> str | None:
    """What the entry of a registry says; None for other nodes, and for what cannot be read."""
    if _REGISTRIES.search(path) is None:
        return None
    try:
        found = json.loads(group_states.unpacked(path, data))
    except (ValueError, RecursionError, ZooKeeperError):
        return data.decode("utf-8", "replace")  # an owner's name
    if not isinstance(found, dict):
        return str(found)
    return " ".join(f"{name}={_value_text(name, one)}" for name, one in found.items() if name != "version") or None


def _value_text(name: str, value: Any) -> str:
    if name == "timestamp" and str(value).isdecimal():
        at = moment(int(value))
        return at if isinstance(at, str) else rfc3339(at)
    if isinstance(value, list):
        return str(len(value)) if any(isinstance(one, dict) for one in value) else ",".join(map(str, value))
    if isinstance(value, dict):
        return ";".join(f"{key}:{_value_text(key, one)}" for key, one in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def get_node(zookeeper: ZooKeeper, path: str) -> NodeData:
    """What a node holds."""
    path = check_path(path)
    try:
        node = zookeeper.get(path)
    except NoNode as error:
        raise no_node(zookeeper, path) from error
    data, entry = shown(zookeeper, path, node.data), entry_text(true_path(zookeeper, path), node.data)
    return NodeData(path, node.stat.version, _session(node.stat.owner_session), data, entry)


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


def list_nodes(zookeeper: ZooKeeper, path: str) -> list[NodeRow]:
    """The children of a node, by name; NoNode, naming the nearest node that is there."""
    path = check_path(path)
    try:
        names = zookeeper.children(path)
    except NoNode as error:
        raise no_node(zookeeper, path) from error
    return _rows(zookeeper, [_child(path, name) for name in names])


def tree(zookeeper: ZooKeeper, root: str, *, depth: int | None = None) -> list[NodeRow]:
    """A node and all below it, each parent before its children; `depth` 0 is the node alone."""
    root = check_path(root)
    if zookeeper.exists(root) is None:
        raise no_node(zookeeper, root)
    found = level = [root]
    while level and depth != 0:
        below = zip(level, zookeeper.children_many(level), strict=True)
        level = [_child(path, name) for path, names in below for name in names]
        found = [*found, *level]
        if len(found) > TREE_NODES_MAX:
            raise UsageError(f"{root} has more than {TREE_NODES_MAX} nodes", hint="name a part of it, or a depth")
        depth = None if depth is None else depth - 1
    return _rows(zookeeper, sorted(found, key=lambda path: path.split("/")))


def _rows(zookeeper: ZooKeeper, listed: list[str]) -> list[NodeRow]:
    """What has gone since it was listed is left out."""
    return [
        NodeRow(
            path,
            node.stat.version,
            _session(node.stat.owner_session),
            node.stat.data_bytes,
            node.stat.children,
            entry_text(true_path(zookeeper, path), node.data),
            shown(zookeeper, path, node.data),
        )
        for path, node in zookeeper.find_many(listed).items()
    ]


def stat_node(zookeeper: ZooKeeper, path: str) -> NodeStat:
    """A node's metadata, and whose it is."""
    path = check_path(path)
    stat = zookeeper.exists(path)
    if stat is None:
        raise no_node(zookeeper, path)
    (acl,) = zookeeper.acls_many([path], readable=True)
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
        acl=None if acl is None else tuple(f"{one.scheme}:{one.identity}:{letters(one.permissions)}" for one in acl),
    )


def _holder(zookeeper: ZooKeeper, stat: Stat) -> str | None:
    if not stat.owner_session:
        return None
    for entry in brokers.live(zookeeper):
        if entry.session == stat.owner_session:
            return f"broker {entry.broker.broker_id} ({host_port(entry.broker.host, entry.broker.port)})"
    for group, live in consumers.live(zookeeper, groups.names(zookeeper)).items():
        for one in live:
            if one.session == stat.owner_session:
                return f"consumer {one.consumer_id} of group {group}"
    return None


def no_node(zookeeper: ZooKeeper, path: str) -> NoNode:
    """The error where there is no such node."""
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
