"""``klog replay``: a range of a topic copied into another one."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer

from klog.cli.command import top_command
from klog.cli.complete import topic_names
from klog.cli.invocation import Invocation
from klog.cli.words import Partitions, all_partitions, position_range
from klog.errors import UsageError
from klog.ops import units
from klog.render import Report


def speed(word: str) -> float:
    """``2x``, ``0.5x`` or ``1`` as a number above 0."""
    try:
        found = float(word.removesuffix("x"))
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError(f"{word!r} is no speed", hint="write 2x for twice as fast as the messages were written")
    return found


@top_command("replay", rows="klog.ops.copying.replay:ReplayedRange")
async def replay(
    invocation: Invocation,
    source: Annotated[str, typer.Argument(metavar="SRC", help="The topic to copy from.", autocompletion=topic_names)],
    into: Annotated[str, typer.Argument(metavar="DST", help="The topic to copy into; made if it is missing.")],
    from_range: Annotated[
        str | None,
        typer.Option("--from", metavar="RANGE", help="What to copy: A:B, or from a position on; all if not given."),
    ] = None,
    partitions: Partitions = None,
    count: Annotated[
        int | None, typer.Option("-c", "--count", metavar="N", min=0, help="Stop after N messages.")
    ] = None,
    rate: Annotated[
        units.Rate | None,
        typer.Option("--rate", metavar="RATE", parser=units.parse_rate, help="At most 500/s (messages) or 20MB/s."),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option("--speed", metavar="2x", parser=speed, help="As they were written, so many times as fast."),
    ] = None,
    to_bootstrap_server: Annotated[
        str | None,
        typer.Option("--to-bootstrap-server", metavar="HOST:PORT,...", help="The cluster of DST, if another."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Copy it also where DST has it already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be copied, and copy nothing.")] = False,
) -> Report:
    """Copy messages of a topic into another one: keys, headers, times and partitions are kept.

    Each message is copied once, also when the command is stopped and begun again: in each partition it goes on behind
    the last message of the range that DST has.
    """
    from klog.ops.copying import replay as replaying
    from klog.ops.copying.side import Side

    options = replaying.ReplayOptions(
        range=position_range(from_range, "--from") if from_range is not None else None,
        partitions=all_partitions(partitions),
        count=count,
        rate=rate,
        speed=speed,
        again=again,
        dry_run=dry_run,
    )
    await invocation.cluster()
    bootstrap = await invocation.bootstrap_servers()

    def side(address: str, role: str) -> Side:
        return Side(
            address,
            role,
            timeout_s=invocation.timeout_s,
            patience_s=replaying.PATIENCE_S,
            note=invocation.say,
        )

    reader = await side(bootstrap, "source").open()
    invocation.closing.push_async_callback(reader.close)
    writer = await side(to_bootstrap_server or bootstrap, "target").open()
    invocation.closing.push_async_callback(writer.close)
    shown = _Shown(invocation)
    try:
        rows = await replaying.replay(reader, writer, source, into, options, note=invocation.say, show=shown)
    except asyncio.CancelledError:
        if not shown.rows:
            raise
        return _report(invocation, shown.rows, "stopped; the same command goes on from here")
    return _report(invocation, rows, None, "would be copied" if dry_run else "copied")


def _report(invocation: Invocation, rows: list[Any], more: str | None, done: str = "copied") -> Report:
    total = f"{sum(row.messages or 0 for row in rows):,} messages {done}"
    return invocation.report(rows, footer=total if more is None else f"{total}; {more}")


class _Shown:
    """The rows as last told, and how far it is, on a terminal."""

    def __init__(self, invocation: Invocation) -> None:
        self.rows: list[Any] = []
        self._is_live = sys.stderr.isatty() and not invocation.shared.quiet

    def __call__(self, rows: list[Any]) -> None:
        self.rows = rows
        if self._is_live:
            done = sum(row.messages for row in rows)
            sys.stderr.write(f"\r{done:,} messages")
            sys.stderr.flush()
