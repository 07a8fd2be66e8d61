"""``klog election``: leaders, elected on request."""

from __future__ import annotations

from typing import Annotated

import typer

from klog.cli.command import Noun
from klog.cli.complete import topic_names
from klog.cli.invocation import Invocation
from klog.render import Report

election = Noun("election", "Elect leaders on request.")


@election.command("preferred", rows="klog.ops.election:ElectionRow")
async def preferred(
    invocation: Invocation,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Only this topic; else all.", autocompletion=topic_names)
    ] = None,
) -> Report:
    """Give partitions back to their preferred leaders, the first of each assignment, where those are in sync."""
    from klog.ops.election import elect_preferred

    rows = await elect_preferred(await invocation.cluster(), topic)
    changed = sum(row.old != row.new for row in rows)
    failed = sum(row.error is not None for row in rows)
    if not changed and not failed:
        return invocation.report(rows, footer="every partition is led by its preferred replica")
    unable = f"; {failed} preferred replicas cannot lead now" if failed else ""
    return invocation.report(rows, footer=f"{changed} partitions have another leader{unable}")
