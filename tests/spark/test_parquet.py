"""A task's Parquet file: read back as written by any reader, in row groups that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from klog.errors import CorruptLog
from klog.spark import parquet
from klog.spark.columns import SCHEMA


def batches(count: int, rows: int = 10, value_bytes: int = 100) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        offsets = range(number * rows, (number + 1) * rows)
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "key": None if offset % 3 else b"k",
                    "value": b"%d" % offset * value_bytes,
                    "topic": "t",
                    "partition": 1,
                    "offset": offset,
                    "timestamp": offset * 1000,
                    "timestampType": 0,
                    "headers": [{"key": "h", "value": None}] if offset % 2 else [],
                }
                for offset in offsets
            ],
            schema=SCHEMA,
        )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    assert parquet.write(path, batches(7)) == 70
    assert pq.read_table(path).equals(pa.Table.from_batches(batches(7)))


def test_row_groups_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 20_000)
    path = tmp_path / "one.parquet"
    parquet.write(path, batches(50))
    found = pq.ParquetFile(path).metadata
    assert found.num_row_groups > 3
    assert found.num_rows == 500


def test_nothing_is_no_file(tmp_path: Path) -> None:
    assert parquet.write(tmp_path / "one.parquet", iter([])) == 0
    assert list(tmp_path.iterdir()) == []


def test_an_error_on_the_way_is_passed_on(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(1)
        raise CorruptLog("short")

    with pytest.raises(CorruptLog):
        parquet.write(tmp_path / "one.parquet", broken())
