"""``klog export``: messages to files with Spark, and what is done with such an export."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from klog.cli import interrupt
from klog.cli.arguments import OptionalTopics
from klog.cli.command import Noun
from klog.cli.error_report import show
from klog.cli.flags import argument, duration, flag
from klog.cli.invocation import Invocation
from klog.cli.name_values import pairs
from klog.cli.progress import Done, counting, slow_progress
from klog.cli.spark_flags import (
    SHIPPED,
    Catalog,
    Conf,
    DeployMode,
    Master,
    Shipped,
    TableFormat,
    TableName,
    show_or_run,
    table_choice,
)
from klog.cli.target import klog_home
from klog.cli.watching import check_watchable, rows_as_they_come
from klog.client.positions import parse_range
from klog.config.units import parse_size
from klog.errors import KlogError, TooManyUndecodable, UsageError
from klog.export.rows import ExportedRange, SparkOption, spark_options
from klog.names import TopicPartition, counted
from klog.render import Report
from klog.spark.running.hadoop import register_stores

if TYPE_CHECKING:
    from klog.export.undecodable import UndecodableLimit
    from klog.streams.undecodable import UndecodableTopic

DEFAULT_EVERY_S = 10.0

export = Noun("export", "Export messages to Parquet and other files with Spark.")

register_stores()  # ROOT may be in Hadoop's file systems, for every verb

Root = Annotated[str, argument("ROOT", "Folder or URL of the export.")]


def checked_range(text: str) -> str:
    """UsageError, before anything is asked, for a text that is not a position or range."""
    parse_range(text)
    return text


@export.command("run", rows="klog.export.rows:ExportedRange")
async def run(
    invocation: Invocation,
    root: str = flag("--to ROOT", "Folder or URL of the export; the first run creates it.", ...),
    topics: OptionalTopics = None,
    from_range: str | None = flag(
        "--from POSITION", "Start position of the first run, or a range; start if not given.", parser=checked_range
    ),
    master: Master = None,
    remote: str | None = flag("--remote sc://HOST", "Spark Connect server, instead of a master."),
    conf: Conf = None,
    format: Literal["parquet", "avro", "orc", "json"] | None = flag(
        "--format FORMAT", "parquet, avro, orc or json (lines); fixed by the first run."
    ),
    partition_by: str | None = flag(
        "--partition-by HOW", "Divide files by day, hour or COLUMN; fixed by the first run."
    ),
    max_file_bytes: int | None = flag(
        "--max-file-bytes SIZE", "Approximate largest size of a file.", parser=parse_size
    ),
    decode: str | None = flag(
        "--decode avro|json|protobuf[:key]", "Decode values (or keys) into typed columns; fixed by the first run."
    ),
    read_as: str | None = flag(
        "--read-as SCHEMA",
        "Reader schema of Avro, an id or a file; if not given the newest, or for JSON one inferred from messages. "
        "For protobuf FILE or FILE#MESSAGE: descriptors of protoc.",
    ),
    keep_bytes: bool = flag("--keep-bytes", "Keep the original bytes beside the decoded columns."),
    undecodable_to: str | None = flag(
        "--undecodable-to TOPIC",
        "Also write messages that cannot be decoded to this topic, with the reason; give it to each run.",
    ),
    max_undecodable: str | None = flag(
        "--max-undecodable N|P%",
        "Exit code 1 if more messages of a run cannot be decoded; if not given, what the first run had, else 0.",
    ),
    table: TableFormat = None,
    table_name: TableName = None,
    catalog: Catalog = None,
    append: bool = flag("--append", "Add to a table that others made, if its columns fit; for the first run."),
    writer: Literal["direct", "spark"] | None = flag(
        "--writer WHO", "direct: the reading tasks write; spark: Spark's writers, for any store."
    ),
    engine: Literal["spark", "local"] = flag(
        "--engine WHO", "Who runs the tasks: spark, or local, processes of this machine.", "spark"
    ),
    checksum: bool = flag("--checksum", "Write checksums of the messages into the manifest, for `klog export verify`."),
    max_messages: int | None = flag("--max-messages N", "Export at most N messages per partition.", min=1),
    allow_gaps: bool = flag("--allow-gaps", "Continue although retention deleted messages before they were exported."),
    unsafe_single_writer: bool = flag(
        "--unsafe-single-writer",
        "Allow a store on which two concurrent runs could both commit; make sure that only one runs.",
    ),
    group: str | None = flag("--group GROUP", "Also commit the exported offsets for this group, for lag monitoring."),
    follow: bool = flag("--follow", "Keep exporting new messages in one run of Spark until stopped."),
    every: float | None = flag("--every DURATION", "With --follow: interval between batches (10s).", parser=duration),
    every_bytes: int | None = flag(
        "--every-bytes SIZE", "With --follow: begin a batch sooner, when so many bytes wait.", parser=parse_size
    ),
    dry_run: bool = flag("--dry-run", "Show what would be exported, without starting Spark."),
    spark_json: bool = flag("--spark-json", "With --dry-run: print the ranges as Spark options."),
) -> Report | None:
    """Export the new messages of topics, each exactly once, as one batch of files with a manifest.

    Without a topic it exports all topics that the export already has. If there are no new messages, it ends without
    starting Spark. With `--follow` it continues, one row per committed batch; Ctrl-C or SIGTERM ends it after the
    current batch, with exit code 0.
    """
    from klog.export.run import how_far, timed
    from klog.export.status import waiting_bytes
    from klog.export.stores import open_store
    from klog.export.undecodable import UndecodableLimit
    from klog.spark import export as exporting
    from klog.spark.decoding import Decode
    from klog.spark.running.session import SparkTarget

    if spark_json and not dry_run:
        raise UsageError("--spark-json needs --dry-run")
    if decode is None and (read_as is not None or keep_bytes):
        raise UsageError(f"{'--keep-bytes' if keep_bytes else '--read-as'} needs --decode")
    wanted = None if decode is None else Decode(decode, read_as, keep_bytes)
    limit = None if max_undecodable is None else UndecodableLimit.parse(max_undecodable)
    open_root = partial(open_store, root, unsafe_single_writer=unsafe_single_writer)
    chosen = table_choice(table, table_name, catalog, append=append)
    if not follow and (every is not None or every_bytes is not None):
        raise UsageError(f"{'--every-bytes' if every is None else '--every'} needs --follow")
    if follow and dry_run:
        raise UsageError("--follow and --dry-run exclude each other")
    check_watchable(invocation, watch=follow, flag="--follow")
    if engine == "local" and writer is not None:
        raise UsageError("--writer and --engine local exclude each other")
    who = "local" if engine == "local" else writer
    where = SparkTarget(master, remote, dict(pairs(conf)), klog_home() / "cache")
    servers = await invocation.answering_servers()
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
        fail_on_data_loss=not allow_gaps,
        where=where,
        unsafe_single_writer=unsafe_single_writer,
        on_step=timed(lambda step: invocation.detail(f"export: {step}")),
        on_note=cache(invocation.say),  # once: with --follow each batch may say the same
        watching=lambda writer, job: slow_progress(invocation, lambda: _done(*how_far(writer, job)), unit="messages"),
    )
    if undecodable_to is not None and not dry_run:
        invocation.check_may_change()
        from klog.streams.undecodable import UndecodableTopic

        def target() -> UndecodableTopic:
            return UndecodableTopic(servers, undecodable_to, open_root(), topics or (), decodes=decode is not None)

        one_run = _telling(one_run, target, invocation.say)
    if follow:

        async def tell(rows: Sequence[ExportedRange]) -> None:
            if group is not None:
                await _commit(invocation, group, rows)
            await asyncio.to_thread(_check_undecodable, rows, limit, open_root)

        warm_up = partial(exporting.warm_up, root, where, who, unsafe_single_writer=unsafe_single_writer)

        def is_due() -> bool:
            return every_bytes is not None and waiting_bytes(servers, open_root()) >= every_bytes

        every_s = DEFAULT_EVERY_S if every is None else every
        await _follow(invocation, root, one_run, from_range, warm_up, every_s, tell, is_due)
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
        invocation.clear_line()
        show(error, invocation.command, invocation.output, sys.stderr)  # an error, which -q does not silence
        return replace(report, failed=True)
    return report


def _done(messages: float | None, total: int) -> Done:
    return Done(0, total, "starting", has_begun=False) if messages is None else Done(messages, total)


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


def _telling(
    one_run: Callable[..., Sequence[ExportedRange]], target: Callable[[], UndecodableTopic], say: Callable[[str], None]
) -> Callable[..., Sequence[ExportedRange]]:
    """Rounds behind each of which the messages that cannot be decoded are in their topic, too; and before the first,
    those of a batch that was the last of a run that was killed."""
    opened = cache(target)
    is_first = True

    def tell() -> None:
        written = opened().write()
        if written:
            say(f"{counted(written, 'message')} that cannot be decoded written to {opened().topic}")

    def one(**settings: Any) -> Sequence[ExportedRange]:
        nonlocal is_first
        if is_first:
            tell()
            is_first = False
        rows = one_run(**settings)
        if rows:
            tell()
        return rows

    return one


async def _follow(
    invocation: Invocation,
    root: str,
    one_run: Callable[..., Sequence[ExportedRange]],
    begin: str | None,
    warm_up: Callable[[], Any],
    every_s: float,
    tell: Callable[[Sequence[ExportedRange]], Coroutine[Any, Any, None]],
    is_due: Callable[[], bool],
) -> None:
    """Follow until SIGINT or SIGTERM; the batch in hand is committed or discarded then. A second one ends it at once.

    ``begin``: where the first run begins; the others where the one before them ended. ``warm_up`` starts Spark after
    the first run, so that the first new message does not wait for it.
    """
    from klog.export.follow import follow
    from klog.export.listing import batch_of

    loop = asyncio.get_running_loop()
    show, is_first = rows_as_they_come(invocation), True
    stop = interrupt.stop_event(lambda: invocation.say("stopping after the current batch"))

    def on_batch(rows: Sequence[ExportedRange]) -> None:
        batch = batch_of(root, rows)
        if batch is not None:
            show([batch])
        asyncio.run_coroutine_threadsafe(tell(rows), loop).result()

    def run_once() -> Sequence[ExportedRange]:
        nonlocal is_first
        rows = one_run(from_range=begin if is_first else None)
        if is_first and not stop.is_set():
            warm_up()
        is_first = False
        return rows

    batches = await asyncio.to_thread(
        follow, run_once, every_s, stop, on_batch=on_batch, is_due=is_due, say=invocation.say
    )
    invocation.say(f"stopped after {counted(batches, 'batch', 'batches')}; the next run continues from here")


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


@export.command("status", rows="klog.export.rows:ExportStatus")
async def status(
    invocation: Invocation,
    root: Root,
    max_lag: int | None = flag(
        "--max-lag N", "Exit 1 if a partition lags by more than N messages, or if any are lost.", min=0
    ),
) -> Report:
    """Show the lag of an export, and the messages that retention deleted before they were exported."""
    from klog.export import status as export_status

    servers = await invocation.answering_servers()
    rows = await asyncio.to_thread(export_status.status, servers, root)
    behind = max((row.lag or 0 for row in rows), default=0)
    late = max_lag is not None and behind > max_lag
    footer = f"a partition lags by {counted(behind, 'message')}; the limit is {max_lag:,}" if late else None
    lost = tuple(export_status.losses(rows))
    notes = (*lost, *await _why_undecodable(root, sum(row.undecodable for row in rows)))
    return invocation.report(rows, notes=notes, footer=footer, failed=late or (max_lag is not None and bool(lost)))


async def _why_undecodable(root: str, messages: int) -> tuple[str, ...]:
    """The first reason, and how to read them."""
    from klog.export.undecodable import told_of_all

    told = await asyncio.to_thread(told_of_all, root, messages) if messages else None
    return () if told is None else (told,)


@export.command("verify", rows="klog.export.rows:ExportCheck")
async def verify(
    invocation: Invocation,
    root: Root,
    without_brokers: bool = flag("--without-brokers", "Check only files and manifests; needs no broker."),
) -> Report:
    """Count an export again, and compare it with its manifests and the brokers. Exit 1 on any problem."""
    from klog.export import verify as export_verify

    servers = None if without_brokers else await invocation.answering_servers()
    with counting(invocation, "batches") as count:
        rows = await asyncio.to_thread(export_verify.verify, servers, root, count)
    return invocation.report(rows, notes=await _why_undecodable(root, sum(row.undecodable or 0 for row in rows)))


@export.command("list", rows="klog.export.listing:ExportedBatch", connects=False)
async def list_batches(
    invocation: Invocation,
    root: Root,
    parts: bool = flag("--parts", "Show merged batches as they were committed, one row each."),
) -> Report:
    """List the batches of an export from its manifests. Needs no broker."""
    from klog.export import listing

    rows = await asyncio.to_thread(lambda: list(listing.list_batches(root, parts=parts)))
    messages, size = sum(row.messages for row in rows), sum(row.bytes for row in rows)
    notes = await _why_undecodable(root, sum(row.undecodable for row in rows))
    return invocation.report(rows, notes=notes, footer=f"{counted(messages, 'message')}, {size:,} bytes")


@export.command("compact", rows="klog.export.compact:CompactedBatches", connects=False, dry_run=True)
async def compact(
    invocation: Invocation,
    root: Root,
    below: str | None = flag("--below SIZE", "Merge neighbouring batches smaller than this (128MiB)."),
    batches: str | None = flag("--batches A-B", "Merge these batches, whatever their size."),
) -> Report:
    """Merge batches into fewer, larger files, atomically. Offsets and counts stay the same.

    Other runs may continue meanwhile. Replaced files stay until `klog export gc`.
    """
    from klog.export import compact as compacting

    if below is not None and batches is not None:
        raise UsageError("--below and --batches exclude each other")
    dry_run = invocation.shared.dry_run
    with counting(invocation, "bytes") as count:
        rows = await asyncio.to_thread(
            compacting.compact,
            root,
            below_bytes=compacting.BELOW_BYTES if below is None else parse_size(below),
            batches=None if batches is None else compacting.parse_batches(batches),
            dry_run=dry_run,
            on_step=lambda step: invocation.detail(f"compact: {step}"),
            count=count,
        )
    if not rows:
        return invocation.report(rows, footer=f"nothing to merge in {root}")
    before = sum(row.files_before for row in rows)
    now = "would be fewer" if dry_run else f"are {sum(row.files or 0 for row in rows):,} now"
    return invocation.report(rows, footer=f"{counted(before, 'file')} {now}")


@export.command("gc", rows="klog.export.gc:Garbage", connects=False, asks=True)
async def collect(
    invocation: Invocation,
    root: Root,
    older_than: float = flag(
        "--older-than DURATION", "Only files not modified for this long (24h).", "24h", parser=duration
    ),
) -> Report:
    """Remove unused files: leftovers of killed runs and files that a compaction replaced. Asks first."""
    from klog.export import gc

    rows = await asyncio.to_thread(gc.find_garbage, root, older_than_s=older_than)
    if not rows:
        return invocation.report(rows, footer=f"nothing to remove from {root}")
    size = sum(row.bytes for row in rows)
    invocation.confirm(
        f"Remove {counted(len(rows), 'folder or file', 'folders and files')}, {size:,} bytes, from {root}",
        invocation.report(rows),
    )
    with counting(invocation, "bytes") as count:
        removed = await asyncio.to_thread(gc.collect, root, rows, count=count)
    return invocation.report(removed, footer=f"removed {sum(row.bytes for row in removed):,} bytes")


@export.command("submit", rows="klog.spark.running.submit:Submission")
async def submit(
    invocation: Invocation,
    root: str = flag("--to ROOT", "Folder or URL of the export, as seen from the Spark cluster.", ...),
    master: str = flag("--master MASTER", "spark://HOST:PORT, yarn or k8s://https://HOST:PORT.", ...),
    topics: OptionalTopics = None,
    deploy_mode: DeployMode = "client",
    conf: Conf = None,
    arguments: str = flag("--arguments WORDS", "Further flags of `klog export run`, as one quoted argument.", ""),
    folder: Shipped = SHIPPED,
    run_line: bool = flag("--run", "Run the command line."),
) -> Report | int:
    """Print the spark-submit command line of an export, and write the zip of klog that it ships.

    Each run of it exports the new messages.
    """
    from klog.spark.running.submit import submission

    servers = await invocation.answering_servers()
    words = ["-B", servers, "export", "run", *(topics or ()), "--to", root, *shlex.split(arguments)]
    made = submission(words, folder, master=master, deploy_mode=deploy_mode, settings=dict(pairs(conf)))
    return await show_or_run(invocation, made, run=run_line)
