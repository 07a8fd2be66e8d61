"""The rows of a table as its readers see them now, to be held against the manifests of its batches."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from klog.export.file_statistics import FileStatistics, PartitionStatistics
from klog.export.manifest import Manifest
from klog.export.tables.commits import TableCommits
from klog.names import TopicPartition

_COLUMNS: Final = ("topic", "partition", "offset")


class TableRows:
    """The offsets of all rows, 8 bytes each. StorageError where the table cannot be read."""

    def __init__(self, table: TableCommits) -> None:
        import numpy as np

        pieces: defaultdict[TopicPartition, list[Any]] = defaultdict(list)
        for batch in table.scan(_COLUMNS):
            for one, offsets in _by_partition(batch):
                pieces[one].append(offsets)
        self._offsets = {one: np.sort(np.concatenate(parts)) for one, parts in pieces.items()}
        self._claimed: defaultdict[TopicPartition, int] = defaultdict(int)

    def of(self, manifest: Manifest, beside: FileStatistics) -> FileStatistics:
        """What the table and files beside it have of a batch's ranges: counts, first and last offset. Files and times
        are not looked at. ``beside``: of the messages that could not be decoded."""
        import numpy as np

        found = FileStatistics(beside.partitions, unreadable=beside.unreadable)
        for one, part in manifest.partitions.items():
            offsets = self._offsets.get(one)
            if offsets is None:
                continue
            low, high = np.searchsorted(offsets, (part.from_offset, part.to_offset))
            self._claimed[one] += int(high - low)
            if high == low:
                continue
            rest = found.partitions.setdefault(one, PartitionStatistics())
            rest.messages += int(high - low)
            rest.first_offset = min(rest.first_offset, int(offsets[low]))
            rest.last_offset = max(rest.last_offset, int(offsets[high - 1]))
            rest.distinct = rest.distinct and bool((np.diff(offsets[low:high]) > 0).all())
        return found

    def unclaimed(self) -> dict[TopicPartition, int]:
        """Rows of no batch that `of` was asked about."""
        rest = {one: len(offsets) - self._claimed[one] for one, offsets in self._offsets.items()}
        return {one: count for one, count in rest.items() if count}


def _by_partition(batch: Any) -> list[tuple[TopicPartition, Any]]:
    import numpy as np
    import pyarrow as pa

    rows = pa.table({name: batch[name] for name in _COLUMNS}).group_by(["topic", "partition"])
    return [
        (TopicPartition(row["topic"], row["partition"]), np.asarray(row["offset_list"]))
        for row in rows.aggregate([("offset", "list")]).to_pylist()
    ]
