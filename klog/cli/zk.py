"""``klog zk``: the content of ZooKeeper: znodes, with the entries of registries decoded, and znodes written by hand."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path as File
from typing import Annotated, Any

from klog.cli.command import Noun
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.name_cache import remember_more
from klog.errors import UsageError
from klog.names import counted
from klog.render import Report

zk = Noun("zk", "The content of ZooKeeper: znodes, and what the registries say.")


def checked_path(text: str) -> str:
    """UsageError, before anything is asked, for a text that is not a path."""
    from klog.admin.registries import check_path

    check_path(text)
    return text


Path = Annotated[str, argument("PATH", "Path of the znode below the chroot.", parser=checked_path)]


@zk.command("ls", rows="klog.admin.registries:NodeRow")
async def ls(invocation: Invocation, path: Path = "/") -> list[Any]:
    """List the children of a znode."""
    from klog.admin import registries

    rows = await asyncio.to_thread(registries.list_nodes, await invocation.zookeeper(), path)
    remember_more(invocation.target, "znodes", [row.path for row in rows])
    return rows


@zk.command("tree", rows="klog.admin.registries:NodeRow")
async def tree(
    invocation: Invocation,
    path: Path = "/",
    depth: int | None = flag("--depth N", "Levels to descend; 0 for the node alone.", min=0),
) -> list[Any]:
    """List a znode and everything below it.

    ENTRY is what the entry of a registry says: `/brokers/ids`, `/brokers/topics` with the leader and the in-sync
    replicas of each partition, `/controller`, `/consumers` with owners and offsets, `/klog/groups`. With `-o wide` each
    node's data are shown too: `grep`, `diff` and `watch` do the rest.
    """
    from klog.admin import registries

    rows = await asyncio.to_thread(registries.tree, await invocation.zookeeper(), path, depth=depth)
    remember_more(invocation.target, "znodes", [row.path for row in rows])
    return rows


@zk.command("get", rows="klog.admin.registries:NodeData")
async def get(invocation: Invocation, path: Path) -> list[Any]:
    """Show the data of a znode; with `-o wide` also decoded, where it is a registry's entry."""
    from klog.admin import registries

    return [await asyncio.to_thread(registries.get_node, await invocation.zookeeper(), path)]


@zk.command("stat", rows="klog.admin.registries:NodeStat")
async def stat(invocation: Invocation, path: Path) -> list[Any]:
    """Show the metadata of a znode, the session that owns an ephemeral one, and who may do what to it.

    ACL has `SCHEME:IDENTITY:cdrwa` for each identity: it may create and delete children, read, write, administer.
    ZooKeeper shows the digest of an identity as `x`, but to those who may change the list.
    """
    from klog.admin import registries

    return [await asyncio.to_thread(registries.stat_node, await invocation.zookeeper(), path)]


@zk.command("find", rows="klog.admin.registries:NodeRow")
async def find(
    invocation: Invocation, path: Path, pattern: str = argument("NAME", "Glob pattern of the znode's name.", ...)
) -> Report:
    """List the znodes below a path whose name matches a pattern. The exit code is 1 if none does."""
    from klog.admin import znodes

    rows = await asyncio.to_thread(znodes.find, await invocation.zookeeper(), path, pattern)
    return invocation.report(rows, footer=counted(len(rows), "znode"), failed=not rows)


Data = Annotated[str | None, argument("DATA", "The data; - for standard input; empty if not given.")]
DataFile = Annotated[File | None, flag("--file FILE", "Read the data from this file.")]
Version = Annotated[int, flag("--version N", "Version that `klog zk get` has shown.", min=0)]


@zk.command("set", rows="klog.admin.znodes:ZnodeChange", asks=True, changes=True, acts=True)
async def set_data(
    invocation: Invocation, path: Path, version: Version, data: Data = None, file: DataFile = None
) -> Report:
    """Replace the data of a znode. Asks first; refused if the znode has changed since that version.

    Brokers and consumers act on what ZooKeeper has: most of it has a command of its own. The change is an act, which
    `klog undo` takes back.
    """
    from klog.admin import znodes

    wanted, session = _data(data, file), await invocation.zookeeper()
    return await _write(invocation, session, await asyncio.to_thread(znodes.plan_set, session, path, wanted, version))


@zk.command("create", rows="klog.admin.znodes:ZnodeChange", asks=True, changes=True, acts=True)
async def create(invocation: Invocation, path: Path, data: Data = None, file: DataFile = None) -> Report:
    """Create a znode below an existing one. Asks first. The change is an act, which `klog undo` takes back."""
    from klog.admin import znodes

    wanted, session = _data(data, file), await invocation.zookeeper()
    return await _write(invocation, session, await asyncio.to_thread(znodes.plan_create, session, path, wanted))


@zk.command("rm", rows="klog.admin.znodes:ZnodeChange", asks=True, changes=True, acts=True)
async def remove(invocation: Invocation, path: Path, version: Version) -> Report:
    """Delete a znode that has no children. Asks first; refused if it has changed since that version.

    The change is an act, which `klog undo` takes back, unless the node was ephemeral.
    """
    from klog.admin import znodes

    session = await invocation.zookeeper()
    return await _write(invocation, session, await asyncio.to_thread(znodes.plan_delete, session, path, version))


async def _write(invocation: Invocation, session: Any, plan: Any) -> Report:
    from klog.admin import znodes

    owner = f" of session {plan.session}" if plan.session is not None else ""
    invocation.confirm(f"{plan.change.capitalize()} znode {plan.path}{owner}", invocation.report([plan]))
    await asyncio.to_thread(znodes.write, session, plan)
    return invocation.report([plan])


def _data(data: str | None, file: File | None) -> bytes:
    if file is not None:
        if data is not None:
            raise UsageError("DATA and --file exclude each other")
        try:
            return file.read_bytes()
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    return sys.stdin.buffer.read() if data == "-" else (data or "").encode()
