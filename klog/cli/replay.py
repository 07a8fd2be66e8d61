"""``klog replay``: a range of a topic copied into another one."""

from __future__ import annotations

import asyncio
from typing import Any

from klog.cli.arguments import Count, MostRate, Partitions, all_partitions
from klog.cli.command import top_command
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.progress import counting
from klog.cli.target import OTHER_CLUSTER
from klog.client.positions import Range, parse_range
from klog.errors import UsageError
from klog.names import counted
from klog.render import Report


def speed(word: str) -> float:
    """``2x``, ``0.5x`` or ``1`` as a number above 0."""
    try:
        found = float(word.removesuffix("x"))
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError(f"{word!r} is not a speed", hint="2x replays at twice the original pace")
    return found


@top_command("replay", rows="klog.tools.copying.replay:ReplayedRange", dry_run=True)
async def replay(
    invocation: Invocation,
    source: str = argument("SRC", "The topic to copy from.", ...),
    into: str = argument("DST", "The topic to copy into; made if it is missing.", ...),
    from_range: Range | None = flag(
        "--from RANGE", "Range A:B to copy, or start position; everything if not given.", parser=parse_range
    ),
    partitions: Partitions = None,
    count: Count = None,
    rate: MostRate = None,
    speed: float | None = flag("--speed 2x", "Original pace, times this factor.", parser=speed),
    to_bootstrap_server: str | None = flag(
        "--to-bootstrap-server", "The cluster of DST, if it is another one.", metavar=OTHER_CLUSTER
    ),
    again: bool = flag("--again", "Copy messages again that DST already has."),
) -> Report:
    """Copy messages of a topic into another one, with keys, headers, timestamps and partitions.

    Each message is copied exactly once, even if the command is interrupted and started again: in each partition it
    continues behind the last message of the range that DST has.
    """
    from klog.tools.copying import replay as replaying
    from klog.tools.copying.cluster_endpoint import ClusterEndpoint

    dry_run = invocation.shared.dry_run
    options = replaying.ReplayOptions(
        range=from_range,
        partitions=all_partitions(partitions),
        count=count,
        rate=rate,
        speed=speed,
        again=again,
        dry_run=dry_run,
    )
    await invocation.cluster()
    if not dry_run:
        invocation.check_may_change(to_bootstrap_server)
    bootstrap = await invocation.bootstrap_servers()
    into_servers = bootstrap
    if to_bootstrap_server is not None:
        into_servers = await invocation.other_servers(to_bootstrap_server, "--to-bootstrap-server")

    async def side(address: str, role: str) -> ClusterEndpoint:
        one = await ClusterEndpoint(
            address, role, timeout_s=invocation.timeout_s, patience_s=replaying.PATIENCE_S, note=invocation.say
        ).open()
        invocation.closing.push_async_callback(one.close)
        return one

    reader, writer = await side(bootstrap, "source"), await side(into_servers, "target")
    rows: list[Any] = []
    try:
        with counting(invocation, "messages" if count else "bytes") as done:
            found = await replaying.replay(reader, writer, source, into, options, rows=rows, count=done)
    except asyncio.CancelledError:
        if not rows:
            raise
        return _report(invocation, rows, "stopped; the same command continues from here")
    return _report(invocation, found, None, "would be copied" if dry_run else "copied")


def _report(invocation: Invocation, rows: list[Any], more: str | None, done: str = "copied") -> Report:
    total = f"{counted(sum(row.messages or 0 for row in rows), 'message')} {done}"
    return invocation.report(rows, footer=total if more is None else f"{total}; {more}")
