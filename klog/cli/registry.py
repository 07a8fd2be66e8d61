"""``klog registry``: rebuild the registries in ZooKeeper. `klog zk` shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.render import Report
from klog.render.counts import counted

registry = Noun("registry", "Rebuild lost registries of ZooKeeper.")


@registry.command("rebuild", rows="klog.tools.registry_rebuild:RebuildRow", asks=True, changes=True)
async def rebuild(
    invocation: Invocation,
    dirs: Annotated[list[Path], typer.Option("--dir", metavar="DIR", help="Log directories of all brokers.")],
) -> Report:
    """Rebuild the registries from the brokers' log directories after ZooKeeper has lost its data.

    Asks first, with a preview. Stop all brokers before. The ZooKeeper must be empty. Topics come back with their ids,
    partitions, settings and replicas. For each partition the most complete replica counts, so no acknowledged message
    is lost. Give the log directories of every broker that still has them: a partition whose only in-sync replica is
    missing stays offline until that broker is back. Groups with their offsets, and schemas, are not restored: only
    ZooKeeper had them.
    """
    import asyncio

    from klog.admin import znode_acls
    from klog.cli import connect
    from klog.cli.progress import counting
    from klog.tools import registry_facts, registry_rebuild

    zookeeper = await connect.open_empty_zookeeper(invocation)
    with registry_facts.held(dirs):
        async with counting(invocation, "folders") as read:
            plan = registry_rebuild.plan_rebuild(await asyncio.to_thread(registry_facts.read_dirs, dirs, read))
        await asyncio.to_thread(registry_rebuild.check_target, zookeeper, plan)
        question = f"Rebuild cluster {plan.cluster_id}: {counted(len(plan.topics), 'topic')}"
        if plan.leaderless:
            question += f", {counted(plan.leaderless, 'partition')} without a leader until a broker is back"
        report = invocation.report(plan.rows)
        invocation.confirm(question, report)
        await asyncio.to_thread(znode_acls.begin, zookeeper)
        async with counting(invocation, "topics") as written:
            await asyncio.to_thread(registry_rebuild.apply_rebuild, zookeeper, plan, written)
    return invocation.report(plan.rows, footer=f"cluster {plan.cluster_id} rebuilt; start its brokers")
