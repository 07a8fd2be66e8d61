"""``klog zookeeper``: the embedded ZooKeeper server alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.target import klog_home
from klog.render import Report

zookeeper = Noun("zookeeper", "The embedded ZooKeeper server.")

ROWS = "klog.ops.zookeeper:ZooKeeperRow"

Directory = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="Where its data is; `zookeeper` in ~/.klog if not given.")
]


@zookeeper.command("start", rows=ROWS, connects=False)
def start(
    invocation: Invocation,
    directory: Directory = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Its port; else a free one.")
    ] = None,
) -> list[Any]:
    """Start it in the background, and come back when it serves. One that runs there stays as it is."""
    from klog.ops import zookeeper as servers

    return [servers.start(directory, klog_home(), port=port)]


@zookeeper.command("stop", rows=ROWS, connects=False)
def stop(invocation: Invocation, directory: Directory = None) -> Report:
    """Stop it, and wait until it is gone."""
    from klog.ops import zookeeper as servers

    rows = servers.stop(directory, klog_home())
    killed = any(row.state == "killed" for row in rows)
    return invocation.report(rows, failed=killed, footer=None if rows else "no ZooKeeper was running there")


@zookeeper.command("status", rows=ROWS, connects=False)
def status(invocation: Invocation, directory: Directory = None) -> Report:
    """Show whether it runs: the one named, or those of this machine that klog has started. Exit 1 when one does not."""
    from klog.ops import zookeeper as servers

    rows = servers.status(directory, klog_home())
    down = not rows or any(row.state != "running" for row in rows)
    return invocation.report(rows, failed=down, footer=None if rows else "no ZooKeeper was ever started here")
