"""``klog topic verify``: verify that all replicas hold the same bytes."""

from __future__ import annotations

import time

from klog.cli.arguments import OptionalTopics, regular_expression
from klog.cli.flags import flag, limit
from klog.cli.invocation import Invocation
from klog.cli.progress import Done, progress
from klog.cli.topic.noun import topic
from klog.cli.watching import check_watchable, watch_rows
from klog.errors import UsageError
from klog.names import counted
from klog.render import Report


@topic.command("verify", rows="klog.tools.verify_replicas:ReplicaRow")
async def verify(
    invocation: Invocation,
    topics: OptionalTopics = None,
    regex: str | None = flag("-r --regex RE", "Also topics whose whole name matches this regular expression."),
    rate: str | None = flag("--rate RATE", "Limit on what each broker reads, as 50MB/s."),
    every: float | None = flag("--every DURATION", "Compare again at this interval, until Ctrl-C.", parser=limit),
) -> Report | None:
    """Compare all replicas of each partition, from the highest log start offset to the lowest high watermark.

    It compares checksums of ranges, then finds the first address that differs. A replica with a recorded hole is
    reported, but not as a mismatch. Exit 1 on any mismatch, or if a replica cannot be read.
    """
    from klog.config.units import parse_rate
    from klog.tools import verify_replicas

    regular_expression(regex, "--regex")
    wanted = parse_rate(rate) if rate is not None else None
    if wanted is not None and wanted.what != "bytes":
        raise UsageError(f"--rate {rate!r}: expected bytes per second", hint="write 50MB/s")
    cluster = await invocation.cluster()

    async def compare() -> tuple[list[verify_replicas.ReplicaRow], str, bool]:
        began = time.monotonic()
        runs: list[verify_replicas.Verification] = []
        async with progress(
            invocation, lambda: Done(runs[0].read_bytes, runs[0].total_bytes) if runs else None, unit="bytes"
        ):
            rows, read_bytes = await verify_replicas.verify_replicas(
                cluster,
                topics or (),
                pattern=regex,
                rate_bytes=wanted.per_second if wanted is not None else None,
                begun=runs.append,
            )
        took_s = max(time.monotonic() - began, 1e-9)
        bad = sum(row.is_mismatch for row in rows)
        failed = sum(row.error is not None for row in rows)
        found = f"{bad} differ" if bad else "no differences"
        unasked = f", {failed} not readable" if failed else ""
        size = f"{read_bytes:,} bytes read per replica in {took_s:.1f} s"
        return rows, f"{counted(len(rows), 'replica')}, {found}{unasked}; {size}", bad > 0

    if every is None:
        rows, footer, is_bad = await compare()
        return invocation.report(rows, failed=is_bad, footer=footer)
    check_watchable(invocation, watch=True, flag="--every")

    async def look() -> tuple[list[verify_replicas.ReplicaRow], str, tuple[str, ...]]:
        rows, footer, _ = await compare()
        return rows, footer, ()

    await watch_rows(invocation, look, every)
    return None
