"""Raw znodes: found by name or data, compared, watched, and written by hand.

What is written by hand is an act, in the same transaction, and is written at the version that the operator has seen:
a node that a broker changed meanwhile stays as it is.
"""

from __future__ import annotations

import asyncio
import base64
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from klog.admin.acts import here
from klog.admin.registries import NodeData, NodeRow, check_path, get_node, shown, tree, true_path
from klog.clock import SYSTEM_CLOCK, Clock
from klog.coordination import paths
from klog.coordination.acts import ZNODE_CREATE, ZNODE_DELETE, ZNODE_SET, Actor, new_act
from klog.coordination.zookeeper import Create, Delete, Operation, SetData
from klog.errors import BadVersion, NodeExists, NoNode, Refused, UsageError

if TYPE_CHECKING:
    import re

    from klog.coordination.zookeeper import Stat, ZooKeeper

DATA_BYTES_MAX: Final = 512 * 1024
WATCHED_MAX: Final = 1_000
"""Each node has two watches."""
READ_AT_ONCE: Final = 1_000

ONLY_HERE: Final = "only here"
ONLY_THERE: Final = "only there"
DIFFERS: Final = "differs"


@dataclass(frozen=True, slots=True)
class ZnodeDifference:
    """A node that is not the same on both sides. ``here`` and ``there``: what it holds, None if it does not exist."""

    path: str
    state: str
    here: bytes | None
    there: bytes | None


@dataclass(frozen=True, slots=True)
class ZnodeEvent:
    """What happened to a node: created, changed, deleted."""

    time: datetime
    path: str
    what: str
    version: int | None
    data: bytes | None


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


async def find(zookeeper: ZooKeeper, path: str, pattern: str) -> list[NodeRow]:
    """The nodes below a path whose name matches a glob pattern."""
    return [row for row in await tree(zookeeper, path) if fnmatchcase(row.path.rpartition("/")[2], pattern)]


async def grep(zookeeper: ZooKeeper, path: str, pattern: re.Pattern[bytes]) -> list[NodeData]:
    """The nodes at and below a path whose data has a match."""
    rows = [row for row in await tree(zookeeper, path) if row.bytes]
    found = []
    for at in range(0, len(rows), READ_AT_ONCE):
        part = rows[at : at + READ_AT_ONCE]
        nodes = await asyncio.to_thread(zookeeper.get_many, [row.path for row in part])
        for row, node in zip(part, nodes, strict=True):
            data = b"" if node is None else shown(zookeeper, row.path, node.data)
            if node is not None and data is node.data and pattern.search(data):
                found.append(NodeData(row.path, node.stat.version, row.session, data, row.entry))
    return found


# --- Compared ---------------------------------------------------------------------------------------------------------


async def compare(zookeeper: ZooKeeper, path: str, other: ZooKeeper, other_path: str) -> list[ZnodeDifference]:
    """What differs between two trees, by the paths relative to them; of either side's own path where only it has it."""
    ours, theirs = await _contents(zookeeper, path), await _contents(other, other_path)
    rows = []
    for name in sorted(ours.keys() | theirs.keys()):
        mine, other_one = ours.get(name), theirs.get(name)
        if mine != other_one:
            state = ONLY_HERE if other_one is None else ONLY_THERE if mine is None else DIFFERS
            rows.append(ZnodeDifference(f"{check_path(path).rstrip('/')}{name}" or "/", state, mine, other_one))
    return rows


async def _contents(zookeeper: ZooKeeper, path: str) -> dict[str, bytes]:
    root = check_path(path).rstrip("/")
    rows = await tree(zookeeper, path)
    found = {}
    for at in range(0, len(rows), READ_AT_ONCE):
        listed = [row.path for row in rows[at : at + READ_AT_ONCE]]
        for one, node in zip(listed, await asyncio.to_thread(zookeeper.get_many, listed), strict=True):
            if node is not None:
                found[one.removeprefix(root)] = shown(zookeeper, one, node.data)
    return found


# --- Watched ----------------------------------------------------------------------------------------------------------


async def watch(
    zookeeper: ZooKeeper, path: str, show: Callable[[ZnodeEvent], bool], *, clock: Clock = SYSTEM_CLOCK
) -> None:
    """Show what happens to a node and those below it, until ``show`` says that this is enough.

    Changes of a node that follow one another at once can be shown as one: ZooKeeper's watches tell only that there was
    a change.
    """
    path = check_path(path)
    loop = asyncio.get_running_loop()
    fired = asyncio.Event()

    def on_event(_: object) -> None:
        loop.call_soon_threadsafe(fired.set)

    before = await asyncio.to_thread(_watched, zookeeper, path, on_event)
    while True:
        await fired.wait()
        fired.clear()
        now = await asyncio.to_thread(_watched, zookeeper, path, on_event)
        time = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
        for event in _events(before, now, time):
            if not show(event):
                return
        before = now


def _watched(zookeeper: ZooKeeper, root: str, on_event: Callable[[Any], None]) -> dict[str, tuple[Stat, bytes]]:
    """The nodes at and below a path, each with watches. Empty where the path does not exist, which is watched too."""
    found: dict[str, tuple[Stat, bytes]] = {}
    waiting = [root]
    while waiting:
        path = waiting.pop()
        if zookeeper.exists(path, on_event) is None:
            continue
        try:
            node = zookeeper.get(path, on_event)
            names = zookeeper.children(path, on_event)
        except NoNode:
            continue  # its watch has fired
        found[path] = node.stat, shown(zookeeper, path, node.data)
        waiting += [f"{path.rstrip('/')}/{name}" for name in names]
        if len(found) + len(waiting) > WATCHED_MAX:
            raise UsageError(f"{root} has more than {WATCHED_MAX} nodes", hint="watch a part of it")
    return found


def _events(
    before: Mapping[str, tuple[Stat, bytes]], now: Mapping[str, tuple[Stat, bytes]], time: datetime
) -> Iterator[ZnodeEvent]:
    for path in sorted(before.keys() | now.keys()):
        old, new = before.get(path), now.get(path)
        if new is None:
            yield ZnodeEvent(time, path, "deleted", None, None)
        elif old is None or old[0].created_zxid != new[0].created_zxid:
            yield ZnodeEvent(time, path, "created", new[0].version, new[1])
        elif old[0].version != new[0].version:
            yield ZnodeEvent(time, path, "changed", new[0].version, new[1])


# --- Written by hand --------------------------------------------------------------------------------------------------


async def plan_set(zookeeper: ZooKeeper, path: str, data: bytes, version: int) -> ZnodeChange:
    """What setting a node's data changes. NoNode; Refused where the node is at another version."""
    now = await _at_version(zookeeper, path, version)
    return ZnodeChange(now.path, "set", version, now.data, _checked(data), now.session)


async def plan_create(zookeeper: ZooKeeper, path: str, data: bytes) -> ZnodeChange:
    """What creating a node changes. Refused where it exists, or its parent does not."""
    path = _writable(zookeeper, path)
    parent = path.rpartition("/")[0] or "/"
    exists, stat = await asyncio.to_thread(lambda: [zookeeper.exists(one) for one in (path, parent)])
    if exists is not None:
        raise Refused(f"znode {path} exists already, at version {exists.version}", hint="`klog zk set` sets its data")
    if stat is None:
        raise Refused(f"znode {path} cannot be created: {parent} does not exist", hint="create the parent first")
    return ZnodeChange(path, "create", None, None, _checked(data))


async def plan_delete(zookeeper: ZooKeeper, path: str, version: int) -> ZnodeChange:
    """What deleting a node changes. NoNode; Refused where it is at another version, or has children."""
    now = await _at_version(zookeeper, path, version)
    names = await asyncio.to_thread(zookeeper.children, now.path)
    if names:
        raise Refused(f"znode {now.path} has {len(names)} children, such as {names[0]}", hint="delete those first")
    return ZnodeChange(now.path, "delete", version, now.data, None, now.session)


async def write(zookeeper: ZooKeeper, plan: ZnodeChange, actor: Actor | None = None) -> None:
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

    def multi() -> None:
        zookeeper.ensure_path(paths.ACTS)
        zookeeper.multi([operation, act.write])

    try:
        await asyncio.to_thread(multi)
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


async def _at_version(zookeeper: ZooKeeper, path: str, version: int) -> NodeData:
    now = await get_node(zookeeper, _writable(zookeeper, path))
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
