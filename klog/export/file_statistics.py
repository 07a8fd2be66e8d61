"""Statistics of exported files, counted from the files themselves, not taken from their writer.

By default only four columns are read, some megabytes at a time, so counting needs little time and memory. If files of a
partition cover overlapping offsets (partitioned by time, or undecodable messages apart), its offsets are read a second
time and compared with each other, which needs eight bytes of memory for each message.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from klog.errors import CorruptLog
from klog.export.batch_writer import checksum_text, is_undecodable
from klog.export.files import format_of, read_stored
from klog.export.manifest import WINDOW_MS, ExportedFile, ExportedPartition
from klog.export.stores.store import Store
from klog.names import TopicPartition

COUNTED = ("messages", "first_offset", "last_offset", "timestamp_ms_min", "timestamp_ms_max", "undecodable")
"""What `PartitionStatistics` and `ExportedPartition` both have."""
_READ = ("topic", "partition", "offset", "timestamp")
_SUMMED = ("key", "value")


@dataclass
class PartitionStatistics:
    """Statistics of one partition. Offsets are inclusive, timestamps in ms. A file that several partitions share counts
    in ``files`` of the first of them only."""

    messages: int = 0
    first_offset: int = 2**63 - 1
    last_offset: int = -1
    timestamp_ms_min: int = 2**63 - 1
    timestamp_ms_max: int = -(2**63)
    files: int = 0
    distinct: bool = True
    """Each offset occurs once."""
    undecodable: int = 0
    """Messages that could not be decoded."""
    checksum: int = 0
    """Of keys and values; 0 unless requested."""


@dataclass
class FileStatistics:
    """Statistics of one folder, or of several together."""

    partitions: dict[TopicPartition, PartitionStatistics] = field(default_factory=dict)
    windows: dict[tuple[str, int], int] = field(default_factory=dict)
    files: list[ExportedFile] = field(default_factory=list)
    unreadable: bool = False
    """A file could not be read, so these statistics are incomplete."""


@dataclass
class _Pieces:
    """The offsets of one partition, in the order of reading."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    ascending: bool = True
    paths: list[str] = field(default_factory=list)

    @property
    def are_apart(self) -> bool:
        self.spans.sort()
        return self.ascending and all(before[1] < after[0] for before, after in itertools.pairwise(self.spans))


def difference(part: ExportedPartition, found: PartitionStatistics | None, *, summed: bool) -> tuple[str, str] | None:
    """How the files of a batch differ from what its manifest has of a partition: the state that `klog export verify`
    shows, and the words. ``summed``: checksums are compared."""
    messages = found.messages if found else 0
    if messages != part.messages:
        return "wrong-count", f"holds {messages} messages; {part.messages} were exported"
    if found is None:
        return None
    if (found.first_offset, found.last_offset) != (part.first_offset, part.last_offset):
        held = f"{found.first_offset} to {found.last_offset}"
        return "wrong-count", f"holds offsets {held}; {part.first_offset} to {part.last_offset} were exported"
    if not found.distinct:
        return "overlap", "holds an offset twice"
    if found.undecodable != part.undecodable:
        held = f"{found.undecodable} messages that could not be decoded"
        return "wrong-count", f"holds {held}; {part.undecodable} were"
    if summed and part.checksum not in (None, checksum_text(found.checksum)):
        held = f"messages whose checksum is {checksum_text(found.checksum)}"
        return "wrong-checksum", f"holds {held}; those of the log had {part.checksum}"
    return None


def collect_statistics(
    store: Store, *folders: str, thorough: bool = False, checksum: bool = False, undecodable_only: bool = False
) -> FileStatistics:
    """Count the messages in the files of ``folders``. Raises CorruptLog with the path of a file that cannot be read.

    ``thorough`` reads every byte and checks the format's own checksums. ``checksum`` also reads keys and values, and
    adds up their checksums. ``undecodable_only``: of the messages that could not be decoded.
    """
    found = FileStatistics()
    pieces: dict[TopicPartition, _Pieces] = {}
    for folder, stored in [(one, stored) for one in folders for stored in store.walk(one)]:
        path = stored.path.removeprefix(f"{folder}/")
        if format_of(stored.path) is None or (undecodable_only and not is_undecodable(path)):
            continue
        messages = 0
        in_file: set[TopicPartition] = set()
        for batch in _read(store, stored.path, _READ + (_SUMMED if checksum else ()), thorough):
            messages += batch.num_rows
            in_file |= _count(batch, found, pieces, is_undecodable(path))
            if checksum:
                _sum_up(batch, found)
        if in_file:
            found.partitions[min(in_file)].files += 1
        for one in in_file:
            pieces[one].paths.append(stored.path)
        found.files.append(ExportedFile(path, stored.bytes, messages))
    for one, about in pieces.items():
        found.partitions[one].distinct = about.are_apart or _all_differ(store, one, about)
    return found


def count_files(store: Store, folder: str, *, thorough: bool = False) -> list[ExportedFile]:
    """The files below a folder with their rows, by path; columns may be any. ``thorough`` and errors as above."""
    return [
        ExportedFile(
            stored.path.removeprefix(f"{folder}/"),
            stored.bytes,
            sum(rows.num_rows for rows in read_stored(store, stored.path, (), thorough=thorough)),
        )
        for stored in store.walk(folder)
        if format_of(stored.path) is not None
    ]


def _read(store: Store, path: str, columns: tuple[str, ...], thorough: bool) -> Iterator[Any]:
    for batch in read_stored(store, path, columns, thorough=thorough):
        missing = [name for name in columns if name not in batch.schema.names]
        if batch.num_rows and missing:
            raise CorruptLog(f"{store.location(path)} has no column {', '.join(missing)}")
        if batch.num_rows:
            yield batch


def _all_differ(store: Store, one: TopicPartition, about: _Pieces) -> bool:
    """Whether each offset of the partition occurs once in its files."""
    import numpy as np

    offsets = [
        np.asarray(batch.filter(_rows_of(batch, one)).column("offset"))
        for path in about.paths
        for batch in _read(store, path, _READ[:3], False)
    ]
    there = np.sort(np.concatenate(offsets))
    return bool((np.diff(there) > 0).all())


def _rows_of(batch: Any, one: TopicPartition) -> Any:
    import pyarrow.compute as pc

    return pc.and_(pc.equal(batch["topic"], one.topic), pc.equal(batch["partition"], one.partition))


def _sum_up(batch: Any, found: FileStatistics) -> None:
    from klog.export.checksum import MODULUS, checksums

    for one, value in checksums(batch).items():
        part = found.partitions[one]
        part.checksum = (part.checksum + value) % MODULUS


def _count(
    table: Any, found: FileStatistics, pieces: dict[TopicPartition, _Pieces], undecodable: bool
) -> set[TopicPartition]:
    """Add rows to the statistics; return the partitions in them."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets = table["offset"]
    micros = pc.cast(table["timestamp"], pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    times_ms = np.asarray(micros) // 1000
    windows = times_ms // WINDOW_MS * WINDOW_MS
    rows = pa.table(
        {
            "topic": table["topic"],
            "partition": table["partition"],
            "offset": offsets,
            "ms": times_ms,
            "window": windows,
        }
    )
    there = set()
    grouped = rows.group_by(["topic", "partition", "window"]).aggregate(
        [("offset", "count"), ("offset", "min"), ("offset", "max"), ("ms", "min"), ("ms", "max")]
    )
    spans: dict[TopicPartition, tuple[int, int]] = {}
    for row in grouped.to_pylist():
        one = TopicPartition(row["topic"], row["partition"])
        part = found.partitions.setdefault(one, PartitionStatistics())
        part.messages += row["offset_count"]
        part.undecodable += row["offset_count"] if undecodable else 0
        part.first_offset = min(part.first_offset, row["offset_min"])
        part.last_offset = max(part.last_offset, row["offset_max"])
        part.timestamp_ms_min = min(part.timestamp_ms_min, row["ms_min"])
        part.timestamp_ms_max = max(part.timestamp_ms_max, row["ms_max"])
        window = (row["topic"], row["window"])
        found.windows[window] = found.windows.get(window, 0) + row["offset_count"]
        low, high = spans.get(one, (row["offset_min"], row["offset_max"]))
        spans[one] = (min(low, row["offset_min"]), max(high, row["offset_max"]))
        there.add(one)
    for one, span in spans.items():
        about = pieces.setdefault(one, _Pieces())
        about.spans.append(span)
        inside = offsets if len(spans) == 1 else offsets.filter(_rows_of(table, one))
        if len(inside) > 1 and not pc.all(pc.greater(inside[1:], inside[:-1])).as_py():
            about.ascending = False
    return there
