"""Exports of JSON and Protocol Buffers: a schema that is given, or inferred once and kept; what does not fit stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from klog.errors import NoSuchThing, Refused, UsageError
from klog.export.listing import list_batches
from klog.export.root import ExportRoot
from klog.export.rows import ExportedRange
from klog.export.run import TableChoice
from klog.protocol.schema_errors import InvalidSchema
from klog.spark.decoding import Decode
from tests.schemas.test_protobuf_decoding import FILES, Visit
from tests.spark import exporting
from tests.spark.conftest import Message, NewTopic, TopicOnBroker
from tests.spark.exporting import rows_of, states
from tests.spark.test_tables import FORMATS, rows


def send(topic: TopicOnBroker, *values: Any, partition: int = 0) -> list[int]:
    """Values as JSON; bytes and None as they are."""
    return topic.produce(
        [Message(b"k", one if one is None or isinstance(one, bytes) else json.dumps(one).encode()) for one in values],
        partition=partition,
    )


def export(topic: TopicOnBroker, root: Path, reader: str | None = None, **options: Any) -> list[ExportedRange]:
    return exporting.export(topic, root, decode=Decode("json", reader).plan, **options)


def test_a_schema_is_inferred_once_and_kept(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root = new_topic(partitions=2), tmp_path / "clicks"
    sent = send(topic, {"page": "/a", "ms": 5}, b"plain text", None)
    send(topic, {"page": "/b", "ms": 2.5, "user": {"id": 7}}, partition=1)
    notes: list[str] = []
    assert sum(row.messages or 0 for row in export(topic, root, on_note=notes.append)) == 4
    assert [(row["partition"], row["record"]) for row in rows_of(root)] == [
        (0, {"page": "/a", "ms": 5.0, "user": None}),
        (0, None),
        (1, {"page": "/b", "ms": 2.5, "user": {"id": 7}}),
    ]
    assert [row["offset"] for row in rows_of(root)][:2] == [sent[0], sent[2]]
    (beside,) = rows_of(root, undecodable=True)
    assert beside["value"] == b"plain text" and "not JSON" in beside["error"]
    (note,) = notes
    assert "1 message" in note and "_undecodable" in note
    notes.clear()

    send(topic, {"page": "/c", "ms": "fast"}, {"page": "/d", "added\x1b[31m": 1, "ms": 1})
    export(topic, root, on_note=notes.append)
    assert rows_of(root)[2]["record"] == {"page": "/d", "ms": 1.0, "user": None}
    assert [row["value"] for row in rows_of(root, undecodable=True)] == [b"plain text", b'{"page": "/c", "ms": "fast"}']
    assert len(notes) == 2 and "added" in notes[1]
    identity = ExportRoot(str(root)).identity()
    assert identity is not None and identity.decode is not None
    assert (identity.decode["form"], identity.decode["column"]) == ("json", "value")
    assert set(states(root, topic)) == {"ok"}
    with pytest.raises(Refused):
        exporting.export(topic, root, decode=Decode("json:key").plan)


def test_a_schema_that_is_given(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(schema))
    send(topic, {"at": "2026-03-01T10:00:00Z", "total": "12.50"}, {"at": 0, "total": 0.333})
    export(topic, tmp_path / "orders", str(file))
    (row,) = rows_of(tmp_path / "orders")
    assert (row["record"]["at"].isoformat(), str(row["record"]["total"])) == ("2026-03-01T10:00:00+00:00", "12.50")
    assert "total: " in rows_of(tmp_path / "orders", undecodable=True)[0]["error"]
    file.write_text('"bytes"')
    with pytest.raises(InvalidSchema):
        export(topic, tmp_path / "other", str(file))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("table", FORMATS)
def test_fields_of_json_are_columns_of_a_table(new_topic: NewTopic, tmp_path: Path, table: str) -> None:
    topic, root = new_topic(), tmp_path / "clicks"
    send(topic, {"page": "/a", "offset": 5, "tags": ["x"]}, {"page": "/b"}, b"no json")
    export(topic, root, table=TableChoice(table))
    first, second = rows(root, table)
    assert (first["page"], first["value_offset"], [*first["tags"]]) == ("/a", 5, ["x"])
    assert (second["page"], second["value_offset"], second["tags"]) == ("/b", None, None)
    assert len(rows_of(root, undecodable=True)) == 1
    send(topic, {"page": "/c"})
    assert [row.messages for row in exporting.export(topic, root)] == [1]
    assert len(rows(root, table)) == 3
    assert len([*list_batches(str(root))]) == 2


def test_old_and_new_messages_are_looked_at(
    new_topic: NewTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample of a topic that is larger than it has both its ends."""
    monkeypatch.setattr("klog.spark.decoding.SAMPLE_BYTES", 20_000)
    topic = new_topic()
    send(topic, *({"first": number} for number in range(20)))
    send(topic, *({"middle": "x" * 1000} for _ in range(100)))
    send(topic, *({"last": number} for number in range(20)))
    export(topic, tmp_path / "long")
    fields = rows_of(tmp_path / "long")[0]["record"].keys()
    assert {"first", "last"} <= fields


def test_without_json_there_is_no_schema(new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    with pytest.raises(Refused) as empty:
        export(topic, tmp_path / "none")
    assert "--read-as" in str(empty.value.hint)
    send(topic, b"plain")
    with pytest.raises(Refused):
        export(topic, tmp_path / "none")
    with pytest.raises(UsageError):
        exporting.export(topic, tmp_path / "none", decode=Decode("xml").plan)
    assert not (tmp_path / "none").exists()


def test_protocol_buffers_by_a_descriptor(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, root, file = new_topic(), tmp_path / "visits", tmp_path / "visit.desc"
    file.write_bytes(FILES)
    send(topic, Visit(user=5, tags=["a"]).SerializeToString(), b"\xff\xff", None)

    def one_run(reader: str | None, where: Path = root, **options: Any) -> list[ExportedRange]:
        plan = Decode("protobuf", reader).plan
        return exporting.export(topic, where, decode=plan, **options)

    one_run(f"{file}#shop.Visit")
    assert [None if row["record"] is None else row["record"]["user"] for row in rows_of(root)] == [5, None]
    assert [row["value"] for row in rows_of(root, undecodable=True)] == [b"\xff\xff"]
    file.unlink()  # what it says is kept
    send(topic, Visit(guest="x").SerializeToString())
    assert [row.messages for row in one_run(None)] == [1]
    assert rows_of(root)[2]["record"]["guest"] == "x"
    assert set(states(root, topic)) == {"ok"}
    for reader, error in ((None, UsageError), (str(file), NoSuchThing), (f"{__file__}#shop.Visit", InvalidSchema)):
        with pytest.raises(error):
            one_run(reader, tmp_path / "other")
    file.write_bytes(FILES)
    one_run(f"{file}#shop.Visit", tmp_path / "table", table=TableChoice("iceberg"))
    assert [row["user"] for row in rows(tmp_path / "table", "iceberg")] == [5, None, None]
