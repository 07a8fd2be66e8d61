"""``klog zk``: the content of ZooKeeper: decoded registries and raw znodes; nothing here writes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from klog.cli.arguments import OptionalGroups
from klog.cli.command import Noun
from klog.cli.invocation import Invocation

zk = Noun("zk", "Show the content of ZooKeeper: registries and raw znodes.")

Path = Annotated[str, typer.Argument(metavar="PATH", help="Path of the znode below the chroot.")]


@zk.command("brokers", rows="klog.admin.registries:BrokerEntry")
async def brokers(invocation: Invocation) -> list[Any]:
    """Show the broker registry, decoded."""
    from klog.admin import registries

    return await registries.list_brokers(await invocation.zookeeper())


@zk.command("topics", rows="klog.admin.registries:TopicEntry")
async def topics(invocation: Invocation) -> list[Any]:
    """Show the topic registry, decoded."""
    from klog.admin import registries

    return await registries.list_topics(await invocation.zookeeper())


@zk.command("groups", rows="klog.admin.registries:GroupEntry")
async def groups(invocation: Invocation, names: OptionalGroups = None) -> list[Any]:
    """Show the consumer registry, decoded: the coordinator of each group, and the live consumers."""
    from klog.admin import registries

    return await registries.list_groups(await invocation.zookeeper(), names or ())


@zk.command("owners", rows="klog.admin.registries:OwnerEntry")
async def owners(invocation: Invocation, names: OptionalGroups = None) -> list[Any]:
    """Show the ownership registry, decoded: which consumer of a group reads which partition."""
    from klog.admin import registries

    return await registries.list_owners(await invocation.zookeeper(), names or ())


@zk.command("isr", rows="klog.admin.registries:IsrEntry")
async def isr(invocation: Invocation) -> list[Any]:
    """Show the leader and the in-sync replicas of each partition, as written by the controller and the leaders."""
    from klog.admin import registries

    return await registries.list_isr(await invocation.zookeeper())


@zk.command("controller", rows="klog.admin.registries:ControllerEntry")
async def controller(invocation: Invocation) -> list[Any]:
    """Show which broker is the controller, and since when."""
    from klog.admin import registries

    return await registries.show_controller(await invocation.zookeeper())


@zk.command("ls", rows="klog.admin.registries:NodeRow")
async def ls(invocation: Invocation, path: Path = "/") -> list[Any]:
    """List the children of a znode."""
    from klog.admin import registries

    registries.check_path(path)
    return await registries.list_nodes(await invocation.zookeeper(), path)


@zk.command("tree", rows="klog.admin.registries:NodeRow")
async def tree(
    invocation: Invocation,
    path: Path = "/",
    depth: Annotated[
        int | None, typer.Option("--depth", metavar="N", min=0, help="Levels to descend; 0 for the node alone.")
    ] = None,
) -> list[Any]:
    """List a znode and everything below it."""
    from klog.admin import registries

    registries.check_path(path)
    return await registries.tree(await invocation.zookeeper(), path, depth=depth)


@zk.command("get", rows="klog.admin.registries:NodeData")
async def get(invocation: Invocation, path: Path) -> list[Any]:
    """Show the data of a znode."""
    from klog.admin import registries

    registries.check_path(path)
    return [await registries.get_node(await invocation.zookeeper(), path)]


@zk.command("stat", rows="klog.admin.registries:NodeStat")
async def stat(invocation: Invocation, path: Path) -> list[Any]:
    """Show the metadata of a znode, and the session that owns an ephemeral one."""
    from klog.admin import registries

    registries.check_path(path)
    return [await registries.stat_node(await invocation.zookeeper(), path)]
