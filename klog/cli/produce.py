"""``klog produce``: messages from stdin or files to a topic."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from klog.cli.command import top_command
from klog.cli.failure import EXIT_FAILED
from klog.cli.flags import limit
from klog.cli.invocation import Invocation, is_terminal
from klog.cli.words import Properties, Topic, pairs, settings
from klog.errors import KlogError, UsageError
from klog.ops import units

if TYPE_CHECKING:
    from klog.ops.fates import LineRange
    from klog.ops.produce import Receipt
    from klog.ops.rejects import Rejects

STDIN = Path("-")

LINES_NAMED_MAX = 100
"""Runs of lines named in one error."""


class GivenUp(KlogError):
    """Messages that are not in the log, as far as anybody knows."""

    code = "GIVEN_UP"


@top_command("produce", rows="klog.ops.produce:PartitionReceipt")
async def produce(
    invocation: Invocation,
    topic: Topic,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Files to read; - or none is stdin.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", metavar="N", min=0, help="All into this partition.")
    ] = None,
    key: Annotated[str | None, typer.Option("-k", "--key", metavar="KEY", help="The key of all messages.")] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("-K", "--key-delimiter", metavar="DELIM", help="Each line is key, DELIM, value.")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("-H", "--header", metavar="NAME=VALUE", help="A header of all messages.")
    ] = None,
    empty_is_null: Annotated[bool, typer.Option("-Z", "--null", help="An empty key or value is null.")] = False,
    input_form: Annotated[
        Literal["lines", "jsonl", "raw"],
        typer.Option(
            "-i",
            "--input",
            metavar="lines|jsonl|raw",
            help="A message a line, a JSON object a line as tail writes it, or a message a file.",
        ),
    ] = "lines",
    acks: Annotated[
        Literal["0", "1", "all"],
        typer.Option("--acks", metavar="0|1|all", help="Who has it then: nobody, leader, all in sync."),
    ] = "all",
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        typer.Option("--compression", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd."),
    ] = "none",
    batch_messages: Annotated[
        int | None, typer.Option("--batch-messages", metavar="N", min=1, help="At most so many messages a batch.")
    ] = None,
    rate: Annotated[
        units.Rate | None,
        typer.Option("--rate", metavar="RATE", parser=units.parse_rate, help="At most 500/s (messages) or 20MB/s."),
    ] = None,
    give_up_after: Annotated[
        float | None,
        typer.Option(
            "--give-up-after",
            metavar="DURATION",
            parser=limit,
            help="Give up a message that is not acknowledged so long after it was read [never].",
        ),
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(
            "--rejects",
            metavar="FILE",
            help="Append messages given up to FILE, for `klog produce -i jsonl` [name their lines].",
        ),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the topic if it is missing.")] = False,
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Stamp each message with host and time; publish counts for `klog audit`."),
    ] = False,
    properties: Properties = None,
) -> int:
    """Write messages to a topic, from stdin or files.

    Keys go where Java's clients put them; each message is in the log once, on all replicas in sync. The receipt, with
    the offsets and the `klog tail` that shows them, goes to stderr.

    While the topic accepts no messages, because brokers are away or a disk is full, klog retries what it has read,
    reads no further input, and says on stderr what it waits for. Messages that it gives up (--give-up-after, or too
    large) go to --rejects, or the error names their lines; the exit code is 1 then.
    """
    from klog.ops import produce as producing
    from klog.ops.produce_options import ProduceOptions
    from klog.ops.rejects import Rejects

    if key is not None and key_delimiter is not None:
        raise UsageError("-k gives all messages one key, and -K one to each: choose")
    options = ProduceOptions(
        input=input_form,
        partition=partition,
        key=_bytes(key),
        key_delimiter=_bytes(_unescaped(key_delimiter)),
        headers=tuple((name, _bytes(value)) for name, value in pairs(headers)),
        empty_is_null=empty_is_null,
        acks=acks,
        compression=compression,
        batch_messages=batch_messages,
        rate=rate,
        create=create,
        give_up_after_s=give_up_after,
        audit=audit,
        librdkafka=settings(properties),
    )
    cluster = await invocation.cluster()
    with ExitStack() as opened:
        sources = [_open(path, opened) for path in files or [STDIN]]
        if sys.stdin.buffer in sources and is_terminal(sys.stdin):
            invocation.say(f"reading messages for {topic} from the terminal, one a line; Ctrl-D ends")
        given_up = None
        if rejects is not None:
            given_up = Rejects(rejects, sources)
            opened.callback(given_up.close)
        receipt = await producing.produce(
            cluster,
            topic,
            sources,
            options,
            interrupted=lambda receipt: _show(invocation, receipt),
            note=invocation.say,
            rejects=given_up,
        )
    _show(invocation, receipt)
    if receipt.failed:
        raise _failure(receipt, given_up)
    return 0 if receipt.is_complete else EXIT_FAILED


def _failure(receipt: Receipt, rejects: Rejects | None) -> GivenUp:
    """What was not sent, and where it is now."""
    were = "1 message was" if receipt.failed == 1 else f"{receipt.failed:,} messages were"
    message = f"{were} given up: {receipt.first_error}"
    if receipt.given_up:
        message += f"; not sent: {_named(receipt.given_up)}"
    if rejects is None or not rejects.count:
        return GivenUp(message, hint="--rejects FILE keeps what is given up")
    path = shlex.quote(str(rejects.path))
    return GivenUp(message, hint=f"kept, ready to be sent again: klog produce {receipt.topic} -i jsonl {path}")


def _named(lines: Sequence[LineRange]) -> str:
    text = ", ".join(map(str, lines[:LINES_NAMED_MAX]))
    left = sum(one.last - one.first + 1 for one in lines[LINES_NAMED_MAX:])
    return f"{text} and {left:,} more" if left else text


def _show(invocation: Invocation, receipt: Receipt) -> None:
    """The receipt on stderr, for stdout is for data: a row a partition, then the sum and the line that shows it."""
    if invocation.shared.quiet:
        return
    summary = (
        f"{receipt.messages:,} messages, {receipt.bytes:,} bytes to {receipt.topic} "
        f"in {receipt.ms / 1000:.3f} s ({receipt.rate:,.0f} messages/s)"
    )
    notes = [summary]
    if receipt.unanswered:
        notes.append(
            f"{receipt.unanswered:,} messages were under way: they may be in the log ({_named(receipt.under_way)})"
        )
    if receipt.interrupted and receipt.given_up:
        notes.append(f"not sent: {_named(receipt.given_up)}")
    if receipt.interrupted:
        at = receipt.stopped_at
        begin = f"from line {at.number} of {at.source} on " if at is not None else ""
        notes.append(f"interrupted: {begin}the rest of the input was not sent")
    invocation.show(invocation.report(receipt.partitions, notes=tuple(notes), footer=receipt.tail_line), out=sys.stderr)


def _open(path: Path, opened: ExitStack) -> BinaryIO:
    return sys.stdin.buffer if path == STDIN else opened.enter_context(path.open("rb"))


def _bytes(text: str | None) -> bytes | None:
    """The bytes that were typed, also where they are no UTF-8."""
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _unescaped(delimiter: str | None) -> str | None:
    r"""``\t`` and ``\n`` as one can type them in any shell."""
    if delimiter == "":
        raise UsageError("-K wants a delimiter that is not empty")
    return None if delimiter is None else delimiter.replace("\\t", "\t").replace("\\n", "\n")
