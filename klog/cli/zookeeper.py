"""``klog zookeeper``: the embedded ZooKeeper server alone, and registries that a server has lost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from klog.admin import zookeeper as servers
from klog.cli.command import Noun
from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.cli.progress import at_work_without_loop, counting
from klog.cli.target import klog_home, profile_of_addresses
from klog.config import units
from klog.names import counted
from klog.render import Report
from klog.tools import registry_facts

zookeeper = Noun("zookeeper", "Run the embedded ZooKeeper server; rebuild what one has lost.")

ROWS = "klog.admin.zookeeper:ZooKeeperRow"

Directory = Annotated[Path | None, flag("--dir DIR", "Data folder; `zookeeper` in ~/.klog if not given.")]


@zookeeper.command("start", rows=ROWS, connects=False)
def start(
    invocation: Invocation,
    directory: Directory = None,
    port: int | None = flag("--port PORT", "Port; a free one if not given.", min=1, max=65535),
    listen: str | None = flag("--listen HOST", "Address to listen on [127.0.0.1]; 0.0.0.0 for all."),
    heap: int | None = flag(
        "--heap SIZE",
        "Maximum heap [a quarter of the memory up to 1 GiB, or an eighth; 256 MiB to 4 GiB].",
        parser=units.parse_size,
    ),
    server_id: int | None = flag("--id N", "Id of this server in the ensemble.", min=1, max=255),
    ensemble: str | None = flag(
        "--ensemble 1=HOST:PORT:PORT,...", "All servers of the ensemble, each with its two ports."
    ),
    tls: Path | None = flag(
        "--tls DIR", "Folder of `klog security init`: clients connect by TLS, and plain ones from this machine alone."
    ),
) -> list[Any]:
    """Start ZooKeeper in the background, and return when it is ready. A running server is left alone.

    Options that are not given keep their values from the last start on the same folder. A server of an ensemble (`--id
    1 --ensemble 1=a:2888:3888,2=b:2888:3888,3=c:2888:3888`, with other ids on the other hosts) returns at once and
    serves when a majority runs; its client port is 2181 unless --port is given.

    With --listen everyone who can reach the address reads and writes what `klog security zookeeper` has not closed.
    With --tls the connections are encrypted, those among the servers of an ensemble too, and --listen and --port are
    where. Plain connections then have a port of their own on 127.0.0.1.
    """
    with at_work_without_loop(invocation):
        row = servers.start(
            directory,
            klog_home(),
            port=port,
            host=listen,
            heap_bytes=heap,
            server_id=server_id,
            ensemble=ensemble,
            tls=tls,
        )
    return [row]


@zookeeper.command("stop", rows=ROWS, connects=False, asks=True)
def stop(invocation: Invocation, directory: Directory = None) -> Report:
    """Stop ZooKeeper, and wait until it has stopped. Asks first if a protected profile has its address."""
    running = servers.running(directory, klog_home())
    if running is not None:
        invocation.confirm(
            f"Stop ZooKeeper at {running.address}",
            invocation.report([running]),
            everywhere=False,
            of=profile_of_addresses(running.address),
        )
    invocation.end_dry_run("no ZooKeeper is running")
    with at_work_without_loop(invocation):
        rows = servers.stop(directory, klog_home())
    killed = any(row.state == "killed" for row in rows)
    return invocation.report(rows, failed=killed, footer=None if rows else "no ZooKeeper was running")


@zookeeper.command("status", rows=ROWS, connects=False)
def status(invocation: Invocation, directory: Directory = None) -> Report:
    """Show whether ZooKeeper runs: the given server, or all that klog has started on this machine.

    Exit 1 if one does not run.
    """
    rows = servers.status(directory, klog_home())
    down = not rows or any(row.state != "running" for row in rows)
    return invocation.report(rows, failed=down, footer=None if rows else "klog has not started a ZooKeeper here")


@zookeeper.command("rebuild", rows="klog.tools.registry_rebuild:RebuildRow", asks=True, changes=True)
async def rebuild(
    invocation: Invocation, dirs: list[Path] = flag("--dir DIR", "Log directories of all brokers.", ...)
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
    from klog.tools import registry_rebuild

    session = await invocation.empty_zookeeper()
    with registry_facts.held(dirs):
        with counting(invocation, "folders") as read:
            plan = registry_rebuild.plan_rebuild(await asyncio.to_thread(registry_facts.read_dirs, dirs, read))
        await asyncio.to_thread(registry_rebuild.check_target, session, plan)
        question = f"Rebuild cluster {plan.cluster_id}: {counted(len(plan.topics), 'topic')}"
        if plan.leaderless:
            question += f", {counted(plan.leaderless, 'partition')} without a leader until a broker is back"
        report = invocation.report(plan.rows)
        invocation.confirm(question, report)
        await asyncio.to_thread(znode_acls.begin, session)
        with counting(invocation, "topics") as written:
            await asyncio.to_thread(registry_rebuild.apply_rebuild, session, plan, written)
    return invocation.report(plan.rows, footer=f"cluster {plan.cluster_id} rebuilt; start its brokers")
