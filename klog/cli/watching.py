"""``--watch``: a report again and again, on a terminal in place, in a pipe as JSON Lines."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from klog.cli.flags import flag, limit
from klog.cli.invocation import Invocation
from klog.errors import KlogError, UsageError
from klog.render import Format, Report
from klog.render.visible import is_terminal

WATCH_EVERY_S = 2.0
LINES_KEPT = 4
"""Of a terminal's height: the header, what was left out, the sum, and the cursor's line."""

Watch = Annotated[bool, flag("--watch", "Refresh until Ctrl-C; in a pipe as JSON Lines.")]
Every = Annotated[float | None, flag("--every DURATION", "With --watch: refresh interval (2s).", parser=limit)]


def check_watchable(invocation: Invocation, *, watch: bool, every: float | None = None, flag: str = "--watch") -> None:
    """UsageError where the format holds one report only, and for an interval of what is shown once."""
    if every is not None and not watch:
        raise UsageError("--every needs --watch", hint="it is the interval at which --watch refreshes")
    if watch and invocation.output in (Format.JSON, Format.YAML):
        raise UsageError(
            f"--output {invocation.output.value} is for a single report, and {flag} shows many", hint="use -o jsonl"
        )


def rows_as_they_come(invocation: Invocation) -> Callable[[Sequence[Any]], None]:
    """What shows some more rows at once, under one header; in a pipe as JSON Lines unless a format is given."""
    _json_lines_in_a_pipe(invocation)
    invocation.has_shown = True

    def show(rows: Sequence[Any]) -> None:
        report = Report(invocation.command, type(rows[0]), rows) if rows else invocation.report(rows)
        invocation.show(report, out=sys.stdout)
        invocation.shared = replace(invocation.shared, no_header=True)

    return show


def _json_lines_in_a_pipe(invocation: Invocation) -> None:
    if invocation.shared.output is None and not is_terminal(sys.stdout):
        invocation.shared = replace(invocation.shared, output=Format.JSONL)


class Watched:
    """Reports in the place of one another on a terminal, as many of their newest rows as fit; one behind the other
    elsewhere, in a pipe as JSON Lines unless a format is given."""

    def __init__(self, invocation: Invocation) -> None:
        _json_lines_in_a_pipe(invocation)
        self._invocation = invocation
        self.is_live = is_terminal(sys.stdout) and invocation.output in (Format.TABLE, Format.WIDE)

    def show(self, report: Report, *, is_last: bool = False) -> int:
        """The exit code that the report asks for. The last one is whole: none takes its place."""
        if self.is_live:
            sys.stdout.write("\x1b[H\x1b[J")
        if self.is_live and not is_last:
            rows = list(report.rows)
            room = max(1, shutil.get_terminal_size().lines - LINES_KEPT - len(report.notes))
            hidden = len(rows) - room
            more = (f"{hidden} more",) if hidden > 0 else ()
            report = replace(report, rows=rows[:room], notes=(*more, *report.notes))
        return self._invocation.show(report, out=sys.stdout)


async def watch(
    invocation: Invocation,
    look: Callable[[], Awaitable[Report]],
    every_s: float | None = None,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Show what each look reports, every `WATCH_EVERY_S` where no interval is given, until stopped or until it is over;
    the exit code."""
    watched, loop = Watched(invocation), asyncio.get_running_loop()
    seen = False
    while True:
        due = loop.time() + (every_s or WATCH_EVERY_S)
        try:
            report = await look()
        except KlogError as error:
            if not (seen and error.retriable):
                raise
            invocation.warn(error.message)  # who watches a cluster wants to see it come back, too
        else:
            seen = True
            is_last = is_over()
            code = watched.show(report, is_last=is_last)
            if is_last:
                return code
        await asyncio.sleep(max(0.0, due - loop.time()))
