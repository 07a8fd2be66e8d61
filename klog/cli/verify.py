"""``klog verify``: verify that all replicas hold the same bytes."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from klog.cli.arguments import OptionalTopics
from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.progress import Done, progress
from klog.errors import UsageError
from klog.render import Report
from klog.render.counts import counted

verify = Noun("verify", "Verify that all replicas hold the same bytes.")


@verify.command("replicas", rows="klog.tools.verify_replicas:ReplicaRow")
async def replicas(
    invocation: Invocation,
    topics: OptionalTopics = None,
    regex: Annotated[
        str | None,
        typer.Option(
            "-r", "--regex", metavar="RE", help="Also topics whose whole name matches this regular expression."
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="Limit on what each broker reads, as 50MB/s.")
    ] = None,
) -> Report:
    """Compare all replicas of each partition, from the highest log start offset to the lowest high watermark.

    It compares checksums of ranges, then finds the first address that differs. A replica with a recorded hole is
    reported, but not as a mismatch. Exit 1 on any mismatch, or if a replica cannot be read.
    """
    from klog.config.units import parse_rate
    from klog.tools import verify_replicas

    wanted = parse_rate(rate) if rate is not None else None
    if wanted is not None and wanted.what != "bytes":
        raise UsageError(f"--rate {rate!r}: expected bytes per second", hint="write 50MB/s")
    began = time.monotonic()
    runs: list[verify_replicas.Verification] = []
    cluster = await invocation.cluster()
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
    footer = (
        f"{counted(len(rows), 'replica')}, {found}{unasked}; {read_bytes:,} bytes read per replica in {took_s:.1f} s"
    )
    return invocation.report(rows, failed=bad > 0, footer=footer)
