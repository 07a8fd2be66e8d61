"""``klog why``: from a symptom to its first cause."""

from __future__ import annotations

from typing import Annotated

import typer

from klog.cli.arguments import position
from klog.cli.command import top_command
from klog.cli.invocation import Invocation
from klog.cli.name_cache import subjects
from klog.cli.target import klog_home
from klog.render import Format, Report

SINCE = "@-7d"


@top_command("why", rows="klog.tools.why.steps:Step")
async def why(
    invocation: Invocation,
    subject: Annotated[
        list[str],
        typer.Argument(
            metavar="SUBJECT",
            help="topic T, partition T-P, group G, broker ID, message T-P OFFSET, denied [PRINCIPAL], "
            "throttled [NAME], or a name.",
            autocompletion=subjects,
        ),
    ],
) -> Report:
    """Show the cause of trouble of a topic, partition, group, broker or message; why requests were denied or throttled.

    Of a partition without a leader or in-sync replicas, a group that does not move, a topic that is gone, a broker that
    does not serve, a message that cannot be read. One row per step, from the symptom to the cause, and then what to
    do. Exit 1 if there is a cause. Of a partition that is well it shows who leads, and since when. `denied` shows the
    last denials, of one principal or of all, and the rule that decides. `throttled` shows which clients have had to
    wait, of one user or client id or of all, for which quota, who set it, and how to lift it.
    """
    from klog.tools.why.gathering import parsed
    from klog.tools.why.gathering import why as find

    asked = parsed(subject)
    cluster = await invocation.cluster()
    target = invocation.target
    steps = await find(
        cluster,
        invocation.zookeeper,
        (target.bootstrap, target.zookeeper),
        klog_home(),
        asked,
        position(SINCE, "--since"),
        invocation.timeout_s,
    )
    helps = next((step.do for step in reversed(steps) if step.do is not None), None)
    footer = "nothing is wrong" if helps is None else f"to do: {helps}" if invocation.output is Format.TABLE else ""
    return invocation.report(steps, failed=helps is not None, footer=footer)
