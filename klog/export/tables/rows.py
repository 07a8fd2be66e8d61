"""The rows of a table as its readers see them now, to be held against the manifests of its batches."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from klog.export.file_statistics import FileStatistics, PartitionStatistics
from klog.export.manifest import Manifest
from klog.export.tables.table import ADDRESS, Table
from klog.names import TopicPartition

_BYTES: Final = ("key", "value")


class TableRows:
    """The offsets of klog's rows, 8 bytes each, and as much for a hash of each message. StorageError where the table
    cannot be read."""

    def __init__(self, table: Table, *, hashed: bool) -> None:
        """``hashed``: the rows have the messages' bytes, to be held against checksums."""
        import numpy as np

        pieces: defaultdict[TopicPartition, list[Any]] = defaultdict(list)
        for batch in table.scan(ADDRESS + (_BYTES if hashed else ())):
            for one, found in _by_partition(batch, hashed=hashed):
                pieces[one].append(found)
        self._rows = {}
        for one, parts in pieces.items():
            offsets, hashes = (np.concatenate(each) for each in zip(*parts, strict=True))
            order = np.argsort(offsets)
            self._rows[one] = offsets[order], hashes[order] if hashed else hashes
        self._claimed: defaultdict[TopicPartition, int] = defaultdict(int)

    def of(self, manifest: Manifest, beside: FileStatistics) -> FileStatistics:
        """What the table and files beside it have of a batch's ranges: counts, first and last offset, checksums. Files
        and times are not looked at. ``beside``: of the messages that could not be decoded."""
        import numpy as np

        found = FileStatistics(beside.partitions, unreadable=beside.unreadable)
        for one, part in manifest.partitions.items():
            if one not in self._rows:
                continue
            offsets, hashes = self._rows[one]
            low, high = np.searchsorted(offsets, (part.from_offset, part.to_offset))
            self._claimed[one] += int(high - low)
            if high == low:
                continue
            rest = found.partitions.setdefault(one, PartitionStatistics())
            rest.messages += int(high - low)
            rest.first_offset = min(rest.first_offset, int(offsets[low]))
            rest.last_offset = max(rest.last_offset, int(offsets[high - 1]))
            rest.checksum = int(np.add.reduce(hashes[low:high]))
            rest.distinct = rest.distinct and bool((np.diff(offsets[low:high]) > 0).all())
        return found

    @property
    def count(self) -> int:
        return sum(len(offsets) for offsets, _ in self._rows.values())

    def unclaimed(self) -> dict[TopicPartition, int]:
        """Rows of no batch that `of` was asked about."""
        rest = {one: len(offsets) - self._claimed[one] for one, (offsets, _) in self._rows.items()}
        return {one: count for one, count in rest.items() if count}


def _by_partition(batch: Any, *, hashed: bool) -> list[tuple[TopicPartition, Any]]:
    """(partition, (offsets, hashes)); without hashes an empty array."""
    import numpy as np
    import pyarrow.compute as pc

    from klog.export.checksum import hashes, runs

    for name in ADDRESS:  # here, since delta-rs tells Arrow wrongly in which files a column has nulls
        batch = batch.filter(pc.is_valid(batch[name]))
    if not batch.num_rows:
        return []
    offsets = np.asarray(batch["offset"])
    found = hashes(batch) if hashed else np.empty(0, np.uint64)
    return [(one, (offsets[at], found[at] if hashed else found)) for one, at in runs(batch).items()]
