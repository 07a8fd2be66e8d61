"""``klog report``: pages about a cluster."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.target import klog_home
from klog.render import Report

report = Noun("report", "Pages about a cluster.")


@report.command("cluster", rows="klog.tools.cluster_report:ReportRow")
async def cluster_page(
    invocation: Invocation,
    file: Annotated[str, typer.Option("--to", metavar="FILE", help="Output file, such as morning.html; - for stdout.")],
) -> Report | None:
    """Write an HTML page about the cluster: state, findings, rates of the last day, groups, acts and events.

    The page is one self-contained file and needs no script. Brokers remember a day of their rates, since their start.
    """
    from klog.render.page import write
    from klog.tools import cluster_report

    cluster = await invocation.cluster()
    facts = await cluster_report.gather(
        cluster,
        invocation.zookeeper,
        bootstrap=await invocation.bootstrap_servers(),
        zookeeper_address=invocation.target.zookeeper,
        home=klog_home(),
    )
    text = await asyncio.to_thread(cluster_report.render, facts)
    if file == "-":
        sys.stdout.write(text)
        return None
    data = text.encode("utf-8", "replace")
    await asyncio.to_thread(write, Path(file), data)
    row = cluster_report.ReportRow(file, len(data), len(facts.findings), len(facts.tick.brokers), facts.hours)
    return invocation.report([row], notes=tuple(f"not on the page: {one}" for one in facts.missing))
