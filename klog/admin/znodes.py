"""Raw znodes: found by name, and written by hand.

What is written by hand is an act, in the same transaction, and is written at the version that the operator has seen:
a node that a broker changed meanwhile stays as it is. What takes a session blocks.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from klog.admin.acts import here
from klog.admin.registries import NodeData, NodeRow, check_path, get_node, tree, true_path
from klog.coordination import paths
from klog.coordination.acts import ZNODE_CREATE, ZNODE_DELETE, ZNODE_SET, Actor, new_act
from klog.coordination.zookeeper import Create, Delete, Operation, SetData, ZooKeeper
from klog.errors import BadVersion, NodeExists, NoNode, Refused

DATA_BYTES_MAX: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class ZnodeChange:
    """What is written by hand: create, set or delete. ``version`` is that of the node before, None where there is
    none."""

    path: str
    change: str
    version: int | None
    before: bytes | None
    after: bytes | None
    session: str | None = field(default=None, metadata={"wide": True})


# --- Found ------------------------------------------------------------------------------------------------------------


def find(zookeeper: ZooKeeper, path: str, pattern: str) -> list[NodeRow]:
    """The nodes below a path whose name matches a glob pattern."""
    return [row for row in tree(zookeeper, path) if fnmatchcase(row.path.rpartition("/")[2], pattern)]


# --- Written by hand --------------------------------------------------------------------------------------------------


def plan_set(zookeeper: ZooKeeper, path: str, data: bytes, version: int) -> ZnodeChange:
    """What setting a node's data changes. NoNode; Refused where the node is at another version."""
    now = _at_version(zookeeper, path, version)
    return ZnodeChange(now.path, "set", version, now.data, _checked(data), now.session)


def plan_create(zookeeper: ZooKeeper, path: str, data: bytes) -> ZnodeChange:
    """What creating a node changes. Refused where it exists, or its parent does not."""
    path = _writable(zookeeper, path)
    parent = path.rpartition("/")[0] or "/"
    stat = zookeeper.exists(path)
    if stat is not None:
        raise Refused(f"znode {path} exists already, at version {stat.version}", hint="`klog zk set` sets its data")
    if zookeeper.exists(parent) is None:
        raise Refused(f"znode {path} cannot be created: {parent} does not exist", hint="create the parent first")
    return ZnodeChange(path, "create", None, None, _checked(data))


def plan_delete(zookeeper: ZooKeeper, path: str, version: int) -> ZnodeChange:
    """What deleting a node changes. NoNode; Refused where it is at another version, or has children."""
    now = _at_version(zookeeper, path, version)
    names = zookeeper.children(now.path)
    if names:
        raise Refused(f"znode {now.path} has {len(names)} children, such as {names[0]}", hint="delete those first")
    return ZnodeChange(now.path, "delete", version, now.data, None, now.session)


def write(zookeeper: ZooKeeper, plan: ZnodeChange, actor: Actor | None = None) -> None:
    """Carry it out, with its act. Refused where the node has changed since the plan."""
    operation: Operation
    if plan.change == "set":
        kind, operation = ZNODE_SET, SetData(plan.path, plan.after or b"", plan.version or 0)
    elif plan.change == "create":
        kind, operation = ZNODE_CREATE, Create(plan.path, plan.after or b"")
    else:
        kind, operation = ZNODE_DELETE, Delete(plan.path, plan.version or 0)
    act = new_act(
        kind,
        actor or here(zookeeper),
        path=plan.path,
        before=_state(plan.before, plan.version, plan.session),
        after=_state(plan.after, 0 if plan.version is None else plan.version + 1, plan.session),
    )
    zookeeper.ensure_path(paths.ACTS)
    try:
        zookeeper.multi([operation, act.write])
    except (BadVersion, NodeExists, NoNode) as error:
        raise Refused(
            f"znode {plan.path} has changed meanwhile, and nothing was written: {error.message}",
            hint=f"`klog zk get {shlex.quote(plan.path)}` shows it",
        ) from None


def _state(data: bytes | None, version: int | None, session: str | None) -> dict[str, Any] | None:
    """A node in an act; bytes that are not text are in base64. ``session``: of an ephemeral one."""
    if data is None:
        return None
    shown: dict[str, Any] = {"version": version}
    try:
        shown["data"] = data.decode()
    except UnicodeDecodeError:
        shown["base64"] = base64.b64encode(data).decode()
    return shown if session is None else {**shown, "session": session}


def data_of(state: Mapping[str, Any]) -> bytes:
    """The data of a node in an act. ValueError, KeyError, TypeError where it cannot be read."""
    return base64.b64decode(state["base64"]) if "base64" in state else str(state["data"]).encode()


def _at_version(zookeeper: ZooKeeper, path: str, version: int) -> NodeData:
    now = get_node(zookeeper, _writable(zookeeper, path))
    if now.version != version:
        raise Refused(
            f"znode {now.path} is at version {now.version}, not {version}",
            hint=f"`klog zk get {shlex.quote(now.path)}` shows it",
        )
    return now


def _writable(zookeeper: ZooKeeper, path: str) -> str:
    """Refused for the cluster's secret and for acts: what commands write there could only mislead."""
    path = check_path(path)
    true = true_path(zookeeper, path)
    if path == "/" or any(f"{one}/" in f"{true}/" for one in (paths.SECRET, paths.ACTS)):
        raise Refused(f"znode {true or path} is not written by hand: brokers alone write the secret and the acts")
    return path


def _checked(data: bytes) -> bytes:
    if len(data) > DATA_BYTES_MAX:
        raise Refused(f"a znode's data has at most {DATA_BYTES_MAX} bytes here, got {len(data)}")
    return data
