"""``klog export run --follow``: its flags, its signals, and a row for each batch as it is committed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from klog.cli.flags import duration, flag
from klog.cli.invocation import Invocation, is_terminal
from klog.config import units
from klog.errors import UsageError
from klog.export.rows import ExportedRange
from klog.names import counted
from klog.render import Format, Report, render
from klog.signals import StopRequest

DEFAULT_EVERY_S = 10.0

Follow = Annotated[bool, flag("--follow", "Keep exporting new messages in one run of Spark until stopped.")]
Every = Annotated[
    float | None, flag("--every DURATION", "With --follow: interval between batches (10s).", parser=duration)
]

EveryBytes = Annotated[
    int | None,
    flag(
        "--every-bytes SIZE", "With --follow: begin a batch sooner, when so many bytes wait.", parser=units.parse_size
    ),
]

OneRun = Callable[[], Sequence[ExportedRange]]


def check_following(
    invocation: Invocation, *, follow: bool, every: float | None, every_bytes: int | None, once: bool
) -> None:
    """UsageError where flags contradict each other."""
    if not follow and (every is not None or every_bytes is not None):
        raise UsageError(f"{'--every-bytes' if every is None else '--every'} needs --follow")
    if follow and once:
        raise UsageError("--follow and --dry-run exclude each other")
    if follow and invocation.shared.output in (Format.JSON, Format.YAML):
        raise UsageError(
            f"--output {invocation.shared.output.value} is for a single report, and --follow shows many",
            hint="-o jsonl",
        )


def progress_line(invocation: Invocation) -> Callable[[str], None] | None:
    """Shows a line on stderr in place of the one before; None where no person looks at it."""
    if invocation.shared.quiet or invocation.shared.verbose or not is_terminal(sys.stderr):
        return None

    def show(text: str) -> None:
        invocation.has_shown = True
        invocation.clear_line()
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    return show


async def run_on(
    invocation: Invocation,
    root: str,
    one_run: OneRun,
    warm_up: Callable[[], Any],
    every_s: float,
    tell: Callable[[Sequence[ExportedRange]], Awaitable[None]] | None,
    is_due: Callable[[], bool],
) -> None:
    """Follow until SIGINT or SIGTERM; the batch in hand is committed or discarded then. A second one ends it at once.

    ``warm_up`` starts Spark after the first run, so that the first new message does not wait for it.
    """
    from klog.export.follow import follow

    loop = asyncio.get_running_loop()
    stop = threading.Event()
    asked = StopRequest()
    shown = _Rows(invocation, root)

    def stopping(number: int) -> None:
        if not asked.again():
            return
        if asked.count > 1:
            os._exit(128 + number)
        invocation.say("stopping after the current batch")
        stop.set()

    def on_batch(rows: Sequence[ExportedRange]) -> None:
        shown.show(rows)
        if tell is not None:
            asyncio.run_coroutine_threadsafe(_told(tell, rows), loop).result()

    warm = False

    def run() -> Sequence[ExportedRange]:
        nonlocal warm
        rows = one_run()
        if not warm and not stop.is_set():
            warm_up()
            warm = True
        return rows

    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stopping, one)
    batches = await asyncio.to_thread(follow, run, every_s, stop, on_batch=on_batch, is_due=is_due, say=invocation.say)
    invocation.say(f"stopped after {counted(batches, 'batch', 'batches')}; the next run continues from here")


async def _told(tell: Callable[[Sequence[ExportedRange]], Awaitable[None]], rows: Sequence[ExportedRange]) -> None:
    await tell(rows)


class _Rows:
    """Committed batches, one row each: a table on a terminal, JSON Lines for another program."""

    def __init__(self, invocation: Invocation, root: str) -> None:
        chosen = invocation.shared.output
        self._invocation = invocation
        self._root = root
        self._form = chosen or (Format.TABLE if is_terminal(sys.stdout) else Format.JSONL)
        self._header = not invocation.shared.no_header

    def show(self, ranges: Sequence[ExportedRange]) -> None:
        from klog.export.listing import ExportedBatch, batch_of

        batch = batch_of(self._root, ranges)
        if batch is None:
            return
        report = Report(self._invocation.command, ExportedBatch, [batch])
        render(report, self._form, sys.stdout, header=self._header, terminal=is_terminal(sys.stdout))
        sys.stdout.flush()
        self._header = False
