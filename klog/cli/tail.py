"""``klog tail``: the messages of topics. The one command whose ``-o`` is an offset, as in kcat."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from typing import Annotated, Any, Literal

import typer

from klog.cli import interrupt
from klog.cli.command import top_command
from klog.cli.invocation import Invocation, is_terminal
from klog.cli.words import Partitions, Properties, Topics, all_partitions, position_range, settings
from klog.errors import UsageError
from klog.ops.units import parse_duration_ms
from klog.render import Format

LAST_ON_TERMINAL = 10
"""Without a position a person sees the last few messages, and then what comes."""


@top_command("tail", output_letter=False)
async def tail(
    invocation: Invocation,
    topics: Topics,
    partitions: Partitions = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--offset",
            metavar="POSITION",
            help="Where to begin, or a range: start, end, 1000, +10, -10, @-1h, A:B.",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("-c", "--count", metavar="N", min=0, help="Stop after N messages.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("-n", "--last", metavar="N", min=0, help="The last N over all partitions, by time.")
    ] = None,
    until_end: Annotated[bool, typer.Option("-e", "--exit", help="Stop at the end there is at the start.")] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "-G", "--group", metavar="GROUP", help="As a member of a group: from where it has committed; commits."
        ),
    ] = None,
    replica: Annotated[
        int | None,
        typer.Option(
            "--replica",
            metavar="ID",
            min=0,
            help="What this broker's own replicas have, whoever leads; not the leader's.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--format",
            metavar="FORMAT",
            help="How to write each message: %t %p %o %k %s %h %T %K %S as kcat, %v{hex}, %d{strftime[%T]}, %].",
        ),
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="RE", help="Only messages in whose value this is found.")
    ] = None,
    grep_key: Annotated[
        str | None, typer.Option("--grep-key", metavar="RE", help="Only messages in whose key this is found.")
    ] = None,
    merge: Annotated[
        Literal["time"] | None, typer.Option("--merge", metavar="time", help="Over partitions in the order of time.")
    ] = None,
    settle: Annotated[
        int | None,
        typer.Option(
            "--settle",
            metavar="DURATION",
            parser=parse_duration_ms,
            help="With --merge: how long what comes waits for what is earlier (500ms).",
        ),
    ] = None,
    properties: Properties = None,
) -> None:
    """Show the messages of topics: each value, and a newline after it.

    Without a position: on a terminal the last 10, then what comes; in a pipe, what comes. `--output jsonl` writes whole
    messages, and `klog produce -i jsonl` takes them in again.

    Letters of `-f`: `%t` topic, `%p` partition, `%o` offset, `%k` key, `%s` or `%v` value, `%K` and `%S` their
    lengths, `%R` the value's length as four bytes, `%T` time in ms, `%d{strftime[%F %T]}` time in UTC, `%h`
    headers, `%H` how many, `%h{%k=%v }` each by a format of its own, `%e` leader epoch, `%]` high watermark, `%%`.
    Behind `%k`, `%s` and `%v` may stand `{hex}`, `{base64}` or `{unpack[>I]}`, by Python's struct letters. Bytes
    are written as they are, null as nothing; on a terminal what would command it is escaped.

    Partitions that a topic gets while all of it is followed are shown too, from their start (not with `--merge`).

    `-G` shares the partitions among all that read under that group's name, and goes on where the group has committed;
    where it has committed nothing, at `-o` (the end if not given). What was written is committed then, not before:
    after a crash some messages come twice, and none is left out.

    `--replica ID` reads from that broker, follower or leader: what its replicas have, up to the high watermark that
    they know of (a follower's is a moment behind). Without `-p`, of the partitions that it has replicas of. It shows
    also what has no leader any more, from `-o start`, `end` or an offset on.

    Regular expressions are searched in bytes; in null nothing is found. With `-n` it is the last N that are searched.

    `--merge time` orders exactly what is there when it begins. What comes then waits `--settle` for messages of other
    partitions that are earlier; one that comes later than that is shown late.
    """
    from klog.ops import tail as tailing
    from klog.ops.tail_options import SETTLE_S, TailOptions

    if form is not None and "%" not in form:
        raise UsageError(
            f"-f {form!r} holds no %: it is the format of each message",
            hint="klog tail follows already; -f '%o %s\\n' writes offsets and values",
        )
    if offset is not None and last is not None:
        raise UsageError("-o says where to begin, and so does -n: choose")
    if settle is not None and merge is None:
        raise UsageError("--settle is for --merge time", hint="without it nothing waits")
    options = TailOptions(
        partitions=all_partitions(partitions),
        offset=position_range(offset, "-o") if offset is not None else None,
        last=LAST_ON_TERMINAL
        if offset is None and last is None and group is None and is_terminal(sys.stdout)
        else last,
        count=count,
        until_end=until_end,
        output=_output(invocation.shared.output, form),
        format=form,
        group=group,
        replica=replica,
        grep=grep,
        grep_key=grep_key,
        merge_by_time=merge == "time",
        settle_s=SETTLE_S if settle is None else settle / 1000,
        on_terminal=is_terminal(sys.stdout),
        librdkafka=settings(properties),
    )
    tailing.check_options(options)
    cluster = await invocation.cluster()
    reading = asyncio.ensure_future(tailing.tail(cluster, topics, options, sys.stdout.buffer, note=invocation.say))
    try:
        with ExitStack() as around:
            if group is not None:
                # A member that goes without a word is waited for: until then nobody reads its partitions.
                around.enter_context(interrupt.ending_in_order())
            around.enter_context(interrupt.reader_watched(sys.stdout, _canceller(reading)))
            await reading
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            reading.cancel()
            raise
        raise BrokenPipeError from None  # it was the watch over the reader


def _canceller(reading: asyncio.Future[Any]) -> interrupt.Act:
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        try:
            loop.call_soon_threadsafe(reading.cancel)
        except RuntimeError:
            pass  # the loop is closed: the command has ended

    return cancel


def _output(output: Format | None, form: str | None) -> Literal["value", "format", "jsonl"]:
    if output not in (None, Format.JSONL):
        raise UsageError(
            f"--output {output.value}: tail writes a stream, which is values, -f FORMAT or --output jsonl",
            hint="`klog topic describe` and `klog offset list` show tables",
        )
    if form is not None and output is not None:
        raise UsageError("-f and --output jsonl both say how messages are written: choose")
    return "format" if form is not None else "jsonl" if output is Format.JSONL else "value"
