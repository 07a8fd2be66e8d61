"""Exports into tables of Iceberg and Delta Lake that others made: their rows and files stay, and klog's are counted."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from klog.errors import Refused, UsageError
from klog.export.compact import compact
from klog.export.gc import find_garbage
from klog.export.rows import ExportedRange
from klog.export.run import TableChoice
from klog.export.verify import verify
from klog.spark.decoding import Decode
from tests.spark import exporting
from tests.spark.conftest import Message, NewTopic, TopicOnBroker, make_messages

pytestmark = pytest.mark.xdist_group("tables")  # whose libraries take seconds to load


@functools.cache
def theirs() -> pa.Table:
    """Made by the test: pyarrow then imports pandas, which other workers need not."""
    return pa.table({"page": ["a", "b"], "key": [b"x", None]})


class OthersTable:
    """A table with rows of others; an Iceberg one in a catalogue that pyiceberg's settings name."""

    def __init__(self, format: str, folder: Path) -> None:
        self.format = format
        self.root = folder / "web" / "visits"
        self._catalog = f"sqlite:///{folder}/catalog.db", f"file://{folder}"

    def settings(self) -> dict[str, str]:
        return {"type": "sql", "uri": self._catalog[0], "warehouse": self._catalog[1]}

    def create(self, rows: pa.Table, by: str | None = None) -> None:
        if self.format == "delta":
            self.root.mkdir(parents=True)
            write_deltalake(self.root, rows, partition_by=by)
            return
        catalog = load_catalog("prod", **self.settings())
        catalog.create_namespace("web")
        made = catalog.create_table("web.visits", rows.schema)
        if by is not None:
            made.update_spec().add_identity(by).commit()
        made.append(rows)

    @property
    def choice(self) -> TableChoice:
        return TableChoice(self.format, *(() if self.format == "delta" else ("web.visits", "prod")), append=True)

    def load(self) -> Any:
        return DeltaTable(self.root) if self.format == "delta" else load_catalog("prod").load_table("web.visits")

    def read(self) -> pa.Table:
        return self.load().to_pyarrow_table() if self.format == "delta" else self.load().scan().to_arrow()

    def append(self, rows: pa.Table) -> None:
        if self.format == "delta":
            write_deltalake(self.root, rows, mode="append", schema_mode="merge")
        else:
            self.load().append(rows)

    def compact(self) -> None:
        if self.format == "delta":
            self.load().optimize.compact()
        else:
            self.load().overwrite(self.read())

    def version(self) -> object:
        found = self.load()
        return found.version() if self.format == "delta" else (found.metadata_location, found.properties)

    def theirs(self) -> list[str]:
        return sorted(row["page"] for row in self.read().to_pylist() if row.get("offset") is None)

    def ours(self) -> list[int]:
        return sorted(row["offset"] for row in self.read().to_pylist() if row.get("offset") is not None)


def load_catalog(name: str, **settings: str) -> Any:
    from pyiceberg import catalog  # a second's import, for which no other worker waits

    return catalog.load_catalog(name, **settings)


@pytest.fixture(params=["iceberg", "delta"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OthersTable:
    made = OthersTable(request.param, tmp_path)
    for name, value in made.settings().items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.upper()}", value)
    from pyiceberg.utils.config import Config

    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it has read them long ago
    return made


def export(topic: TopicOnBroker, table: OthersTable, **options: Any) -> list[ExportedRange]:
    options.setdefault("choice", table.choice)
    return exporting.export(topic, table.root, table=options.pop("choice"), **options)


def states(topic: TopicOnBroker, table: OthersTable) -> list[str]:
    return [row.state for row in verify(topic.bootstrap, str(table.root))]


def test_rows_of_others_and_their_files_stay(new_topic: NewTopic, table: OthersTable) -> None:
    topic = new_topic()
    table.create(theirs())
    sent = topic.produce(make_messages(10))
    assert [row.messages for row in export(topic, table)] == [10]
    table.append(theirs())
    sent += topic.produce(make_messages(10))
    assert [row.messages for row in export(topic, table, choice=None)] == [10]
    assert (table.theirs(), table.ours()) == (["a", "a", "b", "b"], sent)
    assert {row["key"] for row in table.read().to_pylist() if row["page"]} == {b"x", None}
    assert states(topic, table) == ["ok"]
    assert find_garbage(str(table.root), older_than_s=0) == []
    table.compact()
    assert (table.theirs(), states(topic, table)) == (["a", "a", "b", "b"], ["ok"])
    with pytest.raises(Refused):
        compact(str(table.root))
    table.append(table.read().filter(pc.field("offset") == sent[0]))
    assert states(topic, table) == ["wrong-count"]


def test_fields_of_messages_go_into_columns_of_others(new_topic: NewTopic, table: OthersTable) -> None:
    topic = new_topic()
    table.create(theirs(), by="page")
    topic.produce([Message(b"k", b'{"page": "c", "user": 7}')])
    decoding = {"decode": Decode("json").plan, "partition_by": "page"}
    assert [row.messages for row in export(topic, table, **decoding)] == [1]
    found = table.read().filter(pc.field("offset").is_valid()).to_pylist()
    assert [(row["page"], row["user"], row["key"]) for row in found] == [("c", 7, b"k")]
    assert (table.theirs(), states(topic, table)) == (["a", "b"], ["ok"])


def test_a_table_that_does_not_fit_is_left_as_it_was(new_topic: NewTopic, table: OthersTable) -> None:
    topic = new_topic()
    topic.produce(make_messages(3))
    with pytest.raises(Refused) as missing:
        export(topic, table)  # there is none
    assert "--append" in (missing.value.hint or "")
    table.create(
        pa.table(
            [["a"], [1], ["k"], [2], ["x"]],
            pa.schema(
                [
                    *(pa.field("page", pa.string()), pa.field("offset", pa.int64()), pa.field("key", pa.string())),
                    *(pa.field("id", pa.int64(), nullable=False), pa.field("Value", pa.string())),
                ]
            ),
        ),
        by="page",
    )
    before = table.version()
    with pytest.raises(Refused) as refused:
        export(topic, table)
    named = re.findall(r"(\w+): found (\w+)", refused.value.message)
    assert named == [("offset", "long"), ("key", "string"), ("id", "long"), ("Value", "string"), ("partitions", ANY)]
    assert (table.version(), (table.root / "_klog/export.json").exists()) == (before, False)
    with pytest.raises(Refused, match="--append"):
        export(topic, table, choice=table.choice._replace(append=False))
    with pytest.raises(UsageError, match="--catalog"):
        export(topic, table, choice=TableChoice("iceberg", append=True))


def test_a_delta_table_with_rules_that_klog_does_not_keep(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, table = new_topic(), OthersTable("delta", tmp_path)
    topic.produce(make_messages(3))
    table.create(theirs())
    assert [row.messages for row in export(topic, table)] == [3]
    table.load().alter.add_constraint({"short": "page IS NULL OR page < 'z'"})
    topic.produce(make_messages(3))
    with pytest.raises(Refused, match=r"delta\.constraints\.short"):
        export(topic, table)
