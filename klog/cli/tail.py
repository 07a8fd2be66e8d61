"""``klog tail``: the messages of topics. The one command whose ``-o`` is an offset, as in kcat."""

from __future__ import annotations

import asyncio
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Literal

from klog.cli import interrupt
from klog.cli.arguments import Count, Partitions, Properties, all_partitions, message_form
from klog.cli.by_schema import BySchema, decoder_by
from klog.cli.command import top_command
from klog.cli.flags import argument, duration, flag
from klog.cli.invocation import Invocation
from klog.cli.name_values import settings
from klog.client.positions import Range, parse_range
from klog.errors import UsageError
from klog.names import is_topic_name
from klog.render import Format
from klog.render.visible import is_terminal

LAST_ON_TERMINAL = 10
"""Without a position a person sees the last few messages, and then what comes."""


def start_position(text: str) -> Range:
    """UsageError, which says how a format is given, where it is one: so other commands have it."""
    if text in list(Format):
        raise UsageError(f"is the position of tail, got {text!r}", hint=f"the format: --output {text}")
    return parse_range(text)


@top_command("tail", output_letter=False, value_optional=("-f", "--schema"))
async def tail(
    invocation: Invocation,
    given: list[str] | None = argument("TOPIC", "The topics."),
    partitions: Partitions = None,
    offset: Range | None = flag(
        "-o --offset POSITION",
        "Start position or range: start, end, 1000, +10, -10, @-1h, A:B.",
        parser=start_position,
    ),
    count: Count = None,
    last: int | None = flag(
        "-n --last N", "Begin with the last N messages of all partitions, in the order of --merge time.", min=0
    ),
    until_end: bool = flag("-e --exit", "Exit at the end offset as of start-up."),
    group: str | None = flag(
        "-G --group GROUP", "Read as a member of this group: from its committed offsets; commits."
    ),
    replica: int | None = flag("--replica ID", "Read from the replicas of this broker instead of the leaders.", min=0),
    form: str | None = flag(
        "-f --format FORMAT",
        "Format of each message: %t %p %o %k %s %h %T %K %S as in kcat, %v{hex}, %d{strftime[%T]}, %].",
        parser=str,
    ),
    grep: str | None = flag("--grep RE", "Only messages whose value matches this regular expression.", parser=str),
    grep_key: str | None = flag(
        "--grep-key RE", "Only messages whose key matches this regular expression.", parser=str
    ),
    grep_header: str | None = flag(
        "--grep-header RE", "Only messages with a header whose NAME=VALUE matches this regular expression.", parser=str
    ),
    match: str | None = flag(
        "--match RE", "Also topics whose whole name matches this regular expression, new ones too."
    ),
    merge: Literal["time"] | None = flag("--merge time", "Merge all partitions by time."),
    settle: float | None = flag(
        "--settle DURATION",
        "With --merge: how long a new message waits for earlier ones (500ms).",
        parser=duration,
    ),
    schema: BySchema = None,
    properties: Properties = None,
) -> None:
    """Show the messages of topics: each value, followed by a newline.

    Without a position: on a terminal the last 10 messages and then new ones, in a pipe only new ones. `--output jsonl`
    writes whole messages, which `klog produce -i jsonl` reads.

    Letters of `-f`: `%t` topic, `%p` partition, `%o` offset, `%k` key, `%s` or `%v` value, `%K` and `%S` their lengths,
    `%R` the value's length as four bytes, `%T` time in ms, `%d{strftime[%F %T]}` time in UTC, `%h` headers, `%H` their
    number, `%h{%k=%v }` each header in a format of its own, `%e` leader epoch, `%]` high watermark, `%%`. `%k`, `%s`
    and `%v` take `{hex}`, `{base64}` or `{unpack[>I]}`, with the letters of Python's struct. Bytes are written
    unchanged, and null as nothing; on a terminal control characters are escaped.

    When all partitions of a topic are followed, partitions added later are shown too, from their start (not with
    `--merge`).

    `-G` shares the partitions among all readers of that group, and continues from the group's committed offsets; where
    there are none, from `-o` (default end). Offsets are committed after the messages were written: after a crash some
    messages come twice, and none are skipped.

    `--replica ID` reads from that broker, leader or follower: what its replicas have, up to the high watermark that
    they know (a follower's is slightly behind). Without `-p` it reads all partitions of which the broker has a replica.
    With `-o` start, end or an offset it also reads partitions without a leader.

    `--match RE` shows all topics with such a name but internal ones. While it follows, topics that are created later
    are shown too, from their start.

    Regular expressions are matched against bytes; null never matches. A `!` before one means not: `--grep '!debug'`
    shows messages whose value does not match or is null (`\\!` is the character). With `-n` the last N messages are
    searched.

    `--schema` decodes Avro values that begin with a schema id of the registry (`klog schema`), as stock serializers
    write them. With an id or a subject values are read as that schema, or as the newest of the subject. A value that
    cannot be decoded is shown as it is, and a note says why.

    `--merge time` sorts existing messages exactly, each partition's in the order of their offsets. New messages wait
    `--settle` for earlier messages of other partitions; a message that comes later than that is shown late.
    """
    from klog.tools import tail as tailing
    from klog.tools.options import SETTLE_S, TailOptions

    topics = given or []
    if form is not None and _means_follow(form):
        topics, form = [*filter(None, [form]), *topics], None
        if topics:
            invocation.say(
                f"klog tail follows by default; -f is the format of each message: `klog tail {shlex.join(topics)}`"
            )
    if schema and not topics and match is None:
        topics, schema = [schema], ""
    if not topics and match is None:
        raise UsageError("no topic given", hint="klog tail TOPIC, or --match RE; `klog topic list` shows the topics")
    if settle is not None and merge is None:
        raise UsageError("--settle needs --merge time", hint="only merged messages wait")
    configured = invocation.client_config.consumer() if invocation.client_config is not None else {}
    if invocation.client_config is not None and "group.id" in invocation.client_config.given and group is None:
        invocation.detail("group.id of the client config has no effect: -G GROUP reads as a member of a group")
    options = TailOptions(
        partitions=all_partitions(partitions),
        offset=offset,
        last=LAST_ON_TERMINAL
        if offset is None and last is None and group is None and is_terminal(sys.stdout)
        else last,
        count=count,
        until_end=until_end,
        output=message_form(invocation.shared.output, form, "for tables: `klog topic describe`, `klog offset list`"),
        format=form,
        group=group,
        replica=replica,
        grep=grep,
        grep_key=grep_key,
        grep_header=grep_header,
        match=match,
        merge_by_time=merge == "time",
        settle_s=SETTLE_S if settle is None else settle,
        on_terminal=is_terminal(sys.stdout),
        librdkafka={**(configured if replica is None else {}), **settings(properties)},
    )
    if schema is not None and form is not None:
        raise UsageError("-f shows values as they are, and --schema decodes them: choose one")
    tailing.check_options(options)
    if group is not None:
        invocation.check_may_change()
    cluster = await invocation.cluster()
    if schema is not None:
        options = replace(options, decoder=await decoder_by(invocation, schema))
    loop = asyncio.get_running_loop()
    reading = asyncio.ensure_future(tailing.tail(cluster, topics, options, sys.stdout.buffer, note=invocation.say))
    try:
        with ExitStack() as around:
            if group is not None:
                # If a member exits without leaving the group, its partitions wait for its session to time out.
                around.enter_context(interrupt.ending_in_order())
            around.enter_context(
                interrupt.reader_watched(sys.stdout, lambda: loop.call_soon_threadsafe(reading.cancel))
            )
            await reading
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            reading.cancel()
            raise
        raise BrokenPipeError from None  # it was the watch over the reader


def _means_follow(form: str) -> bool:
    """Whether -f is that of tail(1): what follows it is nothing, or the first topic, and no format."""
    return not form or (is_topic_name(form) and form not in [one.value for one in Format])
