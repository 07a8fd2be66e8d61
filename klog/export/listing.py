"""`klog export list`: the batches of an export, as its manifests have them. Blocks; asks no broker, reads no file."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from klog.export.history import originals
from klog.export.manifest import Manifest, moment
from klog.export.root import ExportRoot
from klog.export.rows import ExportedRange
from klog.export.stores.store import Store
from klog.names import TopicPartition


@dataclass(frozen=True)
class ExportedBatch:
    """One folder of committed data: a batch, or those up to ``batch`` that were merged (``batches`` of them).

    ``from_`` and ``to`` have an entry for each partition that moved, ``topic-partition:offset``; ``gaps`` are offsets
    that were left out on purpose, ``topic-partition:from-to``.
    """

    batch: int
    batches: int
    committed_at: datetime
    messages: int
    undecodable: int
    bytes: int
    files: int
    gaps: tuple[str, ...]
    from_: tuple[str, ...] = field(metadata={"wide": True})
    to: tuple[str, ...] = field(metadata={"wide": True})
    run: str = field(metadata={"wide": True})
    engine: str = field(metadata={"wide": True})


def list_batches(root: str | Store, *, parts: bool = False) -> Iterator[ExportedBatch]:
    """The batches in order; ``parts``: merged ones as they were committed.

    NoSuchThing where there is no export, Refused at a manifest that is missing or broken.
    """
    place = ExportRoot(root)
    place.existing_identity()
    for batch in place.batch_numbers():
        manifest, _ = place.manifest(batch)
        yield from map(row_of, originals(place, manifest) if parts else [manifest])


def batch_with(root: str | Store, one: TopicPartition, offset: int) -> ExportedBatch | None:
    """The batch whose range has this offset; None where none has it. Errors of `list_batches`."""
    place = ExportRoot(root)
    place.existing_identity()
    numbers = place.batch_numbers()

    def end(batch: int) -> int:
        part = place.manifest(batch)[0].partitions.get(one)
        return -1 if part is None else part.to_offset  # a partition that was added later

    at = bisect.bisect_right(numbers, offset, key=end)
    if at == len(numbers):
        return None
    manifest, _ = place.manifest(numbers[at])
    for found in originals(place, manifest):
        part = found.partitions.get(one)
        if part is not None and part.from_offset <= offset < part.to_offset:
            return row_of(found)
    return None


def commit_of(root: str | Store, batch: int) -> str | None:
    """The name of a batch's commit in its table; None where the export is none, or keeps no such commit any more."""
    place = ExportRoot(root)
    place.existing_identity()
    return None if place.table is None else place.table.shown.commit_of(batch)


def batch_of(root: str | Store, ranges: Sequence[ExportedRange]) -> ExportedBatch | None:
    """The batch that took these ranges, as it was committed: the last, unless others have committed or merged since."""
    place = ExportRoot(root)
    place.existing_identity()
    taken = ranges[0]
    name = TopicPartition(taken.topic, taken.partition)

    def find() -> ExportedBatch | None:
        for batch in reversed(place.batch_numbers()):
            for manifest in reversed(originals(place, place.manifest(batch)[0])):
                part = manifest.partitions.get(name)
                if part and (part.from_offset, part.to_offset) == (taken.from_, taken.to):
                    return row_of(manifest)
        return None

    return place.settled(find)


def row_of(manifest: Manifest) -> ExportedBatch:
    moved = [(one, part) for one, part in sorted(manifest.partitions.items()) if part.to_offset > part.from_offset]
    return ExportedBatch(
        manifest.batch,
        manifest.batch - manifest.first_batch + 1,
        moment(manifest.committed_at),
        sum(one.messages for one in (manifest.partitions.values() or manifest.files)),
        sum(one.undecodable for one in manifest.partitions.values()),
        sum(file.bytes for file in manifest.files),
        len(manifest.files),
        tuple(f"{gap.topic}-{gap.partition}:{gap.from_offset}-{gap.to_offset}" for gap in manifest.gaps),
        tuple(f"{one}:{part.from_offset}" for one, part in moved),
        tuple(f"{one}:{part.to_offset}" for one, part in moved),
        manifest.run,
        manifest.engine,
    )
