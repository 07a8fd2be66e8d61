"""``ROOT/data`` as readers take it that know nothing of klog: the plain folder, and no pattern of file names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from klog.coordination.schemas import SchemaRegistry
from klog.export.compact import compact
from klog.record.avro_framing import frame
from klog.spark.decoding import Decode
from tests.schemas.avro_reference import number
from tests.spark import exporting
from tests.spark.conftest import NOW_MS, Message, NewTopic
from tests.spark.exporting import states
from tests.spark.test_decoded_export import record, register

HOUR_MS = 3_600_000


def by_pandas(data: Path) -> list[int]:
    import pandas as pd  # a second's import, which other workers need not

    offsets: list[int] = pd.read_parquet(data)["offset"].tolist()
    return offsets


READERS: dict[str, Callable[[Path], list[int]]] = {
    "polars": lambda data: pl.scan_parquet(data).collect()["offset"].to_list(),
    "duckdb": lambda data: [row[0] for row in duckdb.sql(f"SELECT \"offset\" FROM '{data}/**/*.parquet'").fetchall()],
    "pandas": by_pandas,
    "pyarrow table": lambda data: pq.read_table(data)["offset"].to_pylist(),
    "pyarrow dataset": lambda data: ds.dataset(data, partitioning="hive").to_table()["offset"].to_pylist(),
}


@pytest.fixture
def data(registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path) -> tuple[Path, list[int]]:
    """An export with all that may lie beside data: hours, messages that cannot be decoded, batches, a merged one,
    one without a typed row; and the offsets of the typed rows."""
    topic = new_topic()
    schema_id = register(registry, topic.name, record("R", {"name": "n", "type": "int"}))

    def export() -> None:
        plan = Decode("avro").plan
        exporting.export(topic, tmp_path, decode=plan, partition_by="hour")

    def typed(count: int) -> list[Message]:
        return [Message(None, frame(schema_id, number(n)), (), NOW_MS - n * HOUR_MS) for n in range(count)]

    offsets: list[int] = []
    for _ in range(3):
        offsets += topic.produce(typed(4))
        topic.produce([Message(None, b"no frame")])
        export()
    compact(str(tmp_path), batches=(0, 1))
    topic.produce([Message(None, b"nothing but this")])
    export()
    assert set(states(tmp_path, topic)) == {"ok"}
    return tmp_path / "data", offsets


def test_they_read_the_plain_folder(data: tuple[Path, list[int]]) -> None:
    folder, offsets = data
    assert {name: sorted(read(folder)) for name, read in READERS.items()} == dict.fromkeys(READERS, offsets)
    assert {"batch", "dt", "hour", "record"} <= set(pl.scan_parquet(folder).collect_schema().names())
    assert {path.name.partition("-")[0] for path in folder.rglob("*") if path.is_file()} == {"part", "_klog"}
    undecodable = duckdb.sql(f"SELECT count(*) FROM '{folder.parent}/batches/*/_undecodable/**/*.parquet'").fetchall()
    assert undecodable == [(2 + 2 + 1 + 1,)]  # those of the merged batches are there twice, until gc
