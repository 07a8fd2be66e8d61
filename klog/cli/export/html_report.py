"""``klog export report``: an export as a page of HTML."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from klog.cli.export.noun import Root, export, servers_of
from klog.cli.invocation import Invocation
from klog.errors import KlogError
from klog.render import Report


@export.command("report", rows="klog.export.page:ExportPage")
async def report(
    invocation: Invocation,
    root: Root,
    file: Annotated[
        str | None,
        typer.Option("-O", "--to", metavar="FILE", help="Output file (NAME.html, after ROOT); - for stdout."),
    ] = None,
    thorough: Annotated[
        bool, typer.Option("--verify", help="Also read and check every file, as `klog export verify` does.")
    ] = False,
    without_brokers: Annotated[
        bool, typer.Option("--without-brokers", help="Leave the lag out; needs no broker.")
    ] = False,
) -> Report | int:
    """Write an HTML page about an export: plots, tables and checks. The page is one self-contained file.

    It shows messages and bytes over time, the delay between a message's timestamp and its commit, the lag if the
    brokers answer, and all problems found. Exit 1 on any problem.
    """
    from klog.export import page
    from klog.render.page import write

    servers, why = None, "not shown: --without-brokers."
    if not without_brokers:
        try:
            servers = await servers_of(invocation)
        except KlogError as error:
            why = error.message
    facts = await asyncio.to_thread(page.gather, servers, root, thorough=thorough, no_brokers=why)
    text = page.render(facts)
    if file == "-":
        sys.stdout.write(text)
        return int(facts.state == "broken")
    target = Path(file or f"{Path(root.rstrip('/')).name or 'export'}.html")
    data = text.encode()
    await asyncio.to_thread(write, target, data)
    row = page.ExportPage(str(target), len(data), len(facts.manifests), facts.messages, facts.state)
    return invocation.report([row], notes=page.notes(facts), failed=facts.state == "broken")
