"""``klog why``: from a symptom to its first cause."""

from __future__ import annotations

from typing import Annotated

import typer

from klog.cli.arguments import position
from klog.cli.command import top_command
from klog.cli.invocation import Invocation
from klog.render import Report

SINCE = "@-7d"


@top_command("why", rows="klog.tools.why.causes:Step")
async def why(
    invocation: Invocation,
    subject: Annotated[
        list[str], typer.Argument(metavar="SUBJECT...", help="topic T, partition T-P, broker ID, or just a name.")
    ],
) -> Report:
    """Show why a partition has no leader or lacks in-sync replicas, or why a broker does not serve.

    One row per step, from the symptom to the cause; `-o wide` shows what helps. Exit 1 if there is a cause.
    """
    from klog.tools.why.gathering import why as find

    cluster = await invocation.cluster()
    target = invocation.target
    steps = await find(
        cluster, target.bootstrap, target.zookeeper, subject, position(SINCE, "--since"), invocation.timeout_s
    )
    return invocation.report(steps, failed=bool(steps), footer="" if steps else "nothing is wrong")
