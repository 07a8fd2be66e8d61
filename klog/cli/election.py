"""``klog election``: leaders, elected on request."""

from __future__ import annotations

from typing import Annotated

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.name_cache import topic_names
from klog.render import Report
from klog.render.counts import counted

election = Noun("election", "Elect leaders on request.")


@election.command("preferred", rows="klog.admin.elections:ElectionRow", changes=True)
async def preferred(
    invocation: Invocation,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC|TOPIC-P",
            help="Only these topics and partitions; all topics if not given.",
            autocompletion=topic_names,
        ),
    ] = None,
) -> Report:
    """Elect the preferred leader of each partition, the first of its replicas, if it is in sync."""
    from klog.admin.elections import elect_preferred

    rows = await elect_preferred(await invocation.cluster(), names or ())
    changed = sum(row.old != row.new for row in rows)
    failed = sum(row.error is not None for row in rows)
    if not changed and not failed:
        return invocation.report(rows, footer="the preferred replica already leads every partition")
    unable = f"; {counted(failed, 'preferred replica')} cannot lead now" if failed else ""
    return invocation.report(rows, footer=f"{counted(changed, 'partition')} with a new leader{unable}")
