"""``klog export run``: what is new of topics, as files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from klog.cli.arguments import OptionalTopics, position_range
from klog.cli.export.file_flags import (
    Checksum,
    Decode,
    Engine,
    FilesFormat,
    GroupFlag,
    KeepBytes,
    MaxFileBytes,
    MaxUndecodable,
    PartitionBy,
    ReadAs,
    SparkJson,
    UndecodableTo,
    WriterName,
)
from klog.cli.export.follow import DEFAULT_EVERY_S, Every, EveryBytes, Follow, check_following, progress_line, run_on
from klog.cli.export.noun import export, servers_of
from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.cli.name_values import pairs
from klog.cli.spark_flags import Conf, Master
from klog.cli.table_flags import Catalog, TableFormat, TableName, table_choice
from klog.cli.target import klog_home
from klog.errors import KlogError, TooManyUndecodable, UsageError
from klog.export.rows import ExportedRange, SparkOption, spark_options
from klog.names import TopicPartition, counted
from klog.render import Report

if TYPE_CHECKING:
    from klog.export.undecodable import UndecodableLimit
    from klog.streams.undecodable import UndecodableTopic


@export.command("run", rows="klog.export.rows:ExportedRange")
async def run(
    invocation: Invocation,
    root: str = flag("--to ROOT", "Folder or URL of the export; the first run creates it.", ...),
    topics: OptionalTopics = None,
    from_range: str | None = flag(
        "--from POSITION", "Start position of the first run, or a range; start if not given."
    ),
    master: Master = None,
    remote: str | None = flag("--remote sc://HOST", "Spark Connect server, instead of a master."),
    conf: Conf = None,
    format: FilesFormat = None,
    partition_by: PartitionBy = None,
    max_file_bytes: MaxFileBytes = None,
    decode: Decode = None,
    read_as: ReadAs = None,
    keep_bytes: KeepBytes = False,
    undecodable_to: UndecodableTo = None,
    max_undecodable: MaxUndecodable = None,
    table: TableFormat = None,
    table_name: TableName = None,
    catalog: Catalog = None,
    writer: WriterName = None,
    engine: Engine = "spark",
    checksum: Checksum = False,
    max_messages: int | None = flag("--max-messages N", "Export at most N messages per partition.", min=1),
    allow_gaps: bool = flag("--allow-gaps", "Continue although retention deleted messages before they were exported."),
    unsafe_single_writer: bool = flag(
        "--unsafe-single-writer",
        "Allow a store on which two concurrent runs could both commit; make sure that only one runs.",
    ),
    group: GroupFlag = None,
    follow: Follow = False,
    every: Every = None,
    every_bytes: EveryBytes = None,
    dry_run: bool = flag("--dry-run", "Show what would be exported, without starting Spark."),
    spark_json: SparkJson = False,
) -> Report | None:
    """Export the new messages of topics, each exactly once, as one batch of files with a manifest.

    Without a topic it exports all topics that the export already has. If there are no new messages, it ends without
    starting Spark. With `--follow` it continues, one row per committed batch; Ctrl-C or SIGTERM ends it after the
    current batch, with exit code 0.
    """
    from klog.export.progress import timed
    from klog.export.status import waiting_bytes
    from klog.export.stores.opening import open_store
    from klog.export.undecodable import UndecodableLimit
    from klog.spark import export as exporting
    from klog.spark.running.target import SparkTarget

    if from_range is not None:
        position_range(from_range, "--from")
    if spark_json and not dry_run:
        raise UsageError("--spark-json needs --dry-run")
    if decode is None and (read_as is not None or keep_bytes):
        raise UsageError(f"{'--keep-bytes' if keep_bytes else '--read-as'} needs --decode")
    wanted = None if decode is None else exporting.Decode(decode, read_as, keep_bytes)
    limit = None if max_undecodable is None else UndecodableLimit.parse(max_undecodable)
    open_root = partial(open_store, root, unsafe_single_writer=unsafe_single_writer)
    chosen = table_choice(table, table_name, catalog)
    check_following(invocation, follow=follow, every=every, every_bytes=every_bytes, once=dry_run or spark_json)
    if engine == "local" and writer is not None:
        raise UsageError("--writer and --engine local exclude each other")
    who = "local" if engine == "local" else writer
    where = SparkTarget(master, remote, dict(pairs(conf)), klog_home() / "cache")
    servers = await servers_of(invocation)
    one_run: Callable[..., Sequence[ExportedRange]] = partial(
        exporting.run_export,
        servers,
        topics or (),
        root,
        format=format,
        partition_by=partition_by,
        decode=wanted,
        table=chosen,
        max_file_bytes=max_file_bytes,
        writer=who,
        checksum=checksum,
        max_messages=max_messages,
        max_undecodable=limit or UndecodableLimit("0"),
        dry_run=dry_run,
        allow_gaps=allow_gaps,
        where=where,
        unsafe_single_writer=unsafe_single_writer,
        on_step=timed(lambda step: invocation.detail(f"export: {step}")),
        on_note=cache(invocation.say),  # once: with --follow each batch may say the same
        on_progress=progress_line(invocation),
    )
    if undecodable_to is not None and not dry_run:
        invocation.check_may_change()
        decodes = decode is not None
        target = partial(_undecodable, servers, undecodable_to, open_root, topics or (), decodes)
        one_run = _telling(one_run, target, invocation)
    if follow:
        invocation.has_shown = True

        async def tell(rows: Sequence[ExportedRange]) -> None:
            if group is not None:
                await _commit(invocation, group, rows)
            await asyncio.to_thread(_check_undecodable, rows, limit, open_root)

        rounds = _first_from(from_range, one_run)
        warm_up = partial(exporting.warm_up, root, where, who, unsafe_single_writer=unsafe_single_writer)

        def is_due() -> bool:
            return every_bytes is not None and waiting_bytes(servers, open_root()) >= every_bytes

        await run_on(invocation, root, rounds, warm_up, DEFAULT_EVERY_S if every is None else every, tell, is_due)
        return None
    rows = await asyncio.to_thread(one_run, from_range=from_range)
    if spark_json:
        return Report(invocation.command, SparkOption, spark_options(rows))
    if not rows:
        return invocation.report(rows, footer=f"no new messages for {root}")
    if group is not None and not dry_run:
        await _commit(invocation, group, rows)
    messages = sum(row.messages or 0 for row in rows)
    if dry_run:
        return invocation.report(rows, footer=f"{counted(messages, 'message')} would be exported to {root}")
    files = sum(row.files or 0 for row in rows)
    footer = f"{counted(messages, 'message')} exported to {root}, in {counted(files, 'file')}"
    report = invocation.report(rows, footer=footer)
    try:
        await asyncio.to_thread(_check_undecodable, rows, limit, open_root)
    except TooManyUndecodable as error:
        invocation.say(f"{error.message}: exit code 1; {error.hint}")
        return replace(report, failed=True)
    return report


def _check_undecodable(
    rows: Sequence[ExportedRange], limit: UndecodableLimit | None, open_root: Callable[[], Any]
) -> None:
    """TooManyUndecodable where more messages of a run, which is committed, cannot be decoded than may be."""
    from klog.export.root import ExportRoot
    from klog.export.undecodable import limit_of

    undecodable, messages = (sum(getattr(row, name) or 0 for row in rows) for name in ("undecodable", "messages"))
    if not undecodable:
        return
    limit = limit or limit_of(ExportRoot(open_root()))
    if limit is not None and not limit.allows(undecodable, messages):
        raise TooManyUndecodable(
            f"{undecodable} of {counted(messages, 'message')} cannot be decoded, and at most {limit.text} may be",
            hint="all are exported; --max-undecodable accepts more",
        )


def _undecodable(
    servers: str, topic: str, open_root: Callable[[], Any], exported: Sequence[str], decodes: bool
) -> UndecodableTopic:
    from klog.streams.undecodable import UndecodableTopic

    return UndecodableTopic(servers, topic, open_root(), exported, decodes=decodes)


def _telling(
    one_run: Callable[..., Sequence[ExportedRange]], target: Callable[[], UndecodableTopic], invocation: Invocation
) -> Callable[..., Sequence[ExportedRange]]:
    """Rounds behind each of which the messages that cannot be decoded are in their topic, too; and before the first,
    those of a batch that was the last of a run that was killed."""
    found: list[UndecodableTopic] = []

    def one(**settings: Any) -> Sequence[ExportedRange]:
        if not found:
            found.append(target())
            _tell(found[0], invocation)
        rows = one_run(**settings)
        if rows:
            _tell(found[0], invocation)
        return rows

    return one


def _tell(target: UndecodableTopic, invocation: Invocation) -> None:
    written = target.write()
    if written:
        invocation.say(f"{counted(written, 'message')} that cannot be decoded written to {target.topic}")


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
    """Commit where the exported ranges end, for lag monitoring; no run reads it, so an error is only a note."""
    from klog.client.group_requests import commit

    try:
        ends = {TopicPartition(row.topic, row.partition): (row.to, "klog export") for row in rows}
        await commit(await invocation.cluster(), group, ends)
    except KlogError as error:
        invocation.say(
            f"the messages are exported, but the offsets of group {group} were not committed: {error.message}"
        )
