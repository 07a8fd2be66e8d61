"""`klog export verify`: reads every file of an export again and compares it with the manifests and brokers. Blocks.

It does not stop at the first problem: it returns one row per partition, and one per problem of the export as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from klog.client.raw_fetch import Range, RawCluster
from klog.errors import CorruptLog, Refused
from klog.export import history
from klog.export.batch_writer import is_undecodable
from klog.export.file_statistics import FileStatistics, collect_statistics, count_files, difference
from klog.export.manifest import ExportIdentity, Manifest
from klog.export.root import ExportRoot
from klog.export.rows import ExportCheck
from klog.export.stores.store import Store
from klog.export.tables.rows import TableRows
from klog.export.topics import check_same, describe
from klog.metrics import Count
from klog.names import TopicPartition, counted


@dataclass
class _Seen:
    """One partition, over all batches so far."""

    from_offset: int
    to_offset: int
    batches: int = 0
    messages: int = 0
    undecodable: int = 0
    claims: list[tuple[Range, int]] = field(default_factory=list)
    """Per batch (range, messages in the files), for the comparison with the broker."""
    findings: list[tuple[str, str]] = field(default_factory=list)
    """(state, message) per problem, in the order found."""


def verify(bootstrap: str | None, root: str | Store, count: Count | None = None) -> list[ExportCheck]:
    """One row per partition, then one per problem of the export as a whole. Every row that is not ``ok`` has failed.

    ``bootstrap`` None: do not ask the brokers. ``count`` counts the batches.

    NoSuchThing if there is no export. Refused if the export is of another
    cluster or topic than the brokers have.
    """
    place = ExportRoot(root)
    known = place.existing_identity()
    if known.stream is not None:
        bootstrap = None  # what it has is in no log
    results = 0
    findings: list[tuple[str, str]] = []
    seen = {one: _Seen(start, start) for one, start in known.initial.items()}
    manifest: Manifest | None
    digest: str | None
    previous: str | None = None
    expected = 0
    table = None if place.table is None else place.table.shown
    remembered = place.checkpointed()  # before the list, so that the list has every batch committed until then
    numbers = place.batch_numbers()
    count = count or Count()
    count.total = len(numbers)
    rows_of_table = None
    if table is not None and known.stream is None:
        rows_of_table = TableRows(table, hashed=known.decode is None)
    hashes = {} if table is None else table.hashes()
    for count.done, batch in enumerate(numbers):
        try:
            manifest, digest = place.manifest(batch)
        except Refused as error:
            findings.append(("broken-chain", error.message))
            manifest, digest = None, None
        first = batch if manifest is None else manifest.first_batch
        contiguous = first == expected
        if not contiguous:
            missing = f"batch {expected}" + (f" to {first - 1}" if first - 1 > expected else "")
            findings.append(("missing-batch", f"{missing}: {place.where(expected)} is not there"))
        expected = batch + 1
        if manifest is None:
            previous = None
            continue
        if contiguous and first > 0 and manifest.previous_sha256 != previous:
            what = "refers to a previous manifest that is missing or was changed"
            findings.append(("broken-chain", f"{place.where(batch)} {what}"))
        if hashes.get(batch, digest) != digest:
            findings.append(("broken-chain", f"{place.where(batch)} is not what the table's commit has the hash of"))
        previous = digest
        findings.extend(("broken-chain", message) for message in history.check(place, manifest))
        if table is not None and known.stream is not None:  # its rows have no offsets
            results += sum(file.messages for file in manifest.files)
            continue
        found = _check_files(place, known, manifest, findings)
        results += sum(file.messages for file in found.files)
        _check_offsets(manifest, found if rows_of_table is None else rows_of_table.of(manifest, found), seen)
    if rows_of_table is not None:
        findings += [
            ("unknown-rows", f"the table has {counted(rows, 'row')} of {one} that no batch has committed")
            for one, rows in sorted(rows_of_table.unclaimed().items())
        ]
        if place.table is not None and not place.table.has_others:
            unknown = place.table.shown.count() - rows_of_table.count
            if unknown:
                findings.append(("unknown-rows", f"the table has {counted(unknown, 'row')} without an offset"))
    elif table is not None and (there := table.count()) != results:
        findings.append(("wrong-count", f"the table has {counted(there, 'row')}; {results:,} were committed"))
    now = set(place.batch_numbers())
    if not now.issuperset(numbers) or (table is not None and now != set(numbers)):
        return verify(bootstrap, root, count)  # batches were merged meanwhile, or one was committed to the table
    if remembered is not None and remembered[0] >= expected:
        gone = remembered[0]
        findings.append(("missing-batch", f"batch {gone} was committed: {place.where(gone)} is not there"))
    for one in place.unknown_files():
        findings.append(
            ("unknown-file", f"{place.store.location(one)} belongs to no batch, and readers take it for data")
        )
    if bootstrap is not None:
        with RawCluster(bootstrap) as cluster:
            check_same(place, known, describe(cluster, place, known, ()), cluster.cluster_id)
            counts = _ask_brokers(cluster, seen)
    else:
        counts = dict.fromkeys(seen)
    rows = [_row(one, about, counts[one]) for one, about in sorted(seen.items())]
    if known.stream is not None and not findings:
        rows = [ExportCheck(None, None, None, None, len(numbers), results, 0, None, "ok")]
    return rows + [
        ExportCheck(
            None, None, None, None, 0, 0, 0, None, state, error=state.upper().replace("-", "_"), message=message
        )
        for state, message in findings
    ]


def _row(one: TopicPartition, about: _Seen, counted: int | None) -> ExportCheck:
    state, message = about.findings[0] if about.findings else ("ok", None)
    return ExportCheck(
        one.topic,
        one.partition,
        about.from_offset,
        about.to_offset,
        about.batches,
        about.messages,
        about.undecodable,
        counted,
        state,
        error=None if state == "ok" else state.upper().replace("-", "_"),
        message=message,
    )


def _check_files(
    place: ExportRoot, known: ExportIdentity, manifest: Manifest, findings: list[tuple[str, str]]
) -> FileStatistics:
    """Compare the files of a batch with the list in its manifest. Returns a survey of the files.

    Of a table's batch only those of messages that could not be decoded, since the table shows the others.
    """

    def location(path: str) -> str:
        return place.store.location(place.file_path(manifest, path))

    is_table = known.table is not None
    claimed = {file.path: file for file in manifest.files if not is_table or is_undecodable(file.path)}
    if is_table and not claimed:
        return FileStatistics()
    try:
        if known.stream is not None:
            found = FileStatistics(files=count_files(place.store, place.batch_folder(manifest), thorough=True))
        else:
            found = collect_statistics(
                place.store,
                *place.folders(manifest),
                thorough=True,
                checksum=_has_checksums(manifest),
                undecodable_only=is_table,
            )
    except CorruptLog as error:
        findings.append(("changed-file", error.message))
        return FileStatistics(unreadable=True)
    there = {file.path: file for file in found.files}
    findings += [("missing-file", f"{location(path)} is not there") for path in sorted(claimed.keys() - there.keys())]
    findings += [
        ("unknown-file", f"{location(path)} is not in the manifest") for path in sorted(there.keys() - claimed.keys())
    ]
    for path in sorted(there.keys() & claimed.keys()):
        has, had = there[path], claimed[path]
        if has != had:
            sizes = f"{has.bytes} bytes and {has.messages} messages; {had.bytes} and {had.messages} were exported"
            findings.append(("changed-file", f"{location(path)} has {sizes}"))
    return found


def _check_offsets(manifest: Manifest, found: FileStatistics, seen: dict[TopicPartition, _Seen]) -> None:
    """Compare a batch's ranges with the previous batches, and the messages in its files with its ranges."""
    summed = _has_checksums(manifest)
    skipped = {(gap.topic, gap.partition, gap.from_offset): gap.to_offset for gap in manifest.gaps}
    for one, part in sorted(manifest.partitions.items()):
        about = seen.setdefault(one, _Seen(0, 0))
        name = f"batch {manifest.batch}"
        if manifest.merged:
            name = f"batch {manifest.first_batch} to {manifest.batch}"
        expected = skipped.get((*one, about.to_offset), about.to_offset)
        if part.from_offset > expected:
            about.findings.append(
                ("gap", f"{name} begins at {part.from_offset}; [{expected}, {part.from_offset}) is missing")
            )
        elif part.from_offset < expected:
            about.findings.append(("overlap", f"{name} begins at {part.from_offset}, before {expected}"))
        about.to_offset = part.to_offset
        if part.to_offset > part.from_offset:
            about.batches += 1
        counted = found.partitions.get(one)
        messages = counted.messages if counted else 0
        about.messages += messages
        about.undecodable += counted.undecodable if counted else 0
        about.claims.append((Range(*one, part.from_offset, part.to_offset), messages))
        problem = difference(part, counted, summed=summed)
        if found.unreadable:
            problem = "wrong-count", "cannot be read"
        if problem is not None:
            about.findings.append((problem[0], f"{name} {problem[1]}"))


def _has_checksums(manifest: Manifest) -> bool:
    """Whether the manifest has checksums, and the files the bytes to compute them from."""
    return manifest.decode is None and any(part.checksum for part in manifest.partitions.values())


def _ask_brokers(cluster: RawCluster, seen: dict[TopicPartition, _Seen]) -> dict[TopicPartition, int | None]:
    """The brokers' counts of messages in the batches that they still have completely. A difference is a finding.

    None for a partition of which they have no complete batch, or if they cannot count.
    """
    earliest, latest = cluster.bounds(seen)
    ranges: dict[TopicPartition, Range] = {}
    ours: dict[TopicPartition, int] = {}
    for one, about in seen.items():
        kept = [claim for claim in about.claims if claim[0].from_offset >= earliest[one]]
        if not kept or kept[-1][0].to_offset <= kept[0][0].from_offset:
            continue
        if kept[-1][0].to_offset > latest[one]:
            about.findings.append(("gap", f"the broker's log ends at {latest[one]}, the export at {about.to_offset}"))
            continue
        ranges[one] = Range(*one, kept[0][0].from_offset, kept[-1][0].to_offset)
        ours[one] = sum(messages for _, messages in kept)
    counts = cluster.counts(ranges.values())
    found: dict[TopicPartition, int | None] = dict.fromkeys(seen)
    for one, wanted in ranges.items():
        found[one] = counts[wanted]
        if found[one] is not None and found[one] != ours[one]:
            seen[one].findings.append(
                ("wrong-count", f"the broker counts {found[one]} messages in {wanted}, the files hold {ours[one]}")
            )
    return found
