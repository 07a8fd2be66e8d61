"""What really lies in a folder of exported files: counted from the files themselves, not from what a writer says.

Only four columns are read unless more is asked for, a row group at a time, so a survey costs little beside the writing
and little memory.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from klog.errors import CorruptLog
from klog.names import TopicPartition
from klog.ops.export.manifest import WINDOW_MS, ExportedFile
from klog.ops.export.store import Store

_COUNTED = ["topic", "partition", "offset", "timestamp"]


@dataclass
class SurveyedPartition:
    """Of one partition: offsets inclusive, times in ms; ``files`` that hold any of its messages."""

    messages: int = 0
    first_offset: int = 2**63 - 1
    last_offset: int = -1
    timestamp_ms_min: int = 2**63 - 1
    timestamp_ms_max: int = -(2**63)
    files: int = 0
    distinct: bool = True
    """No offset is there twice."""


@dataclass
class Survey:
    """Of one folder."""

    partitions: dict[TopicPartition, SurveyedPartition] = field(default_factory=dict)
    windows: dict[tuple[str, int], int] = field(default_factory=dict)
    files: list[ExportedFile] = field(default_factory=list)
    unreadable: bool = False
    """A file could not be read, so nothing here can be relied on."""


def survey(store: Store, folder: str, *, thorough: bool = False) -> Survey:
    """Count what the Parquet files of a folder hold; CorruptLog, naming the file, where one cannot be read.

    ``thorough``: every column is read, against the checksums of its pages.
    """
    import pyarrow as pa  # here: 0.2 s that a run with nothing to export need not spend
    import pyarrow.parquet as pq

    found = Survey()
    runs: dict[TopicPartition, list[tuple[int, int]]] = {}
    for stored in store.walk(folder):
        if not stored.path.endswith(".parquet"):
            continue
        messages = 0
        in_file: set[TopicPartition] = set()
        try:
            with (
                store.open_input(stored.path) as opened,
                pq.ParquetFile(opened, read_dictionary=["topic"], page_checksum_verification=True) as file,
            ):
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group, columns=None if thorough else _COUNTED)
                    messages += table.num_rows
                    in_file |= _count(table, found, runs)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise CorruptLog(f"{store.location(stored.path)} cannot be read: {error}") from None
        for one in in_file:
            found.partitions[one].files += 1
        found.files.append(ExportedFile(stored.path.removeprefix(f"{folder}/"), stored.bytes, messages))
    for one, pieces in runs.items():
        pieces.sort()
        overlap = any(after[0] <= before[1] for before, after in itertools.pairwise(pieces))
        found.partitions[one].distinct &= not overlap
    return found


def _count(table: Any, found: Survey, runs: dict[TopicPartition, list[tuple[int, int]]]) -> set[TopicPartition]:
    """Add a row group to the survey; the partitions that are in it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets = table["offset"].combine_chunks()
    times_ms = pc.cast(pc.floor(pc.divide(pc.cast(table["timestamp"], pa.int64()), 1000)), pa.int64())
    windows = pc.multiply(
        pc.cast(pc.floor(pc.divide(pc.cast(times_ms, pa.float64()), WINDOW_MS)), pa.int64()), WINDOW_MS
    )
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
        part = found.partitions.setdefault(one, SurveyedPartition())
        part.messages += row["offset_count"]
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
        runs.setdefault(one, []).append(span)
        mine = rows
        if len(spans) > 1:
            mine = rows.filter(pc.and_(pc.equal(rows["topic"], one.topic), pc.equal(rows["partition"], one.partition)))
        inside = mine["offset"].combine_chunks()
        if len(inside) > 1 and not pc.all(pc.greater(inside[1:], inside[:-1])).as_py():
            found.partitions[one].distinct = False
    return there
