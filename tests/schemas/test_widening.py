"""Schemas whose columns take what two schemas write: which types they get, and that both can be read by them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.export.message_columns import SCHEMA
from klog.protocol.schema_errors import InvalidSchema
from klog.schemas.decoding.arrow import TAKEN, arrow_type, parse_columns
from klog.schemas.decoding.decoder import Decoding
from klog.schemas.decoding.items import Items
from klog.schemas.decoding.plan import plan
from klog.schemas.decoding.steps import Enum, Member, Record, Refuse, Step, Union
from klog.schemas.widening import widened
from tests.rows import each
from tests.schemas.avro_reference import logical


def visit(**types: Any) -> str:
    return json.dumps(
        {"type": "record", "name": "a.Visit", "fields": [{"name": name, "type": one} for name, one in types.items()]}
    )


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def column(before: Any, written: Any) -> pa.DataType:
    """Of the field after widening; checks that both are read in full, and that there is nothing left to widen."""
    reader = widened(visit(f=before), visit(f=written))
    for writer in (visit(f=before), visit(f=written)):
        assert_reads(reader, writer)
        assert widened(reader, writer) == reader
    return arrow_type(parse_columns(reader)).field("f").type


def assert_reads(reader: str, writer: str) -> None:
    written, wanted = parse_columns(writer), parse_columns(reader)
    left_out: dict[str, None] = {}
    for step in steps_of(plan(written, wanted, left_out=left_out)):
        assert not isinstance(step, Refuse), step.reason
        assert not isinstance(step, Enum) or (step.numbers >= 0).all()
    assert not left_out


def steps_of(step: Step) -> list[Step]:
    inside: list[Step] = []
    match step:
        case Record():
            inside = [one for _, one in step.written]
        case Items():
            inside = [step.item]
        case Union():
            inside = list(step.branches)
        case Member():
            inside = [step.step]
    return [step] + [one for part in inside for one in steps_of(part)]


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
MORE = {"type": "enum", "name": "E", "symbols": ["C", "A"]}


@each(
    ("before", "written", "after"),
    [
        ("int", "long", pa.int64()),
        ("long", "int", pa.int64()),
        ("float", "double", pa.float64()),
        ("double", "int", pa.float64()),
        ("string", "bytes", pa.string()),
        ("int", ["null", "long"], pa.int64()),
        (["null", "int"], "long", pa.int64()),
        ("string", "null", pa.string()),
        (
            ["int", "string"],
            "boolean",
            pa.struct([("member0", pa.int32()), ("member1", pa.string()), ("member2", pa.bool_())]),
        ),
        (["int", "string"], "long", pa.struct([("member0", pa.int64()), ("member1", pa.string())])),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), pa.timestamp("us", "UTC")),
        (decimal(4, 2), decimal(9, 2), pa.decimal128(9, 2)),
        (ENUM, MORE, pa.string()),
        (
            {"type": "array", "items": "int"},
            {"type": "array", "items": "long"},
            pa.list_(pa.field("element", pa.int64())),
        ),
        (
            {"type": "map", "values": "int"},
            {"type": "map", "values": ["null", "int"]},
            pa.map_(pa.string(), pa.int32()),
        ),
    ],
)
def test_types_that_become_wider(before: Any, written: Any, after: pa.DataType) -> None:
    assert column(before, written) == after


@each(
    ("before", "written"),
    [
        ("int", "string"),
        ("int", "double"),
        ("int", logical("long", "timestamp-millis")),
        (logical("int", "date"), logical("long", "timestamp-millis")),
        (logical("int", "time-millis"), logical("long", "time-micros")),
        (decimal(4, 2), decimal(9, 3)),
        ("int", ["null", "int", "string"]),
        ("string", {"type": "array", "items": "string"}),
        (ENUM, {**ENUM, "name": "F"}),
        ({"type": "fixed", "name": "X", "size": 2}, {"type": "fixed", "name": "X", "size": 3}),
        ("null", "int"),
    ],
)
def test_a_column_that_cannot_become_what_is_written_stays(before: Any, written: Any) -> None:
    assert widened(visit(f=before), visit(f=written)) == visit(f=before)
    with pytest.raises(InvalidSchema):
        widened(json.dumps(before), json.dumps(written))
    beside = parse_columns(widened(visit(f=before), visit(f=written, g="int")))
    assert arrow_type(beside).field("g").type == pa.int32()


def test_fields_of_either_schema_stay() -> None:
    before, written = visit(a="int", b=ENUM), visit(b=MORE, c="string")
    reader = widened(before, written)
    assert_reads(reader, before)
    assert_reads(reader, written)
    fields = parse_columns(reader).fields  # type: ignore[union-attr]
    assert [(one.name, one.has_default, one.default) for one in fields] == [
        ("a", True, None),
        ("b", False, None),
        ("c", True, None),
    ]


def test_records_of_another_name_are_no_versions() -> None:
    other = json.dumps({"type": "record", "name": "a.Click", "fields": [{"name": "x", "type": "int"}]})
    for written in (other, '"string"'):
        assert widened(visit(f="int"), written) == visit(f="int")
    moved = json.dumps({"type": "record", "name": "b.Visit", "fields": [{"name": "x", "type": "int"}]})
    assert_reads(widened(visit(f="int"), moved), moved)


def test_two_versions_of_a_type_stay_apart() -> None:
    """A field that was dropped keeps the old one, a new one has the new one; the text defines each once."""
    person = {"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}
    later = {**person, "fields": [{"name": "age", "type": "int"}]}
    first = visit(home=person, work="Person", gone="Person")
    second = visit(home=later, work="Person", more="Person")
    reader = widened(first, second)
    for writer in (first, second):
        assert_reads(reader, writer)
    third = visit(more={**person, "fields": [{"name": "size", "type": "double"}]})
    assert_reads(widened(reader, third), third)
    assert_reads(widened(reader, third), first)


@given(
    st.lists(st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["int", ["null", "int"], "long"])), min_size=2)
)
def test_whatever_comes_after_another_is_read(versions: list[dict[str, Any]]) -> None:
    versions = [one or {"z": "int"} for one in versions]
    reader = visit(**versions[0])
    for version in versions[1:]:
        reader = widened(reader, visit(**version))
    for version in versions:
        assert_reads(reader, visit(**version))
        assert widened(reader, visit(**version)) == reader


# --- Names of columns ---


def names(text: str, column: str = "value") -> list[str]:
    return [str(name) for name in Decoding(column, text, flat=True).typed_schema(SCHEMA).names]


def test_names_of_columns() -> None:
    own = [name for name in SCHEMA.names if name != "value"]
    assert {name.lower() for name in (*SCHEMA.names, "schema_id")} <= TAKEN
    assert names(visit(page="int", Offset="int", key="int")) == [
        *own, "schema_id", "page", "value_Offset", "value_key"
    ]  # fmt: skip
    assert names(visit(key="int"), "key")[-1] == "key_key"
    assert names('"string"')[-2:] == names(visit())[-2:] == ["schema_id", "record"]
    assert names(f'["null", {visit(page="int")}]')[-1] == "page"
    for fields in ({"a": "int", "A": "int"}, {"key": "int", "value_key": "int"}):
        with pytest.raises(InvalidSchema, match="two columns"):
            names(visit(**fields))
