"""Messages under schema ids through an export: typed rows in its files, the rest in `_undecodable`, all counted."""

from __future__ import annotations

import io
import json
import secrets
from pathlib import Path
from typing import Any

import fastavro
import pytest

from klog.coordination.schemas import AVRO, SchemaRegistry
from klog.errors import Refused, UsageError
from klog.export.compact import compact
from klog.export.files import FORMATS, read_stored
from klog.export.listing import list_batches
from klog.export.root import ExportRoot
from klog.export.status import status
from klog.export.undecodable import UndecodableLimit, limit_of
from klog.export.verify import verify
from klog.record.avro_framing import frame
from klog.spark import read_export
from klog.spark.decoding import Decode
from klog.spark.export import run_export
from tests.rows import each
from tests.spark import exporting
from tests.spark.conftest import Message, NewTopic, TopicOnBroker
from tests.spark.exporting import rows_of


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


FIRST = record("Visit", {"name": "id", "type": "long"}, {"name": "page", "type": "string"})
SECOND = record(
    "Visit",
    {"name": "id", "type": "long"},
    {"name": "page", "type": "string"},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    {"name": "took", "type": ["null", "int", "double"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    {"name": "counts", "type": {"type": "map", "values": ["null", "long"]}, "default": {}},
)


ONE = ["parquet", *(pytest.param(one, marks=pytest.mark.long("another format")) for one in FORMATS if one != "parquet")]


def datum(schema: Any, value: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, value)
    return written.getvalue()


def register(registry: SchemaRegistry, topic: str, schema: dict[str, Any]) -> int:
    return registry.register(f"{topic}-value", AVRO, json.dumps(schema), lambda settings, subject: None).schema_id


def send(registry: SchemaRegistry, topic: TopicOnBroker, schema: dict[str, Any], *values: dict[str, Any]) -> list[int]:
    """Registered, and produced in its form."""
    schema_id = register(registry, topic.name, schema)
    return topic.produce([Message(b"k", frame(schema_id, datum(schema, value))) for value in values])


def begun(registry: SchemaRegistry, new_topic: NewTopic) -> tuple[TopicOnBroker, int]:
    """A topic with one message of the first schema, and the schema's id."""
    topic = new_topic()
    send(registry, topic, FIRST, {"id": 1, "page": "a"})
    return topic, register(registry, topic.name, FIRST)


def export(
    topic: TopicOnBroker, root: Path, format_: str | None = None, reader: str | None = None, **options: Any
) -> int:
    """How many messages a run took."""
    plan = Decode("avro", reader).plan
    rows = exporting.export(topic, root, decode=plan, format=format_, **options)
    return sum(row.messages or 0 for row in rows)


@pytest.mark.parametrize("format_", FORMATS)
def test_two_versions_and_garbage(registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path, format_: str) -> None:
    topic = new_topic()
    first = register(registry, topic.name, FIRST)
    second = register(registry, topic.name, SECOND)
    values: list[bytes | None] = []
    for number in range(200):
        old = {"id": number, "page": f"/{number}"}
        new = old | {
            "tags": ["a", "ü"],
            "took": number if number % 2 else 0.5,
            "at": number,
            "counts": {"x": 1, "y": None},
        }
        values.append(frame(second, datum(SECOND, new)) if number % 3 else frame(first, datum(FIRST, old)))
    garbage = [b"plain", frame(first, b"\x02"), frame(2**31 - 1, b""), frame(second, secrets.token_bytes(3) * 9)]
    values += [*garbage, None]
    topic.produce([Message(b"k", value) for value in values])
    root = tmp_path / "root"
    notes: list[str] = []
    plan = Decode("avro").plan
    rows = exporting.export(topic, root, decode=plan, format=format_, on_note=notes.append)
    assert [(row.messages, row.undecodable) for row in rows] == [(len(values), len(garbage))]
    for found in (list_batches(str(root)), status(topic.bootstrap, str(root)), verify(topic.bootstrap, str(root))):
        assert [row.undecodable for row in found] == [len(garbage)]
    assert limit_of(ExportRoot(str(root))) == UndecodableLimit("0")
    about = root / "_klog/export.json"
    about.write_text(about.read_text().replace('"max_undecodable": "0"', '"max_undecodable": [1]'))
    with pytest.raises(Refused, match="max_undecodable"):
        limit_of(ExportRoot(str(root)))

    typed = rows_of(root)
    assert [row["schema_id"] for row in typed] == [second if n % 3 else first for n in range(200)] + [None]
    assert typed[-1]["record"] is None
    assert [row["record"]["page"] for row in typed[:-1]] == [f"/{number}" for number in range(200)]
    assert typed[0]["record"]["tags"] == []
    assert typed[1]["record"]["took"]["member0"] == 1
    assert typed[1]["record"]["tags"] == ["a", "ü"]
    assert dict(typed[1]["record"]["counts"]) == {"x": 1, "y": None}
    assert str(typed[1]["record"]["at"])[:10] == "1970-01-01"
    undecodable = rows_of(root, undecodable=True)
    if format_ != "json":
        assert [row["value"] for row in undecodable] == garbage
    assert [row["schema_id"] for row in undecodable] == [None, first, 2**31 - 1, second]
    assert all(row["error"] for row in undecodable)
    assert any(undecodable[0]["error"] in note and str(root) in note for note in notes)

    manifest, _ = ExportRoot(str(root)).manifest(0)
    (part,) = manifest.partitions.values()
    assert (part.messages, part.undecodable, manifest.schema_ids) == (len(values), len(garbage), (first, second))


def test_a_field_that_is_not_written_is_null(registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path) -> None:
    """Removed later, or not there yet when the newest schema has decided about the columns: no row is lost for it."""
    topic = new_topic()
    root = tmp_path / "root"
    earlier = register(registry, topic.name, record("Visit", {"name": "id", "type": "long"}))
    newest = register(registry, topic.name, FIRST)
    topic.produce([Message(None, frame(earlier, datum({"type": "long"}, 0)))])
    topic.produce([Message(None, frame(newest, datum(FIRST, {"id": 1, "page": "a"})))])
    assert export(topic, root) == 2
    later = register(registry, topic.name, record("Visit", {"name": "page", "type": "string"}))
    topic.produce([Message(None, frame(later, datum({"type": "string"}, "b")))])
    assert export(topic, root) == 1
    found = [row["record"] for row in rows_of(root)]
    assert found == [{"id": 0, "page": None}, {"id": 1, "page": "a"}, {"id": None, "page": "b"}]


@each(
    ("text", "allowed", "too_many"),
    [
        ("0", (0, 9), (1, 9)),
        ("3", (3, 3), (4, 400)),
        ("1%", (1, 100), (1, 99)),
        ("0.5%", (1, 200), (1, 199)),
        ("100%", (7, 7), (8, 7)),
    ],
)
def test_how_many_may_be_undecodable(text: str, allowed: tuple[int, int], too_many: tuple[int, int]) -> None:
    limit = UndecodableLimit.parse(text)
    assert limit.allows(*allowed) and not limit.allows(*too_many)


@each("text", ["", "-1", "1.5", "101%", "%", "many", "\u0663", "9" * 5_000])
def test_what_is_no_such_limit(text: str) -> None:
    with pytest.raises(UsageError, match="--max-undecodable"):
        UndecodableLimit.parse(text)


def test_later_schemas_add_columns(registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, _ = begun(registry, new_topic)
    root = tmp_path / "root"
    notes: list[str] = []
    assert export(topic, root, on_note=notes.append) == 1
    value = {"id": 2, "page": "b", "tags": ["x"], "took": 2.5, "at": 0, "counts": {"c": 1}}
    send(registry, topic, SECOND, value)
    send(registry, topic, FIRST, {"id": 3, "page": "c"})
    assert export(topic, root, on_note=notes.append) == 2
    assert len(notes) == 1 and str(root) in notes[0]
    one, two, three = (row["record"] for row in rows_of(root))
    assert one == {"id": 1, "page": "a"}
    assert (two["tags"], two["took"]["member1"], dict(two["counts"])) == (["x"], 2.5, {"c": 1})
    assert (three["id"], three["took"]) == (3, None)


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("format_", ONE)
def test_spark_reads_the_columns_of_all_batches(
    spark: Any, registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path, format_: str
) -> None:
    topic, _ = begun(registry, new_topic)
    root = tmp_path / "root"
    assert export(topic, root, format_, partition_by="day") == 1
    send(registry, topic, SECOND, {"id": 2, "page": "b", "tags": ["x"], "took": None, "at": 0, "counts": {}})
    assert export(topic, root) == 1
    frame_ = read_export(spark, str(root))
    rows = frame_.select("batch", "dt", "record.id", "record.page", "record.tags").orderBy("id").collect()
    assert [(row.batch, row.id, row.page, row.tags) for row in rows] == [(0, 1, "a", None), (1, 2, "b", ["x"])]
    assert all(row.dt is not None for row in rows)


def test_a_later_run_goes_on_with_the_columns_that_were_asked_for(
    registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, first = begun(registry, new_topic)
    root = tmp_path / "root"
    assert export(topic, root, reader=str(first)) == 1
    second = register(registry, topic.name, SECOND)
    value = {"id": 2, "page": "b", "tags": ["x"], "took": None, "at": 0, "counts": {}}
    send(registry, topic, SECOND, value)
    notes: list[str] = []
    assert export(topic, root, on_note=notes.append) == 1
    (said,) = notes
    assert str(second) in said and str(root) in said and "tags, took, at" in said
    send(registry, topic, SECOND, value)
    assert export(topic, root, on_note=notes.append) == 1
    assert len(notes) == 1  # once, and not at each run
    assert [row["record"] for row in rows_of(root)] == [
        {"id": 1, "page": "a"},
        {"id": 2, "page": "b"},
        {"id": 2, "page": "b"},
    ]
    with pytest.raises(Refused, match="decoding"):
        export(topic, root, reader=str(second))


def test_values_at_the_ends_of_their_types_can_be_written(
    registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Whatever garbage decodes to, no format fails for it: one message would stop the export for good."""
    extreme = record(
        "Extreme",
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "real", "type": "double"},
        {"name": "list", "type": {"type": "array", "items": {"type": "long", "logicalType": "timestamp-micros"}}},
        {"name": "map", "type": {"type": "map", "values": {"type": "long", "logicalType": "timestamp-micros"}}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 38}},
    )
    topic = new_topic()
    schema_id = register(registry, topic.name, extreme)
    numbers = [(-(2**31), -(2**63 // 1000), -(2**63)), (2**31 - 1, 2**63 // 1000 - 1, 2**63 - 1), (0, 0, 0)]
    plain = json.loads(json.dumps(extreme).replace('"logicalType"', '"was"'))
    values = [
        datum(
            plain,
            {"day": day, "millis": millis, "micros": micros, "real": float("nan"), "amount": b"\xff"}
            | {"list": [0, micros, 1], "map": {"x": micros, "y": 1}},
        )
        for day, millis, micros in numbers
    ]
    topic.produce([Message(None, frame(schema_id, value)) for value in values])
    for format_ in FORMATS:
        root = tmp_path / format_
        rows = exporting.export(topic, root, decode=Decode("avro").plan, format=format_)
        assert sum(row.messages or 0 for row in rows) == 3
        place = ExportRoot(str(root))
        paths = [place.file_path(place.manifest(0)[0], one.path) for one in place.manifest(0)[0].files]
        read = [batch for path in paths for batch in read_stored(place.store, path, None, thorough=True)]
        assert sum(batch.num_rows for batch in read) == 3


def test_merged_batches_say_what_they_said(registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    schema_id = register(registry, topic.name, SECOND)
    root = tmp_path / "root"
    for number in range(2):
        values = [
            {"id": number, "page": "\u2028\n", "tags": [], "took": None, "at": number, "counts": {f"x{number}": 1}},
            {"id": number, "page": "", "tags": ["a"], "took": 0.5, "at": -number, "counts": {}},
        ]
        topic.produce([Message(b"\xff", frame(schema_id, datum(SECOND, value))) for value in values])
        topic.produce([Message(b"k", b"plain"), Message(b"k", None)])
        export(topic, root)
    before = [rows_of(root, undecodable=which) for which in (False, True)]
    assert [len(rows) for rows in before] == [6, 2]
    compact(str(root))
    assert len(list(root.glob("data/batch=*"))) == 1
    assert [rows_of(root, undecodable=which) for which in (False, True)] == before


EVERY_TYPE: list[tuple[Any, Any]] = [
    ("null", None),
    ("boolean", True),
    ("int", 1),
    ("long", 2**40),
    ("float", 0.5),
    ("double", 0.1),
    ("bytes", b"\xff"),
    ("string", "ü"),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
    ({"type": "array", "items": ["null", "int"]}, [1, None]),
    ({"type": "map", "values": "string"}, {"a": "b"}),
    (["null", "string"], None),
    (["int", "string"], "x"),
    (record("Inside", {"name": "a", "type": "int"}), {"a": 1}),
    (record("Empty"), {}),
    ({"type": "int", "logicalType": "date"}, 1),
    ({"type": "int", "logicalType": "time-millis"}, 1),
    ({"type": "long", "logicalType": "time-micros"}, 1),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1),
    ({"type": "long", "logicalType": "timestamp-micros"}, 1),
    ({"type": "long", "logicalType": "timestamp-nanos"}, 1),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, 1),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3}, b"\x07"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 3}, b"\x07"),
    ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, bytes(16)),
    ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, bytes(12)),
]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_decodes_in_its_tasks_and_reads_every_type(
    spark: Any, registry: SchemaRegistry, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    schema = record("Every", *({"name": f"f{number}", "type": type_} for number, (type_, _) in enumerate(EVERY_TYPE)))
    schema_id = register(registry, topic.name, schema)
    plain = json.loads(json.dumps(schema).replace('"logicalType"', '"was"'))
    value = datum(plain, {f"f{number}": one for number, (_, one) in enumerate(EVERY_TYPE)})
    for partition in (0, 1):
        topic.produce([Message(None, frame(schema_id, value))] * 20 + [Message(b"k", b"plain")], partition)
    root = tmp_path / "root"
    rows = run_export(topic.bootstrap, [topic.name], str(root), decode=Decode("avro"))
    assert sum(row.messages or 0 for row in rows) == 42
    typed = spark.read.parquet(str(root / "data")).select("record.*").collect()
    assert len(typed) == 40, "what is undecodable is not among them"
    first = typed[0]
    assert (first.f7, first.f9, first.f10, first.f11, first.f12) == ("ü", "B", [1, None], {"a": "b"}, None)
    assert (first.f3, first.f13.member1, first.f14.a, str(first.f23)) == (2**40, "x", 1, "0.007")
    assert (first.f25, first.f26.days) == ("00000000-0000-0000-0000-000000000000", 0)
    undecodable = rows_of(root, undecodable=True)
    assert [(row["value"], row["schema_id"]) for row in undecodable] == [(b"plain", None)] * 2
