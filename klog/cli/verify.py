"""``klog verify``: prove that replicas are what they are said to be."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.words import OptionalTopics
from klog.errors import UsageError
from klog.render import Report

verify = Noun("verify", "Prove that all replicas hold the same bytes.")


@verify.command("replicas", rows="klog.ops.verify_replicas:ReplicaRow")
async def replicas(
    invocation: Invocation,
    topics: OptionalTopics = None,
    regex: Annotated[
        str | None,
        typer.Option("-r", "--regex", metavar="RE", help="Topics whose whole name matches, besides those named."),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="What each broker reads at most: 50MB/s.")
    ] = None,
) -> Report:
    """Compare every replica of each partition, from the highest log start to the lowest high watermark.

    Checksums of ranges are compared first, then the first differing address is found. A replica that has a recorded
    hole is reported and no mismatch. Exit 1 on any mismatch, and where a replica could not be asked.
    """
    from klog.ops import verify_replicas
    from klog.ops.units import parse_rate

    wanted = parse_rate(rate) if rate is not None else None
    if wanted is not None and wanted.what != "bytes":
        raise UsageError(f"--rate {rate!r}: bytes a second are wanted", hint="write 50MB/s")
    began = time.monotonic()
    rows, read_bytes = await verify_replicas.verify_replicas(
        await invocation.cluster(),
        topics or (),
        pattern=regex,
        rate_bytes=wanted.per_second if wanted is not None else None,
    )
    took_s = max(time.monotonic() - began, 1e-9)
    bad = sum(row.is_mismatch for row in rows)
    failed = sum(row.error is not None for row in rows)
    found = f"{bad} differ" if bad else "no difference"
    unasked = f", {failed} could not be asked" if failed else ""
    footer = f"{len(rows)} replicas, {found}{unasked}; {read_bytes:,} bytes each way in {took_s:.1f} s"
    return invocation.report(rows, failed=bad > 0, footer=footer)
