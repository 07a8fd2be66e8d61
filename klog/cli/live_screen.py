"""The live screen of ``klog top`` and ``klog status --watch``."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from klog.admin.group_lag import LagRow, in_order
from klog.admin.metrics import MetricRow, read_metrics
from klog.cli import interrupt
from klog.cli.invocation import Invocation
from klog.cli.target import klog_home
from klog.cli.watching import watch
from klog.errors import KlogError, UsageError
from klog.render import Format, Report, render
from klog.render.visible import is_terminal
from klog.tools.events import EventRow, row
from klog.tools.top.facts import PartitionLine, TopTick, partition_lines
from klog.tools.top.gathering import ANSWER_S, Gatherer
from klog.tools.top.screen import Deeper, Screen
from klog.tools.why.gathering import parsed, why
from klog.tools.why.steps import Step, numbered

EVERY_S = 2.0
WHY_WIDTH = 78
REDRAW_S = 1.0


async def live(invocation: Invocation, every: float | None) -> int | None:
    """The screen until its person leaves, or a line each interval until stopped."""
    invocation.has_shown = True
    on_screen = is_terminal(sys.stdout) and is_terminal(sys.stdin) and invocation.shared.output is not Format.JSONL
    every_s = every or EVERY_S
    async with Gatherer(await invocation.cluster(), invocation.zookeeper, every_s, klog_home()) as gatherer:
        if invocation.shared.output not in (None, Format.TABLE, Format.JSONL):
            raise UsageError(
                f"--output {invocation.output.value} is for a single report, and top shows many", hint="use -o jsonl"
            )
        if on_screen:
            return await _on_screen(invocation, gatherer, every_s)

        async def look() -> Report:
            return Report(invocation.command, TopTick, [await gatherer.look()])

        invocation.shared = replace(invocation.shared, output=Format.JSONL)
        await watch(invocation, look, every_s)
        return None


async def _on_screen(invocation: Invocation, gatherer: Gatherer, every_s: float) -> int | None:
    """Until the person leaves; the exit code."""
    screen = Screen(invocation.target.title)
    app = _application(screen, lambda deeper: loading.append(asyncio.ensure_future(_load(deeper))))
    loading: list[asyncio.Future[None]] = []

    async def _load(deeper: Deeper) -> None:
        deeper.lines = await _lines_of(invocation, gatherer, deeper)
        app.invalidate()

    async def refresh() -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + every_s
            tick = await gatherer.look()
            screen.take(tick, list(gatherer.events), gatherer.no_events)
            app.invalidate()
            await asyncio.sleep(max(0.0, due - loop.time()))

    refreshing = asyncio.ensure_future(refresh())
    refreshing.add_done_callback(lambda done: _failed(app, done))
    try:
        with interrupt.ending_in_order():
            code: int | None = await app.run_async(handle_sigint=False)
            return code
    finally:
        for task in (refreshing, *loading):
            task.cancel()
        await asyncio.gather(refreshing, *loading, return_exceptions=True)


def _failed(app: Any, done: asyncio.Future[None]) -> None:
    """An error of the refresh ends the screen, and is the command's."""
    if not done.cancelled() and done.exception() is not None and app.is_running:
        app.exit(exception=done.exception())


async def _lines_of(invocation: Invocation, gatherer: Gatherer, deeper: Deeper) -> list[str]:
    """What is shown of one subject: the rows of the command that is about it."""
    (kind, one), snapshot = deeper.of, gatherer.snapshot
    try:
        match kind:
            case "why":
                return _wrapped(await steps_of(invocation, list(one)))
            case "brokers":
                rows = await read_metrics(await invocation.cluster(), broker=one.broker, wait_s=ANSWER_S)
                return list(map(_metric, rows))
            case "topics":
                return _table(PartitionLine, partition_lines(snapshot.metadata, one.topic))
            case "partitions in trouble":
                about = {"topic": one.topic, "partition": one.partition}.items()
                events = [row(event) for event in reversed(gatherer.events) if about <= event.items()]
                return [*_table(PartitionLine, [one]), "", *_table(EventRow, events)]
            case "groups":
                return _table(LagRow, in_order([row for row in snapshot.groups if row.group == one.group], "lag"))
            case "events":
                return json.dumps(one[2], indent=2, ensure_ascii=False).splitlines()
    except KlogError as error:
        return [error.message]
    return []


def _metric(one: MetricRow) -> str:
    """On one line: its name is long."""
    labels = ",".join(f"{name}={value}" for name, value in one.labels.items())
    value = one.message if one.value is None else f"{one.value:,.3f}".rstrip("0").rstrip(".")
    return f"{one.name}{{{labels}}} {value}" if labels else f"{one.name} {value}"


def _table(row_type: type, rows: Sequence[Any]) -> list[str]:
    """As wide as the screen."""
    out = io.StringIO()
    render(Report("top", row_type, rows), Format.TABLE, out, terminal=True)
    return out.getvalue().splitlines()


async def steps_of(invocation: Invocation, subject: list[str]) -> list[Step]:
    """What `klog status` says of a subject."""
    asked = parsed(subject)
    cluster = await invocation.cluster()
    return numbered(await why(cluster, invocation.zookeeper, invocation.where, asked))


def _wrapped(steps: Sequence[Step]) -> list[str]:
    """The steps of `klog status`, each on lines of its own, so that they fit in 80 columns."""
    lines = []
    for one in steps:
        time = "" if one.time is None else f"{one.time:%H:%M:%S}"
        lines += textwrap.wrap(f"{one.step}  {time:8}  {one.what}", WHY_WIDTH, subsequent_indent=" " * 13)
        lines += textwrap.wrap(one.evidence, WHY_WIDTH, initial_indent=" " * 13, subsequent_indent=" " * 13)
        if one.do is not None:
            lines += ["", *textwrap.wrap(f"what helps: {one.do}", WHY_WIDTH)]
    return lines if any(one.do is not None for one in steps) else [*lines, "nothing is wrong"]


def _application(screen: Screen, load: Any) -> Any:
    """prompt_toolkit's face of the screen: it takes the terminal, passes keys on, and gives the terminal back."""
    from prompt_toolkit.application import Application
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.layout import Layout, Window
    from prompt_toolkit.layout.controls import FormattedTextControl

    def text() -> Any:
        size = app.output.get_size()
        lines = screen.lines(size.columns, size.rows)
        return [part for line in lines for part in (*line, ("", "\n"))][:-1]

    keys = KeyBindings()

    def press(name: str) -> None:
        asked = screen.press(name)
        if asked == "quit":
            app.exit()
        elif asked == "load" and screen.deeper is not None:
            load(screen.deeper)

    for name in _KEYS:
        keys.add(name)(lambda event, name=name: press(name))
    keys.add("<any>")(lambda event: press(event.data) if event.data.isprintable() else None)
    keys.add("c-l")(lambda event: event.app.renderer.clear())
    keys.add("c-c")(lambda event: event.app.exit(result=interrupt.exit_code()))
    window = Window(FormattedTextControl(text, focusable=True, show_cursor=False), always_hide_cursor=True)
    app: Application[int | None] = Application(
        Layout(window), key_bindings=keys, full_screen=True, refresh_interval=REDRAW_S, mouse_support=False
    )
    app.ttimeoutlen = 0.05  # Esc alone goes back at once; a sequence over ssh comes in one piece
    return app


_KEYS = (
    *("up", "down", "left", "right", "pageup", "pagedown", "home", "end", "tab", "s-tab", "enter"),
    *("escape", "backspace", "f1", "f3", "f4", "f6", "f10"),
)
"""Those that are no characters: prompt_toolkit's names are the screen's."""
