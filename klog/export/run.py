"""One run of `klog export run`: plan, write, count, flush, commit.

`run` does not read or write records itself: it takes a BatchWriter (`klog.export.batch_writer`).
`klog.spark.export` has the BatchWriters that use Spark. Everything here blocks; call it from a thread that may block.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

from klog import __version__
from klog.client.metadata import TopicNode
from klog.client.raw_fetch import Range, RawCluster
from klog.errors import CorruptLog, OffsetOutOfRange, Refused, UsageError
from klog.export.batch_writer import BatchWriter, FileLayout, WriteJob, WriteResult, checksum_text
from klog.export.file_statistics import COUNTED, FileStatistics, PartitionStatistics, collect_statistics
from klog.export.files import FORMATS
from klog.export.manifest import FIRST_FORMAT, ExportedPartition, ExportIdentity, Gap, Manifest, now
from klog.export.partitioning import Partitioning
from klog.export.positions import NAMED_MAX, Limits, resolve
from klog.export.root import ExportRoot, Staged
from klog.export.rows import ExportedRange
from klog.export.stores.store import Store
from klog.export.tables.commits import TableCommits, added_columns, grown, schema_of
from klog.export.topics import check_same, describe, exported_to, partitions_of
from klog.export.undecodable import UndecodableLimit, first_reason, told
from klog.names import TopicPartition, counted, first_few

STEPS = ("planned", "started", "staged", "written", "counted", "flushed", "committed", "checkpointed")
"""The steps of `run`, in order. A process killed at any of them leaves the whole batch or nothing of it."""


DecodePlan = Callable[[RawCluster, Sequence[str], dict[str, Any] | None, bool], dict[str, Any]]
"""(cluster, topics, the export's decoding so far, whether it is a table) -> the decoding to record in the identity."""


Watching = Callable[[BatchWriter, WriteJob], AbstractContextManager[None]]


def how_far(writer: BatchWriter, job: WriteJob) -> tuple[float | None, int]:
    """Messages written, None if unknown, and in all. Another thread may ask; the answer may take any time."""
    total = job.messages
    if total is None:  # by brokers that cannot count, whose offsets are consecutive
        total = sum(one.to_offset - one.from_offset for one in job.ranges)
    try:
        fraction = writer.fraction
    except Exception:  # an error of the display must not end the export
        fraction = None
    return None if fraction is None else total * fraction, total


def timed(say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Callable[[str], None]:
    """For ``on_step`` of a run: each step but the first, ``planned``, with the seconds since the one before it."""
    before: float | None = None

    def reached(step: str) -> None:
        nonlocal before
        now = clock()
        say(step if step == "planned" or before is None else f"{step} in {now - before:.2f} s")
        before = now

    return reached


class TableChoice(NamedTuple):
    """An export that is a table: ``iceberg`` or ``delta``, the table's name, and the address of its catalogue."""

    format: str
    name: str | None = None
    """None: ``klog.`` and the last part of the root."""
    catalog: str | None = None
    """None: the catalogue in the root."""
    append: bool = False
    """Others made the table."""

    def named(self, known: ExportIdentity, place: ExportRoot) -> ExportIdentity:
        """The identity of an export that is this table."""
        last = re.sub(r"\W+", "_", str(place).rstrip("/").rpartition("/")[2]).strip("_") or "export"
        about = {"name": self.name or f"klog.{last}", "catalog": self.catalog}
        return replace(known, commit=self.format, table=about | ({"append": True} if self.append else {}))


def run(
    bootstrap: str,
    topics: Sequence[str],
    root: str | Store,
    writer: BatchWriter,
    *,
    from_range: str | None = None,
    format: str | None = None,
    partition_by: str | None = None,
    decode: DecodePlan | None = None,
    table: TableChoice | None = None,
    max_file_bytes: int | None = None,
    checksum: bool = False,
    max_messages: int | None = None,
    max_undecodable: UndecodableLimit = UndecodableLimit("0"),
    dry_run: bool = False,
    fail_on_data_loss: bool = True,
    on_step: Callable[[str], None] = lambda step: None,
    on_note: Callable[[str], None] = lambda text: None,
    watching: Watching = lambda writer, job: nullcontext(),
) -> list[ExportedRange]:
    """Export the new messages of ``topics`` (by default: of all topics of the export) and commit them as one batch.

    Returns one row per exported range, and no rows if nothing is new.

    ``from_range`` (a position or a range) applies to the first run of a root only. The first run also fixes ``format``,
    ``partition_by`` and ``decode`` (None: Parquet, no folders by time, bytes); later runs need not repeat them.
    ``max_messages`` limits each partition. ``max_undecodable`` is kept in the root for later runs; it is for the caller
    to hold the rows against it. ``fail_on_data_loss=False``: offsets that retention removed before they were
    exported become gaps in the manifest, and the run does not fail. ``checksum``: the manifest gets checksums of the
    messages. ``on_step`` is called with each of STEPS. ``on_note`` is called with a sentence for each deviation
    from the request. ``watching``: what is around the writing, and may ask `how_far` it is.

    Raises UsageError for an unknown format, and if the first run is to begin beyond the end of a partition; Refused if
    the root is not an export, or is one of another topic or cluster; UnknownTopicOrPartition; OffsetOutOfRange if
    offsets to export are gone; CorruptLog if the written files differ from what the brokers have (then nothing is
    committed).
    """
    if format is not None and format not in FORMATS:
        raise UsageError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    by = None if partition_by is None else Partitioning.parse(partition_by)
    wanted = FileLayout(format or FIRST_FORMAT, None if by is None else str(by), max_file_bytes)
    place = ExportRoot(root, among_others=table is not None and table.append)
    known = place.identity()
    is_new, is_planned, is_ready = known is None, False, False
    with RawCluster(bootstrap) as cluster:
        facts = describe(cluster, place, known, topics)
        limits = _limits(cluster, place, known, facts, from_range, on_note)
        is_table = table is not None if known is None else known.table is not None
        decoding = decode and decode(cluster, sorted(facts), known.decode if known else None, is_table)
        if known is None:
            known = ExportIdentity(
                cluster.cluster_id,
                wanted.format,
                {one.name: one.topic_id for one in facts.values()},
                limits.starts,
                now(),
                __version__,
                wanted.partition_by,
                decoding,
                max_undecodable=None if decoding is None else max_undecodable.text,
            )
            if table is not None:
                check_table(table, wanted.format)
            _check_partitioning(by, None if table is None else table.format, decoding)
            if table is not None:
                known = table.named(known, place)
                if table.append:
                    TableCommits(place.store, known).check_others(decoding)
        while True:
            if not is_new:
                check_same(place, known, facts, cluster.cluster_id)
                _check_known(place, known)
                asked = [("format", known.format, format), ("partitioning", known.partition_by, wanted.partition_by)]
                check_fixed(place, *asked, ("decoding", known.decode, decoding), *of_table(known, table))
                if not dry_run:
                    place.discard_stale()
            plan = _plan(place, cluster, known, facts, limits.ends, max_messages, fail_on_data_loss)
            if not is_planned:
                on_step("planned")
                is_planned = True
            if dry_run:
                return _rows(plan, None)
            if plan.moves and not is_ready:
                writer.ready(plan.decode)  # it fails without Java, say: before the root exists, whose settings bind
                on_step("started")
                is_ready = True
            if is_new:
                known, is_new = place.create(known), False  # or what another first run has created
                continue
            if not plan.moves:
                return []
            summed = checksum or known.table is not None  # a table's batch has a receipt, and others write to the table
            rows = _export(place, cluster, bootstrap, plan, writer, max_file_bytes, summed, on_step, on_note, watching)
            if rows is not None:
                return rows


def _check_known(place: ExportRoot, known: ExportIdentity) -> None:
    """Refused if this klog cannot continue the export."""
    if known.stream is not None:
        raise Refused(f"{place} has the results of a stream, not messages", hint="export to another folder")
    FileLayout(known.format, known.partition_by)


def check_fixed(place: ExportRoot, *fixed: tuple[str, Any, Any]) -> None:
    """Refused where something else is asked for than what the first run has fixed: (what, fixed, asked or None)."""
    for what, here, asked in fixed:
        if asked is not None and asked != here:
            is_text = isinstance(asked, str)
            raise Refused(
                f"the {what} of {place} is {'none' if here is None else here if is_text else 'another'}"
                + (f", not {asked}" if is_text else ""),
                hint="it is fixed by an export's first run; leave it out, or export to another place",
            )


def of_table(known: ExportIdentity, table: TableChoice | None) -> list[tuple[str, Any, Any]]:
    """For `check_fixed`."""
    if table is None:
        return []
    here = known.table or {}
    return [
        ("table", known.commit if here else None, table.format),
        ("table name", here.get("name"), table.name),
        ("catalog", here.get("catalog"), table.catalog),
    ]


def check_table(table: TableChoice, format: str) -> None:
    """UsageError for a table that cannot be."""
    if format != FIRST_FORMAT:
        raise UsageError(f"a table has Parquet files, not {format}", hint="leave --format out")
    if table.format != "iceberg" and (table.name or table.catalog):
        raise UsageError(f"--catalog and --table-name are for Iceberg; a {table.format} table is its folder")
    if table.append and table.format == "iceberg" and None in (table.name, table.catalog):
        raise UsageError("--append to an Iceberg table needs --catalog and --table-name, by which it is found")
    if table.name is not None and "." not in table.name.strip("."):
        raise UsageError(
            f"--table-name {table.name}: must be NAMESPACE.NAME", hint="for example --table-name web.clicks"
        )


def _check_partitioning(by: Partitioning | None, table: str | None, decoding: dict[str, Any] | None) -> None:
    if by is None or by.is_time:
        return
    if by.transform != "identity" and table != "iceberg":
        raise UsageError(
            f"{by}: buckets and truncated values are Iceberg's", hint=f"--table iceberg, or --partition-by {by.column}"
        )
    by.check(schema_of(decoding))


class _Plan(NamedTuple):
    """The next batch. ``ranges`` has every partition, also those without new messages."""

    batch: int
    previous_sha256: str | None
    identity: ExportIdentity
    ranges: dict[TopicPartition, Range]
    counts: dict[Range, int | None]
    leader_epochs: dict[TopicPartition, int]
    gaps: tuple[Gap, ...]
    known_schema_ids: frozenset[int]
    """The schema ids of the previous batch."""
    decode: dict[str, Any] | None
    """The decoding of the previous batch; of the first one the identity's."""

    @property
    def moves(self) -> list[Range]:
        return [one for one in self.ranges.values() if one.to_offset > one.from_offset]


def _limits(
    cluster: RawCluster,
    place: ExportRoot,
    known: ExportIdentity | None,
    facts: dict[str, TopicNode],
    from_range: str | None,
    on_note: Callable[[str], None],
) -> Limits:
    """``--from`` as offsets. UsageError if the export has begun elsewhere, or if the position does not exist yet."""
    if known is not None and from_range is None:
        return Limits({}, {})
    if known is not None and place.batches():
        raise UsageError(
            f"--from is for the first run of an export; {place} goes on where it stopped",
            hint="leave --from out, or export to another folder",
        )
    limits = resolve(cluster, partitions_of(facts), from_range or "start", on_note)
    if known is not None and known.initial != limits.starts:
        one = min(one for one, _ in known.initial.items() ^ limits.starts.items())
        raise UsageError(
            f"an earlier run, which committed nothing, has fixed other starts for {place}: {one} at "
            f"{known.initial.get(one)}, not at {limits.starts.get(one)}",
            hint="leave --from out to begin where that run would have, or export to another folder",
        )
    return limits


def _plan(
    place: ExportRoot,
    cluster: RawCluster,
    known: ExportIdentity,
    facts: dict[str, TopicNode],
    limits: dict[TopicPartition, int],
    max_messages: int | None,
    fail_on_data_loss: bool,
) -> _Plan:
    """The ranges of the next batch. Every end is resolved here, once."""
    last = place.last()
    partitions = partitions_of(facts)
    starts = exported_to(known, last[0] if last else None, partitions)
    earliest, latest = cluster.bounds(partitions)
    ranges, gaps = {}, []
    for one, start in starts.items():
        end = latest[one]
        if end < start:
            raise OffsetOutOfRange(
                f"{one} ends at {end}, before {start}, where the export stopped: the brokers have lost messages",
                hint="what was exported stays as it is; export to another folder",
            )
        first = earliest[one]
        if start < first:
            if fail_on_data_loss:
                raise OffsetOutOfRange(
                    f"{one}: the log starts at {first} now; [{start}, {first}) was removed before it was exported",
                    hint="to go on and record the gap: --allow-gaps",
                )
            gaps.append(Gap(one.topic, one.partition, start, first, "removed before it was exported"))
            start = first
        end = max(start, min(end, limits.get(one, end)))
        if max_messages is not None:
            end = min(end, cluster.nth(one, start, max_messages))
        ranges[one] = Range(one.topic, one.partition, start, end)
    moves = [one for one in ranges.values() if one.to_offset > one.from_offset]
    found = {one: facts[one.topic].partitions[one.partition].leader_epoch for one in partitions}
    epochs = {one: -1 if epoch is None else epoch for one, epoch in found.items()}
    return _Plan(
        0 if last is None else last[0].batch + 1,
        None if last is None else last[1],
        known,
        ranges,
        cluster.counts(moves),
        epochs,
        tuple(gaps),
        frozenset() if last is None else frozenset(last[0].schema_ids),
        known.decode if last is None else last[0].decode,
    )


def _export(
    place: ExportRoot,
    cluster: RawCluster,
    bootstrap: str,
    plan: _Plan,
    writer: BatchWriter,
    max_file_bytes: int | None,
    checksum: bool,
    on_step: Callable[[str], None],
    on_note: Callable[[str], None],
    watching: Watching,
) -> list[ExportedRange] | None:
    """Write, count, flush, commit. None if another run committed this batch first."""
    started_at = now()
    written, found = WriteResult(), FileStatistics()
    reason: str | None = None

    def write(folder: str) -> WriteResult:
        counts = [plan.counts[one] for one in plan.moves]
        job = WriteJob(
            bootstrap,
            plan.moves,
            place.store,
            folder,
            FileLayout(plan.identity.format, plan.identity.partition_by, max_file_bytes, place.table is not None),
            plan.decode,
            attempts=f"{folder}-attempts" if place.by_rename else None,
            checksum=checksum,
            messages=None if None in counts else sum(count or 0 for count in counts),
        )
        with watching(writer, job):
            return writer.write(job)

    def fill(staged: Staged) -> Manifest:
        nonlocal plan, written, found, reason
        written = write(staged.folder)
        wider = grown(plan.decode, written.met, cluster.schema, types_stay=plan.identity.commit == "delta")
        if wider != plan.decode:
            if added := added_columns(plan.decode, wider):  # else a column that was always written need not be now
                on_note(f"{place} gets the columns of later schemas: {', '.join(added)}")
            plan = plan._replace(decode=wider)
            place.store.remove(staged.folder)
            place.store.make_folder(staged.folder)
            written = write(staged.folder)
        on_step("written")
        summed = checksum and written.checksums is None and plan.decode is None
        found = collect_statistics(place.store, staged.folder, checksum=summed)
        _check_counts(plan, found)
        on_step("counted")
        reason = first_reason(place.store, found.files, lambda path: f"{staged.folder}/{path}")
        checksums = {one: part.checksum for one, part in found.partitions.items()} if summed else written.checksums
        return _manifest(plan, found, written, checksums or {}, staged.run, writer.engine, started_at)

    if not place.commit_batch(plan.batch, fill, on_step):
        return None
    undecodable = sum(part.undecodable for part in found.partitions.values())
    if undecodable:
        on_note(told(place, f"{counted(undecodable, 'message')} of batch {plan.batch}", reason))
    for schema_id in sorted(written.left_out.keys() - plan.known_schema_ids):
        of_schema = f" of schema {schema_id}" if schema_id >= 0 else ""
        paths = first_few(written.left_out[schema_id], NAMED_MAX)
        on_note(
            f"messages{of_schema} have fields that {place} has no columns for: {paths}; "
            "an export to another root takes all that a schema can have"
        )
    return _rows(plan, found)


def _check_counts(plan: _Plan, found: FileStatistics) -> None:
    """CorruptLog unless the files hold as many messages of each range as the broker counts, each once, no others."""
    for one in found.partitions.keys() - {TopicPartition(r.topic, r.partition) for r in plan.moves}:
        raise CorruptLog(f"messages of {one} were written, which is not exported")
    for wanted in plan.moves:
        part = found.partitions.get(TopicPartition(wanted.topic, wanted.partition))
        written = part.messages if part else 0
        counted = plan.counts[wanted]
        if counted is not None and counted != written:
            raise CorruptLog(f"{wanted}: the broker counts {counted} messages, {written} were written")
        if part is None:
            continue
        if part.first_offset < wanted.from_offset or part.last_offset >= wanted.to_offset:
            raise CorruptLog(f"{wanted}: offsets {part.first_offset} to {part.last_offset} were written")
        if not part.distinct:
            raise CorruptLog(f"{wanted}: an offset was written twice")


def _manifest(
    plan: _Plan,
    found: FileStatistics,
    written: WriteResult,
    checksums: dict[TopicPartition, int],
    run_id: str,
    engine: str,
    started_at: str,
) -> Manifest:
    partitions = {}
    for one, wanted in plan.ranges.items():
        part = found.partitions.get(one)
        partitions[one] = ExportedPartition(
            wanted.from_offset,
            wanted.to_offset,
            broker_messages=plan.counts.get(wanted, 0),
            leader_epoch=plan.leader_epochs[one],
            checksum=checksum_text(checksums[one]) if one in checksums else None,
            **({} if part is None else {name: getattr(part, name) for name in COUNTED}),
        )
    return Manifest(
        batch=plan.batch,
        run=run_id,
        previous_sha256=plan.previous_sha256,
        format=plan.identity.format,
        cluster_id=plan.identity.cluster_id,
        topic_ids=plan.identity.topic_ids,
        partitions=partitions,
        gaps=plan.gaps,
        windows=found.windows,
        files=tuple(found.files),
        klog=__version__,
        engine=engine,
        started_at=started_at,
        committed_at=now(),
        partition_by=plan.identity.partition_by,
        decode=plan.decode,
        schema_ids=tuple(sorted(written.schema_ids)),
    )


def _rows(plan: _Plan, found: FileStatistics | None) -> list[ExportedRange]:
    if found is None:
        return [ExportedRange(*wanted, messages=plan.counts[wanted], files=None, bytes=None) for wanted in plan.moves]
    messages = sum(part.messages for part in found.partitions.values())
    size = sum(file.bytes for file in found.files)
    rows = []
    for wanted in plan.moves:
        part = found.partitions.get(TopicPartition(wanted.topic, wanted.partition), PartitionStatistics())
        share = size * part.messages // max(messages, 1)
        rows.append(ExportedRange(*wanted, part.messages, part.files, share, part.undecodable))
    return rows
