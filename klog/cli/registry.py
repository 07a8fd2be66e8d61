"""``klog registry``: the registries in ZooKeeper, made anew. What is in them `klog zk` shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.render import Report

registry = Noun("registry", "The registries in ZooKeeper: rebuild them when they are lost.")


@registry.command("rebuild", rows="klog.tools.registry_rebuild:RebuildRow", asks=True)
async def rebuild(
    invocation: Invocation,
    dirs: Annotated[
        list[Path], typer.Option("--dir", metavar="DIR", help="A log dir of a broker; give those of all brokers.")
    ],
) -> Report:
    """Rebuild the registries from the brokers' log dirs after ZooKeeper has lost its data.

    Asks first, with a preview. Stop all brokers before. The ZooKeeper must be empty. Topics come back
    with their ids, partitions, settings and replicas. Of each partition the replica that goes furthest counts, so
    nothing that was acknowledged is lost. Give the log dirs of every broker that still has them: a partition that only
    a missing one had in sync waits for it. Groups with their offsets, and schemas, were in ZooKeeper alone.
    """
    import asyncio

    from klog.cli import connect
    from klog.tools import registry_facts, registry_rebuild

    zookeeper = await connect.open_empty_zookeeper(invocation)
    with registry_facts.held(dirs):
        plan = registry_rebuild.plan_rebuild(await asyncio.to_thread(registry_facts.read_dirs, dirs))
        await asyncio.to_thread(registry_rebuild.check_target, zookeeper, plan)
        question = f"Rebuild cluster {plan.cluster_id}: {len(plan.topics)} topics"
        if plan.leaderless:
            question += f", {plan.leaderless} partitions without a leader until a broker is back"
        report = invocation.report(plan.rows)
        invocation.confirm(question, report)
        await asyncio.to_thread(registry_rebuild.apply_rebuild, zookeeper, plan)
    return invocation.report(plan.rows, footer=f"cluster {plan.cluster_id} is rebuilt; start its brokers")
