"""``klog zk``: what stands in ZooKeeper. The registries decoded, and znodes as they are; nothing here writes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.words import OptionalGroups

zk = Noun("zk", "What stands in ZooKeeper: registries and raw znodes.")

Path = Annotated[str, typer.Argument(metavar="PATH", help="The znode, seen from the chroot.")]


@zk.command("brokers", rows="klog.ops.registries:BrokerEntry")
async def brokers(invocation: Invocation) -> list[Any]:
    """Show the broker registry, decoded."""
    from klog.ops import registries

    return await registries.list_brokers(await invocation.zookeeper())


@zk.command("topics", rows="klog.ops.registries:TopicEntry")
async def topics(invocation: Invocation) -> list[Any]:
    """Show the topic registry, decoded."""
    from klog.ops import registries

    return await registries.list_topics(await invocation.zookeeper())


@zk.command("groups", rows="klog.ops.registries:GroupEntry")
async def groups(invocation: Invocation, names: OptionalGroups = None) -> list[Any]:
    """Show the consumer registry, decoded: who holds each group, and which consumers live."""
    from klog.ops import registries

    return await registries.list_groups(await invocation.zookeeper(), names or ())


@zk.command("owners", rows="klog.ops.registries:OwnerEntry")
async def owners(invocation: Invocation, names: OptionalGroups = None) -> list[Any]:
    """Show the ownership registry, decoded: which consumer of a group reads which partition."""
    from klog.ops import registries

    return await registries.list_owners(await invocation.zookeeper(), names or ())


@zk.command("isr", rows="klog.ops.registries:IsrEntry")
async def isr(invocation: Invocation) -> list[Any]:
    """Show each partition's leader and replicas in sync, as the controller and the leaders have written them."""
    from klog.ops import registries

    return await registries.list_isr(await invocation.zookeeper())


@zk.command("controller", rows="klog.ops.registries:ControllerEntry")
async def controller(invocation: Invocation) -> list[Any]:
    """Show which broker is the controller, and since when."""
    from klog.ops import registries

    return await registries.show_controller(await invocation.zookeeper())


@zk.command("ls", rows="klog.ops.registries:NodeRow")
async def ls(invocation: Invocation, path: Path = "/") -> list[Any]:
    """List the children of a znode."""
    from klog.ops import registries

    registries.check_path(path)
    return await registries.list_nodes(await invocation.zookeeper(), path)


@zk.command("tree", rows="klog.ops.registries:NodeRow")
async def tree(
    invocation: Invocation,
    path: Path = "/",
    depth: Annotated[
        int | None, typer.Option("--depth", metavar="N", min=0, help="How far down; 0 is the node alone.")
    ] = None,
) -> list[Any]:
    """List a znode and all below it."""
    from klog.ops import registries

    registries.check_path(path)
    return await registries.tree(await invocation.zookeeper(), path, depth=depth)


@zk.command("get", rows="klog.ops.registries:NodeData")
async def get(invocation: Invocation, path: Path) -> list[Any]:
    """Show what a znode holds."""
    from klog.ops import registries

    registries.check_path(path)
    return [await registries.get_node(await invocation.zookeeper(), path)]


@zk.command("stat", rows="klog.ops.registries:NodeStat")
async def stat(invocation: Invocation, path: Path) -> list[Any]:
    """Show a znode's metadata, and whose session an ephemeral one is."""
    from klog.ops import registries

    registries.check_path(path)
    return [await registries.stat_node(await invocation.zookeeper(), path)]
