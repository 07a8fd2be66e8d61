"""Decoded messages in tables: the schema's fields are columns, later schemas add some, and kills change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from klog.coordination.schemas import SchemaRegistry
from klog.export.listing import list_batches
from klog.export.root import ExportRoot
from klog.export.rows import ExportedRange
from klog.export.run import TableChoice
from klog.spark.decoding import Decode
from tests.spark import exporting
from tests.spark.conftest import Message, NewTopic, TopicOnBroker
from tests.spark.exporting import killed_at, states, when
from tests.spark.test_decoded_export import record, register, send
from tests.spark.test_tables import FORMATS, ONE, iceberg, rows

pytestmark = pytest.mark.xdist_group("tables")  # whose libraries take seconds to load


FIRST = record(
    "Visit",
    {"name": "page", "type": "string"},
    {"name": "timestamp", "type": "int"},
    {"name": "who", "type": record("Person", {"name": "name", "type": "string"})},
)
SECOND = record(
    "Visit",
    {"name": "page", "type": "string"},
    {"name": "who", "type": record("Person", {"name": "name", "type": "string"}, {"name": "age", "type": "int"})},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    {"name": "at", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
)
WIDER = record("Visit", {"name": "page", "type": "string"}, {"name": "timestamp", "type": "long"})
OTHER = record("Visit", {"name": "page", "type": "int"})


def export(topic: TopicOnBroker, root: Path, table: str | None = None, **options: Any) -> list[ExportedRange]:
    if table is not None:
        options = {"decode": Decode("avro").plan, "table": TableChoice(table), **options}
    return exporting.export(topic, root, **options)


def first(number: int) -> dict[str, Any]:
    return {"page": f"/{number}", "timestamp": number, "who": {"name": "a"}}


def second(number: int) -> dict[str, Any]:
    return {"page": f"/{number}", "who": {"name": "b", "age": number}, "tags": ["x"], "at": number}


@pytest.mark.parametrize("table", ONE)
def test_fields_are_columns_and_later_schemas_add_some(
    registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path, table: str
) -> None:
    topic, root = new_topic(), tmp_path / "visits"
    sent = send(registry, topic, FIRST, first(0), first(1))
    sent += topic.produce([Message(b"k", b"plain"), Message(b"k", None)])
    notes: list[str] = []
    assert [row.messages for row in export(topic, root, table, on_note=notes.append)] == [4]
    assert f"{root}/data/*/_undecodable " in notes[0] and list(root.glob("data/*/_undecodable/*"))
    found = rows(root, table)
    assert [row["offset"] for row in found] == [sent[0], sent[1], sent[3]]
    assert "value" not in found[0] and found[0]["value_timestamp"] == 0
    assert (found[1]["page"], found[1]["who"], found[2]["page"]) == ("/1", {"name": "a"}, None)
    send(registry, topic, FIRST, first(2))
    send(registry, topic, SECOND, second(3))
    assert [row.messages for row in export(topic, root)] == [2]
    old, new = rows(root, table)[-2:]
    assert (old["value_timestamp"], old["who"], old["at"]) == (2, {"name": "a", "age": None}, None)
    assert (new["value_timestamp"], new["who"], new["tags"]) == (None, {"name": "b", "age": 3}, ["x"])
    assert states(root, topic) == ["ok"]
    assert [one.messages for one in list_batches(str(root))] == [4, 2]
    (part,) = ExportRoot(str(root)).manifest(0)[0].partitions.values()
    assert part.undecodable == 1
    send(registry, topic, FIRST, first(4))
    assert [row.messages for row in export(topic, root)] == [1]

    if table == "delta":
        lazy, arrow = pl.scan_delta(str(root)), DeltaTable(root).to_pyarrow_dataset()
    else:
        lazy, arrow = pl.scan_iceberg(iceberg(root), reader_override="pyiceberg"), iceberg(root).scan().to_arrow()
    assert lazy.collect()["page"].null_count() == 1
    counted = duckdb.from_arrow(arrow).query("t", "select who.age, count(page) from t group by all order by all")
    assert counted is not None and counted.fetchall() == [(3, 1), (None, 4)]


@pytest.mark.parametrize("table", FORMATS)
def test_a_first_batch_without_a_row_is_the_tables_too(
    registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path, table: str
) -> None:
    """A run with more messages in its first batch must not commit it behind one whose only message is undecodable."""
    topic, root = new_topic(), tmp_path / "t"
    register(registry, topic.name, FIRST)
    topic.produce([Message(b"k", b"plain")])
    sent = send(registry, topic, FIRST, first(1))
    inner: list[ExportedRange] = []
    before = when("flushed", lambda: inner.extend(export(topic, root, max_messages=1)))
    assert [row.messages for row in export(topic, root, table, on_step=before)] == [1]
    assert [row.messages for row in inner] == [1]
    assert [row["offset"] for row in rows(root, table)] == sent
    assert states(root, topic) == ["ok"]


def test_types_become_wider_in_iceberg_alone(registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    send(registry, topic, FIRST, first(1))
    for table in FORMATS:
        export(topic, tmp_path / table, table)
    send(registry, topic, WIDER, {"page": "/2", "timestamp": 2**40})
    export(topic, tmp_path / "iceberg")
    assert [row["value_timestamp"] for row in rows(tmp_path / "iceberg", "iceberg")] == [1, 2**40]
    assert iceberg(tmp_path / "iceberg").scan("value_timestamp > 1").to_arrow().num_rows == 1
    assert [row.undecodable for row in export(topic, tmp_path / "delta")] == [1]
    assert [row["value_timestamp"] for row in rows(tmp_path / "delta", "delta")] == [1]
    assert states(tmp_path / "delta", topic) == states(tmp_path / "iceberg", topic) == ["ok"]


@pytest.mark.parametrize("table", ONE)
def test_a_schema_that_no_column_can_follow_stops_nothing(
    registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path, table: str
) -> None:
    topic, root = new_topic(), tmp_path / "t"
    send(registry, topic, FIRST, first(1))
    export(topic, root, table)
    send(registry, topic, OTHER, {"page": 7})
    send(registry, topic, FIRST, first(2))
    notes: list[str] = []
    assert [(row.messages, row.undecodable) for row in export(topic, root, on_note=notes.append)] == [(2, 1)]
    assert "page" in notes[0] and "int" in notes[0] and "string" in notes[0]
    assert [row["page"] for row in rows(root, table)] == ["/1", "/2"]
    assert states(root, topic) == ["ok"]


def test_killed_between_the_columns_and_the_rows(registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path) -> None:
    """Delta's new columns are a commit of their own. Another run comes between, too."""
    topic, root = new_topic(), tmp_path / "t"
    sent = send(registry, topic, FIRST, first(1))
    export(topic, root, "delta")
    sent += send(registry, topic, SECOND, second(2))
    with killed_at(DeltaTable, "create_write_transaction"):
        export(topic, root)
    assert "tags" in rows(root, "delta")[0]
    inner: list[ExportedRange] = []
    assert export(topic, root, on_step=when("flushed", lambda: inner.extend(export(topic, root)))) == []
    assert [one.messages for one in inner] == [1]
    assert [row["offset"] for row in rows(root, "delta")] == sent
    assert states(root, topic) == ["ok"]


def test_lost_and_changed_undecodable_messages_are_found(
    registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, root = new_topic(), tmp_path / "t"
    register(registry, topic.name, FIRST)
    topic.produce([Message(b"k", b"plain")])
    export(topic, root, "delta")  # no message decodes: no table yet
    topic.produce([Message(b"k", b"plain")])
    export(topic, root)
    send(registry, topic, FIRST, first(1))
    export(topic, root)
    assert len(rows(root, "delta")) == 1
    assert states(root, topic) == ["ok"]
    DeltaTable(root).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert states(root, topic) == ["ok"]
    next(root.glob("data/0000000001-*/_undecodable/*")).unlink()
    assert states(root, topic) == ["wrong-count", "missing-file"]
