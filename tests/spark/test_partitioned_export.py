"""Exports and tables whose files are divided by a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from klog.coordination.schemas import SchemaRegistry
from klog.errors import Refused, UsageError
from klog.export.compact import compact
from klog.export.partitioning import TEXT_MAX, Partitioning, folder_text
from klog.export.run import TableChoice
from klog.spark.decoding import Decode
from klog.spark.export import run_export
from tests.spark import exporting
from tests.spark.conftest import Message, NewTopic
from tests.spark.exporting import states
from tests.spark.refusals import not_refused
from tests.spark.test_decoded_export import send
from tests.spark.test_decoded_tables import FIRST, export, first
from tests.spark.test_tables import ONE, iceberg, rows

pytestmark = pytest.mark.xdist_group("tables")  # whose libraries take seconds to load

SCHEMA = pa.schema(
    [("page", pa.string()), ("user", pa.int64()), ("size", pa.float64()), ("record", pa.struct([("x", pa.int32())]))]
)


def test_what_can_be_asked_for() -> None:
    expected = {
        "day": Partitioning("day", "timestamp"),
        "page": Partitioning("identity", "page"),
        "identity(day)": Partitioning("identity", "day"),
        "bucket( 16, user )": Partitioning("bucket", "user", 16),
        "truncate(4,page)": Partitioning("truncate", "page", 4),
    }
    assert {text: Partitioning.parse(text) for text in expected} == expected
    assert {text: Partitioning.parse(str(one)) for text, one in expected.items()} == expected


def test_what_cannot() -> None:
    texts = ("", "a b", "bucket(user)", "bucket(0,user)", "identity(3,user)", "month(at)", "day(at)")
    assert not_refused(((text, "partitioning") for text in texts), Partitioning.parse, UsageError) == []


def test_columns_that_do_not_go_with_it() -> None:
    cases = ((text, "") for text in ("nope", "size", "record", "bucket(4,size)", "truncate(4,size)"))
    assert not_refused(cases, lambda text: Partitioning.parse(text).check(SCHEMA), UsageError) == []
    Partitioning.parse("x").check(SCHEMA)  # a field of the record


@given(st.lists(st.text(), unique=True))
def test_names_of_folders_differ_as_values_do(values: list[str]) -> None:
    values += ["é" * TEXT_MAX, "é" * TEXT_MAX + "x", "a/b", "..", "="]
    texts = [folder_text(value) for value in values]
    assert len(set(texts)) == len(set(values))
    assert all("/" not in text and len(text) < 200 for text in texts)


@pytest.mark.parametrize("table", ONE)
def test_a_table_by_a_field(registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path, table: str) -> None:
    topic, root = new_topic(), tmp_path / "t"
    pages = ["/", "/", "a" * 300, "a b", "/"]
    send(registry, topic, FIRST, *({**first(number), "page": page} for number, page in enumerate(pages)))
    topic.produce([Message(b"k", None)])
    export(topic, root, table, partition_by="page")
    topic.produce([Message(b"k", None)])  # a batch of nothing but nulls
    export(topic, root)
    found = rows(root, table)
    assert [row["page"] for row in found] == [*pages, None, None]
    assert states(root, topic) == ["ok"]
    if table == "delta":
        assert DeltaTable(root).metadata().partition_columns == ["page"]
        assert DeltaTable(root).to_pyarrow_table(filters=[("page", "=", "a b")]).num_rows == 1
        lazy, arrow = pl.scan_delta(str(root)), DeltaTable(root).to_pyarrow_dataset()
    else:
        assert len(list(iceberg(root).scan("page = '/'").plan_files())) == 1
        lazy, arrow = pl.scan_iceberg(iceberg(root), reader_override="pyiceberg"), iceberg(root).scan().to_arrow()
    assert lazy.filter(pl.col("page") == "/").collect().height == 3
    counted = duckdb.from_arrow(arrow).query("t", "select count(*) from t where page = '/'")
    assert counted is not None and counted.fetchall() == [(3,)]
    with pytest.raises(Refused, match="partitioning"):
        export(topic, root, partition_by="day")


@pytest.mark.parametrize("how", ["bucket(4,key)", "truncate(2,key)"])
def test_a_table_by_icebergs_transforms(new_topic: NewTopic, tmp_path: Path, how: str) -> None:
    from pyiceberg.expressions import EqualTo  # a second's import, which other workers need not

    topic, root = new_topic(), tmp_path / "t"
    keys = [b"%03d" % number for number in range(40)] + [None]
    topic.produce([Message(key, b"v") for key in keys])
    exporting.export(topic, root, table=TableChoice("iceberg"), partition_by=how)
    assert [row["key"] for row in rows(root, "iceberg")] == keys
    assert states(root, topic) == ["ok"]
    parts = iceberg(root).inspect.partitions()
    assert 5 >= len(parts) > 3
    for key in (b"007", b"039"):
        hit = iceberg(root).scan(EqualTo("key", key))
        assert len(list(hit.plan_files())) == 1 and hit.to_arrow().num_rows == 1


def test_plain_files_by_a_column(registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root = new_topic(), tmp_path / "t"
    send(registry, topic, FIRST, *(first(number % 3) for number in range(9)))
    options: dict[str, Any] = {"decode": Decode("avro").plan, "partition_by": "page"}
    for _ in range(2):
        exporting.export(topic, root, **options)
        send(registry, topic, FIRST, *(first(number % 3) for number in range(3)))
    assert sorted(path.name for path in (root / "data/batch=0000000000").iterdir() if path.is_dir()) == [
        "page=%2F0", "page=%2F1", "page=%2F2"
    ]  # fmt: skip
    assert states(root, topic) == ["ok"]
    compact(str(root))
    assert states(root, topic) == ["ok"]
    count = duckdb.sql(
        f"select count(*) from read_parquet('{root}/data/**/*.parquet', hive_partitioning=1) where page = '/1'"
    )
    assert count.fetchall() == [(4,)]


def test_what_is_refused(registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root = new_topic(), tmp_path / "t"
    topic.produce([Message(b"k", b"v")])
    for table, how in ((None, "nope"), (None, "bucket(4,key)"), ("delta", "truncate(2,key)"), ("delta", "key")):
        choice = None if table is None else TableChoice(table)
        with pytest.raises(UsageError):
            exporting.export(topic, root, table=choice, partition_by=how)
    with pytest.raises(UsageError, match="time"):
        run_export(topic.bootstrap, [topic.name], str(root), writer="spark", partition_by="key")
    assert not root.exists()
