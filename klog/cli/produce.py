"""``klog produce``: messages from stdin or files to a topic."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeVar, get_args

from klog.cli.arguments import AcksName, CodecName, MostRate, Properties, Topic
from klog.cli.by_schema import BySchema, encoder_by
from klog.cli.command import top_command
from klog.cli.error_report import EXIT_FAILED
from klog.cli.flags import argument, flag, limit
from klog.cli.invocation import Invocation
from klog.cli.name_values import pairs, settings
from klog.cli.progress import Done, progress
from klog.errors import KlogError, UsageError
from klog.names import counted
from klog.render.visible import is_terminal

if TYPE_CHECKING:
    from klog.tools.deliveries import LineRange, Rejects
    from klog.tools.produce import Receipt

STDIN = Path("-")

Choice = TypeVar("Choice")

ACKS: tuple[AcksName, ...] = get_args(AcksName)
CODECS: tuple[CodecName, ...] = get_args(CodecName)

LINES_NAMED_MAX = 100
"""Runs of lines named in one error."""


class GivenUp(KlogError, code="GIVEN_UP"):
    """Messages that are not in the log, as far as anybody knows."""


@top_command("produce", rows="klog.tools.deliveries:PartitionReceipt", changes=True, value_optional=("--schema",))
async def produce(
    invocation: Invocation,
    topic: Topic,
    files: list[Path] | None = argument("FILE", "Files to read; stdin if none or -."),
    partition: int | None = flag("-p --partition N", "Send all messages to this partition.", min=0),
    keep_partitions: bool = flag(
        "--keep-partitions", "Send each message to the partition its line names (-i jsonl, or -f %p)."
    ),
    key: str | None = flag("-k --key KEY", "Key of all messages.", parser=str),
    key_delimiter: str | None = flag(
        "-K --key-delimiter DELIM", "Split each line into key and value at DELIM.", parser=str
    ),
    delimiter: str | None = flag(
        "-D --delimiter DELIM", r"End of each message: text with \n, \t, \0, \xHH [\n].", parser=str
    ),
    line_format: str | None = flag(
        "-f --format FORMAT", r"Form of each line, as in `klog tail -f`: %k %s %T %h, as '%k\t%s'.", parser=str
    ),
    headers: list[str] | None = flag("-H --header NAME=VALUE", "Header of all messages.", parser=str),
    empty_is_null: bool = flag("-Z --null", "Send an empty key or value as null."),
    input_form: Literal["lines", "jsonl", "raw"] = flag(
        "-i --input lines|jsonl|raw",
        "One message per line, one JSON object per line as `klog tail` writes it, or one message per file.",
        "lines",
    ),
    acks: AcksName | None = flag(
        "--acks 0|1|all", "Required acknowledgements: none, leader, all in-sync replicas [all]."
    ),
    compression: CodecName | None = flag("--compression CODEC", "Codec: none, gzip, snappy, lz4 or zstd [none]."),
    batch_messages: int | None = flag("--batch-messages N", "Most messages per batch.", min=1),
    rate: MostRate = None,
    give_up_after: float | None = flag(
        "--give-up-after DURATION",
        "Give up on a message that is not acknowledged within this time [never].",
        parser=limit,
    ),
    rejects: Path | None = flag(
        "--rejects FILE", "Append failed messages to FILE, for `klog produce -i jsonl` [the error names their lines]."
    ),
    create: bool = flag("--create", "Create the topic if it does not exist."),
    audit: bool | None = flag(
        "--audit/--no-audit",
        "Stamp each message with host and time, and publish counts for `klog audit` [klog.audit.enable].",
    ),
    schema: BySchema = None,
    properties: Properties = None,
) -> int:
    """Write messages from stdin or files to a topic.

    The partitioner is that of Java's clients. Each message is written exactly once, to all in-sync replicas. The
    summary on stderr has the offsets, and the `klog tail` command that shows the messages.

    Delimiters (-D, -K) are as in kcat: one or more characters, with `\\n`, `\\t`, `\\r`, `\\0` and `\\xHH`. A message
    without the delimiter of -K has no key.

    -f reads what `klog tail -f` with the same format writes: `%k` key, `%s` or `%v` value, with `{hex}` or `{base64}`,
    `%T` time in ms, `%d` time, `%h` headers. `%t %p %o %e %K %S %V %H` are read and not obeyed.

    `klog tail A -o start -e --output jsonl` in a pipe to `klog produce B -i jsonl --keep-partitions` copies keys,
    values, headers, times and partitions. A message whose time is null or 0 gets the time of sending. `klog replay`
    also resumes.

    `--schema` encodes values, JSON as `klog tail --schema` shows it, by an Avro schema of the registry: that of an id,
    or the newest of a subject, TOPIC-value if neither is given. With `-i jsonl` lines may name a `value_schema_id`,
    which `--schema` without a value obeys. A value that does not fit the schema fails, and the next line goes on.

    While the topic accepts no messages, because brokers are down or a disk is full, klog retries, reads no further
    input, and says on stderr what it waits for. Messages that failed (--give-up-after, or too large) go to --rejects,
    or the error names their lines; then the exit code is 1.
    """
    from klog.client.headers import check_header_name
    from klog.tools import produce as producing
    from klog.tools.deliveries import Rejects
    from klog.tools.input_messages import parse_delimiter
    from klog.tools.options import ProduceOptions

    if keep_partitions and partition is not None:
        raise UsageError("-p and --keep-partitions exclude each other")
    if keep_partitions and input_form != "jsonl" and line_format is None:
        raise UsageError("--keep-partitions needs lines that name partitions", hint="-i jsonl, or -f with %p")
    if key is not None and key_delimiter is not None:
        raise UsageError("-k and -K exclude each other: one key for all messages, or one per line")
    configured = invocation.client_config.producer() if invocation.client_config is not None else {}
    for name, given in (("batch.num.messages", batch_messages), ("message.timeout.ms", give_up_after)):
        if given is not None:
            configured.pop(name, None)
    configured_acks = configured.pop("acks", "all")
    configured_codec = configured.pop("compression.type", "none")
    options = ProduceOptions(
        input=input_form,
        partition=partition,
        keep_partitions=keep_partitions,
        key=_bytes(key),
        key_delimiter=None if key_delimiter is None else parse_delimiter(key_delimiter, "-K"),
        delimiter=b"\n" if delimiter is None else parse_delimiter(delimiter, "-D"),
        format=line_format,
        headers=tuple((check_header_name(name), _bytes(value)) for name, value in pairs(headers)),
        empty_is_null=empty_is_null,
        acks=_chosen(acks or ("all" if configured_acks == "-1" else configured_acks), ACKS, "acks"),
        compression=_chosen(compression or configured_codec, CODECS, "compression.type"),
        batch_messages=batch_messages,
        rate=rate,
        create=create,
        give_up_after_s=give_up_after,
        audit=audit,
        librdkafka={**configured, **settings(properties)},
    )
    cluster = await invocation.cluster()
    if schema is not None:
        options = replace(options, encoder=await encoder_by(invocation, schema, topic))
    with ExitStack() as opened:
        sources = [
            sys.stdin.buffer if path == STDIN else opened.enter_context(path.open("rb")) for path in files or [STDIN]
        ]
        if sys.stdin.buffer in sources and is_terminal(sys.stdin):
            invocation.say(f"reading messages for {topic} from the terminal, one per line; end with Ctrl-D")
        given_up = None
        if rejects is not None:
            given_up = Rejects(rejects, sources)
            opened.callback(given_up.close)
        total = _bytes_of(sources)
        with progress(
            invocation, lambda: Done(_bytes_read(sources), total) if total is not None else None, unit="bytes"
        ):
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


def _chosen(word: str, known: tuple[Choice, ...], name: str) -> Choice:
    """One of several words, as a file of settings has it."""
    for one in known:
        if one == word:
            return one
    raise UsageError(f"{name}={word}: must be one of {', '.join(map(str, known))}")


def _failure(receipt: Receipt, rejects: Rejects | None) -> GivenUp:
    """What was not sent, and where it is now."""
    were = counted(receipt.failed, "message") + " failed"
    message = f"{were}: {receipt.first_error}"
    if receipt.given_up:
        message += f"; not sent: {_named(receipt.given_up)}"
    if rejects is None or not rejects.count:
        return GivenUp(message, hint="--rejects FILE keeps failed messages")
    path = shlex.quote(str(rejects.path))
    return GivenUp(message, hint=f"send them again: klog produce {receipt.topic} -i jsonl {path}")


def _named(lines: Sequence[LineRange]) -> str:
    text = ", ".join(map(str, lines[:LINES_NAMED_MAX]))
    left = sum(one.last - one.first + 1 for one in lines[LINES_NAMED_MAX:])
    return f"{text} and {left:,} more" if left else text


def _show(invocation: Invocation, receipt: Receipt) -> None:
    """The summary on stderr, as stdout is for data: one row per partition, the sum, and how to show the messages."""
    if invocation.shared.quiet:
        return
    summary = (
        f"{counted(receipt.messages, 'message')}, {receipt.bytes:,} bytes to {receipt.topic} "
        f"in {receipt.ms / 1000:.3f} s ({receipt.rate:,.0f} messages/s)"
    )
    notes = [summary]
    if receipt.unanswered:
        notes.append(
            f"{counted(receipt.unanswered, 'message')} unacknowledged, maybe written ({_named(receipt.under_way)})"
        )
    if receipt.interrupted and receipt.given_up:
        notes.append(f"not sent: {_named(receipt.given_up)}")
    if receipt.interrupted:
        at = receipt.stopped_at
        begin = f"from line {at.number} of {at.source} on " if at is not None else ""
        notes.append(f"interrupted: {begin}the rest of the input was not sent")
    invocation.show(invocation.report(receipt.partitions, notes=tuple(notes), footer=receipt.tail_line), out=sys.stderr)


def _bytes_of(sources: Sequence[BinaryIO]) -> int | None:
    """Of all files; None where one is a pipe or a terminal."""
    try:
        found = [os.fstat(one.fileno()) for one in sources]
    except (OSError, ValueError):
        return None
    return sum(one.st_size for one in found) if all(stat.S_ISREG(one.st_mode) for one in found) else None


def _bytes_read(sources: Sequence[BinaryIO]) -> int:
    """So far; asked of the descriptors, since a thread reads."""
    return sum(os.lseek(one.fileno(), 0, os.SEEK_CUR) for one in sources)


def _bytes(text: str | None) -> bytes | None:
    """The bytes as typed, even if they are not UTF-8."""
    return None if text is None else text.encode("utf-8", "surrogateescape")
