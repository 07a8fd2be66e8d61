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


@export.command("report", rows="klog.ops.export.page:ExportPage")
async def report(
    invocation: Invocation,
    root: Root,
    file: Annotated[
        str | None,
        typer.Option("-O", "--to", metavar="FILE", help="Where the page goes (NAME.html of ROOT here); - is stdout."),
    ] = None,
    thorough: Annotated[
        bool, typer.Option("--verify", help="Read every file of the export again, as `klog export verify` does.")
    ] = False,
    without_brokers: Annotated[
        bool, typer.Option("--without-brokers", help="Do not ask the brokers how far the export is behind.")
    ] = False,
) -> Report | int:
    """Make one page of HTML about an export: plots, tables, checks; no server and nothing from elsewhere.

    Messages and bytes over time, the delay between a message's time and its commit, what is behind, where the brokers
    answer, and what is wrong. Exit 1 where something is.
    """
    from klog.ops.export import page

    servers, why = None, "the brokers were not to be asked (--without-brokers)."
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
    await asyncio.to_thread(page.write, target, data)
    row = page.ExportPage(str(target), len(data), len(facts.manifests), facts.messages, facts.state)
    return invocation.report([row], notes=tuple(facts.findings), failed=facts.state == "broken")
