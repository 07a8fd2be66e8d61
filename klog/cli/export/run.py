"""``klog export run``: what is new of topics, as files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from klog.cli.export.following import DEFAULT_EVERY_S, Every, Follow, check_following, progress_line, run_on
from klog.cli.export.form import (
    Checksum,
    Decode,
    FilesFormat,
    GroupFlag,
    KeepBytes,
    MaxFileBytes,
    PartitionBy,
    ReadAs,
    SparkJson,
    WriterName,
)
from klog.cli.export.noun import Conf, export, servers_of
from klog.cli.invocation import Invocation
from klog.cli.words import OptionalTopics, pairs, position_range
from klog.errors import KlogError, UsageError
from klog.ops.export.rows import ExportedRange, SparkOption, spark_options
from klog.render import Report


@export.command("run", rows="klog.ops.export.rows:ExportedRange")
async def run(
    invocation: Invocation,
    root: Annotated[
        str, typer.Option("--to", metavar="ROOT", help="The export's folder or URL; made by its first run.")
    ],
    topics: OptionalTopics = None,
    from_range: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="POSITION", help="Where a root's first run begins, or a range; start if not given."
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="MASTER", help="Spark's master; else this machine's cores."),
    ] = None,
    remote: Annotated[
        str | None, typer.Option("--remote", metavar="sc://HOST", help="A Spark Connect server, instead of a master.")
    ] = None,
    conf: Conf = None,
    format: FilesFormat = None,
    partition_by: PartitionBy = None,
    max_file_bytes: MaxFileBytes = None,
    decode: Decode = None,
    read_as: ReadAs = None,
    keep_bytes: KeepBytes = False,
    writer: WriterName = None,
    checksum: Checksum = False,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", metavar="N", min=1, help="At most N messages of each partition.")
    ] = None,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="Go on where retention took messages before they were exported.")
    ] = False,
    unsafe_single_writer: Annotated[
        bool,
        typer.Option(
            "--unsafe-single-writer",
            help="Export to a store where two runs at once could both commit; nothing but this ever writes there.",
        ),
    ] = False,
    group: GroupFlag = None,
    follow: Follow = False,
    every: Every = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be exported, without Spark.")] = False,
    spark_json: SparkJson = False,
) -> Report | None:
    """Export what is new of topics, once each, as one batch of files with its manifest.

    Without a topic: all those that the export already has. Where nothing is new it says so, without starting Spark.
    With `--follow` it goes on so, a row for each batch that is committed; Ctrl-C or SIGTERM ends it after the batch in
    hand, with exit code 0.
    """
    from klog.spark import export as exporting
    from klog.spark.running.session import Where

    if from_range is not None:
        position_range(from_range, "--from")
    if spark_json and not dry_run:
        raise UsageError("--spark-json is for --dry-run")
    if decode is None and (read_as is not None or keep_bytes):
        raise UsageError(f"{'--keep-bytes' if keep_bytes else '--read-as'} is for --decode")
    wanted = None if decode is None else exporting.Decode(decode, read_as, keep_bytes)
    check_following(invocation, follow=follow, every=every, once=dry_run or spark_json)
    where = Where(master, remote, dict(pairs(conf)))
    servers = await servers_of(invocation)
    one_run = partial(
        exporting.run_export,
        servers,
        topics or (),
        root,
        format=format,
        partition_by=partition_by,
        decode=wanted,
        max_file_bytes=max_file_bytes,
        writer=writer,
        checksum=checksum,
        max_messages=max_messages,
        dry_run=dry_run,
        allow_gaps=allow_gaps,
        where=where,
        unsafe_single_writer=unsafe_single_writer,
        on_step=lambda step: invocation.detail(f"export: {step}"),
        on_note=invocation.say,
        on_progress=progress_line(invocation),
    )
    if follow:
        tell = None if group is None else partial(_commit, invocation, group)
        rounds = _first_from(from_range, one_run)
        await run_on(invocation, root, rounds, where.session, DEFAULT_EVERY_S if every is None else every, tell)
        return None
    rows = await asyncio.to_thread(one_run, from_range=from_range)
    if spark_json:
        return Report(invocation.command, SparkOption, spark_options(rows))
    if not rows:
        return invocation.report(rows, footer=f"nothing new for {root}")
    if group is not None and not dry_run:
        await _commit(invocation, group, rows)
    messages = sum(row.messages or 0 for row in rows)
    if dry_run:
        return invocation.report(rows, footer=f"{messages:,} messages would be exported to {root}")
    files = sum(row.files or 0 for row in rows)
    footer = f"{messages:,} messages exported to {root}, in {files:,} {'file' if files == 1 else 'files'}"
    return invocation.report(rows, footer=footer)


def _first_from(
    from_range: str | None, one_run: Callable[..., Sequence[ExportedRange]]
) -> Callable[[], Sequence[ExportedRange]]:
    """Rounds of which the first begins where ``--from`` says, and the others where the one before them ended."""
    begin = from_range

    def one() -> Sequence[ExportedRange]:
        nonlocal begin
        rows = one_run(from_range=begin)
        begin = None
        return rows

    return one


async def _commit(invocation: Invocation, group: str, rows: Sequence[ExportedRange]) -> None:
    """What is told to the group is for whoever watches its lag; that it fails is said, and is no failure."""
    from klog.ops.export.group import commit

    try:
        await commit(await invocation.cluster(), group, rows)
    except KlogError as error:
        invocation.say(f"the messages are exported; group {group} was not told: {error.message}")
