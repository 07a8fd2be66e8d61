"""``klog top``: the cluster, live."""

from __future__ import annotations

from klog.cli.command import top_command
from klog.cli.flags import flag, limit
from klog.cli.invocation import Invocation
from klog.cli.live_screen import live


@top_command("top", rows="klog.tools.top.facts:TopTick")
async def top(
    invocation: Invocation, every: float | None = flag("--every DURATION", "Refresh interval (2s).", parser=limit)
) -> int | None:
    """Show the cluster live: brokers, topics, partitions in trouble, groups by lag, events; in a pipe as JSON Lines.

    Keys: Tab and arrows choose, Enter goes deeper, w asks why, / filters, s sorts, h shows all keys, q leaves. A large
    cluster is asked less often than the interval says, so that looking costs it less than 2 % of a core.
    """
    return await live(invocation, every)
