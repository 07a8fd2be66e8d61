"""`klog export compact`: merges consecutive batches into fewer, larger files. Blocks.

Offsets and the chain of manifests stay as they are. The merged files lie in one folder, with the number of the last of
these batches. Its manifest says which batches were merged, and the original manifests are kept beside it.

Strategy: a compaction rewrites the files into a separate folder, counts the messages in what it wrote, and compares the
counts with the manifests. Then it commits in one step: on a local file system it exchanges ``data`` as a whole
(`data_replacement`); where manifests commit, it creates ``ROOT/_klog/merges/<n>.json`` with the next number n. Of two
compactions at the same time one wins. Export runs and compactions do not disturb each other.

docs/export-format.md describes what a reader sees during a compaction. `klog export gc` removes the replaced files.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from klog import __version__
from klog.errors import CorruptLog, NoSuchThing, Refused, UsageError
from klog.export.data_replacement import replace_data
from klog.export.file_statistics import FileStatistics, collect_statistics, difference
from klog.export.files import FileFormat, format_named, read_stored
from klog.export.history import HISTORY, combine, pack, texts_of
from klog.export.manifest import ExportedFile, Manifest, Merged
from klog.export.root import MARK, MERGES, ExportRoot, merge_path
from klog.export.stores.local import LocalStore
from klog.export.stores.store import Store
from klog.metrics import Count

if TYPE_CHECKING:
    import pyarrow as pa


STEPS = ("planned", "merged", "counted", "flushed", "linked", "replaced", "done")
"""The steps of `compact`, in order. A process killed at any of them leaves the export as it was, or compacted."""

BELOW_BYTES = 128 * 1024 * 1024
"""Neighbouring batches smaller than this are merged."""

FILE_BYTES = 256 * 1024 * 1024
"""A merged file that reaches this size is closed, and the next one begun."""

REPLACED = "_klog/replaced"


@dataclass(frozen=True)
class CompactedBatches:
    """Batches ``[from_, to]``, merged into one folder. ``files`` and ``bytes`` are None in a dry run."""

    from_: int
    to: int
    messages: int
    files_before: int
    bytes_before: int
    files: int | None
    bytes: int | None


class _Group(NamedTuple):
    """Batches to merge: their current manifests, in order, and the hash that the next batch's manifest refers to."""

    parts: tuple[Manifest, ...]
    last_sha256: str

    @property
    def files(self) -> list[ExportedFile]:
        return [file for part in self.parts for file in part.files]

    @property
    def first(self) -> int:
        return self.parts[0].first_batch

    @property
    def last(self) -> int:
        return self.parts[-1].batch


def compact(
    root: str | Store,
    *,
    below_bytes: int = BELOW_BYTES,
    batches: tuple[int, int] | None = None,
    dry_run: bool = False,
    on_step: Callable[[str], None] = lambda step: None,
    count: Count | None = None,
) -> list[CompactedBatches]:
    """Merge ``batches`` (first and last), or by default neighbouring batches smaller than ``below_bytes``.

    Returns one row per merged folder; ``count`` has the bytes of files that were rewritten.

    NoSuchThing if the export or a batch does not exist. Refused if the chain is
    broken, the store cannot do it, or another compaction merged some of the batches first. CorruptLog if a file cannot
    be read, or if what was written differs from the manifests; the export is then unchanged.
    """
    place = ExportRoot(root)
    known = place.existing_identity()
    if place.table is not None:
        raise Refused(
            f"{place} is a table, whose own tools merge its files",
            hint="for example rewrite_data_files of Spark's Iceberg, or OPTIMIZE of Delta Lake",
        )
    if known.stream is not None:
        raise Refused(f"{place} has the results of a stream, whose batches cannot be merged", hint="a longer --every")
    groups = _groups(place.settled(lambda: list(place.chain())), below_bytes, batches, place)
    on_step("planned")
    if dry_run or not groups:
        return [_row(group, None) for group in groups]
    if place.by_rename and not isinstance(place.store, LocalStore):
        raise Refused(
            f"{place}: this store can rename folders and not exchange them, so batches cannot be merged in one step",
            hint="a local file system can, and so can a store where batches are committed by manifests",
        )
    count = count or Count()
    count.total = sum(file.bytes for group in groups for file in group.files)
    run = str(uuid.uuid4())
    staged = f"_staging/{run}"
    written: list[tuple[_Group, Manifest]] = []
    done = False
    try:
        for group in groups:
            folder = (
                f"{staged}/data/batch={group.last:010d}" if place.by_rename else place.written_folder(group.last, run)
            )
            written.append((group, _merge(place, group, run, folder, on_step, count)))
        on_step("flushed")
        done = _commit(place, written, staged, on_step)
        if not done:
            raise Refused(
                f"{place}: another compaction has merged some of the batches {groups[0].first} to {groups[-1].last} "
                "meanwhile",
                hint="what it did holds; run this one again for the rest",
            )
    finally:
        if not done:
            _discard(place, groups, run)
    if place.by_rename:
        place.store.make_folder(REPLACED)
        place.store.rename(staged, f"{REPLACED}/{_now():%Y%m%dT%H%M%SZ}-{run}")
    on_step("done")
    return [_row(group, manifest) for group, manifest in written]


def parse_batches(text: str) -> tuple[int, int]:
    """The first and the last batch of ``12-40``, or of ``12`` (one batch with many files); UsageError otherwise."""
    first, dash, last = text.partition("-")
    if first.isdecimal() and (last.isdecimal() if dash else not last):
        found = int(first), int(last or first)
        if found[0] <= found[1]:
            return found
    raise UsageError(f"--batches {text!r}: the first and the last batch are wanted", hint="--batches 12-40")


# --- What is merged ---------------------------------------------------------------------------------------------------


def _groups(
    chain: Sequence[tuple[Manifest, str]], below_bytes: int, batches: tuple[int, int] | None, place: ExportRoot
) -> list[_Group]:
    if batches is not None:
        return _named(chain, batches, place)
    groups: list[_Group] = []
    held: list[Manifest] = []
    digest = ""
    for manifest, after in chain:
        size = _bytes(manifest)
        held_bytes = sum(map(_bytes, held))
        if held and (size >= below_bytes or held_bytes >= below_bytes or not _alike(held[-1], manifest)):
            groups.append(_Group(tuple(held), digest))
            held = []
        if size < below_bytes:
            held.append(manifest)
            digest = after
    groups.append(_Group(tuple(held), digest))
    return [group for group in groups if len(group.parts) > 1]


def _named(chain: Sequence[tuple[Manifest, str]], batches: tuple[int, int], place: ExportRoot) -> list[_Group]:
    first, last = batches
    manifests = [manifest for manifest, _ in chain]
    chosen = [one for one in manifests if one.batch >= first and one.first_batch <= last]
    if not manifests or first > manifests[-1].batch or last > manifests[-1].batch:
        there = f"0 to {manifests[-1].batch}" if manifests else "none yet"
        raise NoSuchThing(f"{place} has no batches {first} to {last}; there are {there}")
    for one in (chosen[0], chosen[-1]):
        if one.first_batch < first or one.batch > last:
            raise UsageError(
                f"--batches {first}-{last} would split the merged batches {one.first_batch} to {one.batch}",
                hint=f"--batches {min(first, chosen[0].first_batch)}-{max(last, chosen[-1].batch)}",
            )
    if not all(_alike(chosen[0], one) for one in chosen):
        raise Refused(f"batches {first} to {last} are of several formats, which cannot be in one folder")
    group = _Group(tuple(chosen), next(digest for manifest, digest in chain if manifest.batch == last))
    return [group] if len(chosen) > 1 or len(group.files) > 1 else []


def _alike(one: Manifest, other: Manifest) -> bool:
    return (one.format, one.partition_by, one.decode) == (other.format, other.partition_by, other.decode)


def _bytes(manifest: Manifest) -> int:
    return sum(file.bytes for file in manifest.files)


# --- Rewriting -------------------------------------------------------------------------------------------------------


def _merge(
    place: ExportRoot,
    group: _Group,
    run: str,
    folder: str,
    on_step: Callable[[str], None],
    count: Count,
) -> Manifest:
    """Write the group's messages into ``folder``, count them, add manifest and history, and sync it all to disk; the
    manifest."""
    store = place.store
    kind = format_named(group.parts[0].format)
    sources: dict[str, list[tuple[str, int]]] = {}
    for part in group.parts:
        for file in sorted(part.files, key=lambda one: one.path):
            below = str(PurePosixPath(file.path).parent)
            sources.setdefault(below, []).append((place.file_path(part, file.path), file.bytes))
    store.make_folder(folder)
    for below, files in sources.items():
        rows = _rows(store, files, count)
        _write_files(store, kind, rows, folder if below == "." else f"{folder}/{below}", run)
    on_step("merged")
    found = collect_statistics(store, folder)
    manifest = _manifest(group, found, run)
    _check(place, manifest, found)
    on_step("counted")
    if place.by_rename:
        texts = [text for part in group.parts for text in texts_of(place, part)]
        place.put_aside(group.last, run, folder, {HISTORY: pack(texts), "_manifest.json": manifest.to_json()})
    store.sync(folder)
    return manifest


def _write_files(store: Store, kind: FileFormat, batches: Iterator[pa.RecordBatch], folder: str, run: str) -> None:
    """Write these rows, in this order, into files of about `FILE_BYTES`."""
    number = 0
    batch = next(batches, None)
    while batch is not None:
        name = f"part-{number:05d}-{run}{kind.SUFFIX}"
        with store.open_output(f"{folder}/{name}") as sink:
            writer = kind.Writer(sink, batch.schema)
            schema = batch.schema
            try:
                while batch is not None and batch.schema.equals(schema):
                    writer.write(batch)
                    batch = next(batches, None)
                    if sink.tell() >= FILE_BYTES:
                        break
            finally:
                writer.close()
        number += 1


def _rows(store: Store, files: Sequence[tuple[str, int]], count: Count) -> Iterator[pa.RecordBatch]:
    """The rows of files, of which each path and size is given; ``count``: the bytes of those that were read."""
    for path, size in files:
        yield from read_stored(store, path, None, thorough=True)
        count.done += size


def _check(place: ExportRoot, manifest: Manifest, found: FileStatistics) -> None:
    """CorruptLog unless the new files hold exactly the committed messages, each once."""
    where = f"batches {manifest.first_batch} to {manifest.batch} of {place}"
    for one in found.partitions.keys() - manifest.partitions.keys():
        raise CorruptLog(f"{where}: messages of {one} were written, which is not exported")
    for one, part in manifest.partitions.items():
        if (problem := difference(part, found.partitions.get(one), summed=False)) is not None:
            raise CorruptLog(f"{where}: {one} {problem[1]}")
    if found.windows != manifest.windows:
        raise CorruptLog(f"{where}: the written messages have other timestamps than the committed ones")


def _manifest(group: _Group, found: FileStatistics, run: str) -> Manifest:
    first = group.parts[0]
    return replace(
        combine(group.parts),
        run=run,
        previous_sha256=first.previous_sha256,
        files=tuple(found.files),
        klog=__version__,
        started_at=first.started_at,
        merged=Merged(first.first_batch, group.last_sha256, f"{_now():%Y-%m-%dT%H:%M:%SZ}"),
    )


# --- The commit -------------------------------------------------------------------------------------------------------


def _commit(
    place: ExportRoot, written: Sequence[tuple[_Group, Manifest]], staged: str, on_step: Callable[[str], None]
) -> bool:
    if isinstance(place.store, LocalStore) and place.by_rename:
        without, expected = [], {}
        for group, _ in written:
            for part in group.parts:
                folder = place.batch_folder(part)
                path = f"{folder}/{MARK}{part.run}"
                data = place.store.read(path)
                if data is None:
                    return False
                without.append(folder.removeprefix("data/"))
                expected[path] = data
        return replace_data(place.store, f"{staged}/data", without, expected, on_step)
    for group, manifest in written:
        if not _record(place, group, manifest):
            return False
    on_step("replaced")
    return True


def _record(place: ExportRoot, group: _Group, manifest: Manifest) -> bool:
    """Create the next file in ``_klog/merges``. If a merge of other batches took the number, try the next.

    False if another compaction has merged one of these batches.
    """
    while True:
        now = ExportRoot(place.store)
        there = {batch for batch in now.batch_numbers() if group.first <= batch <= group.last}
        if there != {part.batch for part in group.parts}:
            return False
        if any(now.manifest(part.batch)[0] != part for part in group.parts):
            return False
        number = len(place.store.names(MERGES))
        if place.store.create(merge_path(number), manifest.to_json()):
            return True


def _discard(place: ExportRoot, groups: Sequence[_Group], run: str) -> None:
    """Remove what was written and not committed.

    The exchange may have happened before the error: then the staging folder holds the old ``data``, which may go too.
    """
    merged = [] if place.by_rename else [(one.batch, one.run) for one in ExportRoot(place.store).merges()]
    for group in groups:
        if place.by_rename:
            place.remove_aside(group.last, run)
        elif (group.last, run) not in merged:
            place.store.remove(place.written_folder(group.last, run))
    place.store.remove(f"_staging/{run}")


def _row(group: _Group, manifest: Manifest | None) -> CompactedBatches:
    return CompactedBatches(
        group.first,
        group.last,
        sum(part.messages for one in group.parts for part in one.partitions.values()),
        len(group.files),
        sum(file.bytes for file in group.files),
        None if manifest is None else len(manifest.files),
        None if manifest is None else _bytes(manifest),
    )


def _now() -> datetime:
    return datetime.now(UTC)
