"""The page of ``klog status --html``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from klog.cli.target import klog_home
from klog.render import Report

if TYPE_CHECKING:
    from klog.cli.invocation import Invocation


async def write_page(invocation: Invocation, file: str) -> Report | None:
    """Write a self-contained page without scripts: state, findings, rates of the last day, groups, acts and events."""
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
    row = cluster_report.ReportRow(file, len(data), len(facts.findings), len(facts.brokers), facts.hours)
    missing = tuple(f"not on the page: {one}" for one in facts.missing)
    return Report(invocation.command, cluster_report.ReportRow, [row], notes=missing)
