"""``klog mirror``: topics of one or many clusters copied into another, for as long as it runs."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Annotated, Any, Literal

import typer

from klog.cli import flags
from klog.cli.command import top_command
from klog.cli.invocation import Invocation, is_terminal
from klog.errors import UsageError
from klog.render import Format, Report, render
from klog.signals import Asked

LIVE_EVERY_S = 1.0
ROWS_EVERY_S = 5.0
"""In a pipe: rows that have changed."""


@top_command("mirror", rows="klog.ops.copying.mirror:MirrorRow", connects=False, own_interrupt=True)
async def mirror(
    invocation: Invocation,
    sources: Annotated[
        list[str],
        typer.Option("--source", metavar="HOST:PORT,...", help="A cluster to copy from, by its brokers."),
    ],
    target: Annotated[str, typer.Option("--target", metavar="HOST:PORT,...", help="The cluster to copy into.")],
    topics: Annotated[
        list[str], typer.Option("--topic", metavar="RE", help="Topics, by a regular expression for the whole name.")
    ],
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="RE", help="Topics to leave out of these.")
    ] = None,
    begin: Annotated[
        Literal["start", "end"],
        typer.Option("--from", metavar="start|end", help="Where to begin with what was never copied."),
    ] = "start",
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="Whose commits say how far it is; mirror-ID of the target."),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--groups", metavar="NAME,...|RE", help="Groups of the sources whose committed offsets are carried over."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("-e", "--once", help="Stop at the ends there are at the start.")] = False,
    no_settings: Annotated[
        bool,
        typer.Option("--no-settings", help="Topics that are made get the target's defaults, not their own settings."),
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Only show which offset of a source is which of the target.")
    ] = False,
    timeout: flags.Timeout = None,
) -> Report | int | None:
    """Copy topics of one or many clusters into another, each message once, until it is stopped.

    Topics are made with as many partitions as they have, and with those of their own settings that say what they hold:
    retention.ms, retention.bytes, max.message.bytes, segment.bytes, segment.ms, compression.type,
    message.timestamp.type, and its bounds. Topics that are there already are left as they are.

    Keys, headers, times and partitions are kept, and the header klog of each message says where it comes from (6
    bytes for the source, then the offset there). Started again, it goes on behind the last message in the target.
    On a terminal a live table, in a pipe JSON Lines. A target that is not klog gets messages at least once.

    With --groups, what these groups have committed in the sources is committed for them in the target, every 5 s: the
    offset there of the first message that was copied from theirs or from behind it, as far as the copy is. It goes back
    only where the group was set back in the source. A group that has members in the target is left alone, and named.
    Names have commas between; a text with a character of regular expressions other than the dot is one, for the whole
    name. --offsets shows what each has committed on both sides.
    """
    from klog.ops.copying import mirror as mirroring
    from klog.ops.copying.side import Side

    if invocation.shared.output in (Format.JSON, Format.YAML) and not (once or offsets):
        raise UsageError(f"--output {invocation.shared.output.value} is one report, and this goes on", hint="-o jsonl")
    options = mirroring.MirrorOptions(
        topics=topics,
        exclude=exclude or (),
        from_end=begin == "end",
        group=group,
        once=once,
        take_settings=not no_settings,
        groups=groups or (),
    )

    async def side(address: str, role: str) -> Side:
        one = await Side(address, role, timeout_s=timeout or flags.DEFAULT_TIMEOUT_S, note=invocation.say).open()
        invocation.closing.push_async_callback(one.close)
        return one

    into = await side(target, "target")
    whence = [await side(one, "source") for one in sources]
    if offsets:
        rows = await mirroring.mirrored_offsets(whence, into, options)
        return Report(invocation.command, mirroring.MirroredOffset, rows)
    running = mirroring.Mirror(whence, into, options, note=invocation.say)
    screen = _Screen(invocation)
    task = asyncio.current_task()
    assert task is not None
    asked = Asked()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asked.again() and task.cancel())
    try:
        await running.run(screen, every_s=LIVE_EVERY_S if screen.is_live else ROWS_EVERY_S)
    except asyncio.CancelledError:
        invocation.say("stopped; a start goes on from here")
    return screen.last()


class _Screen:
    """Shows rows while it runs: a table that stays in its place, or lines for another program."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        chosen = invocation.shared.output
        on_terminal = is_terminal(sys.stdout)
        self.is_live = on_terminal and chosen in (None, Format.TABLE, Format.WIDE)
        self._streams = chosen is Format.JSONL or (chosen is None and not on_terminal)
        self._shown: dict[Any, Any] = {}
        self._rows: list[Any] = []

    def __call__(self, rows: list[Any]) -> None:
        self._rows = rows
        if self.is_live:
            sys.stdout.write("\x1b[H\x1b[J")
            self._invocation.show(self._invocation.report(rows))
        elif self._streams:
            self._lines([row for row in rows if self._shown.get((row.source, row.topic, row.partition)) != row])

    def _lines(self, rows: list[Any]) -> None:
        self._shown.update(((row.source, row.topic, row.partition), row) for row in rows)
        render(self._invocation.report(rows), Format.JSONL, sys.stdout)
        sys.stdout.flush()

    def last(self) -> Report | None:
        """What is still to be shown at the end."""
        messages = sum(row.messages for row in self._rows)
        self._invocation.say(f"{messages:,} messages copied")
        return None if self.is_live or self._streams else self._invocation.report(self._rows)
