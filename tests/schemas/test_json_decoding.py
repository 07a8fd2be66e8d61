"""JSON as columns: each type's values, what is refused and why, and schemas that are inferred from messages."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from klog.protocol.schema_errors import InvalidSchema
from klog.schemas.decoding.decoder import Decoding
from klog.schemas.decoding.row_decoder import NO_SCHEMA, RowDecoder
from klog.schemas.inference import DEPTH_MAX, FIELDS_MAX, infer
from tests.rows import each
from tests.schemas.avro_reference import fields, logical


def decoder(schema: Any, **settings: Any) -> RowDecoder:
    return RowDecoder(Decoding("value", json.dumps(schema), form="json", **settings))


def read(schema: Any, *texts: str | bytes | None) -> tuple[list[Any], list[tuple[int, str]]]:
    """The records of messages 0 to n - 1, and (message, error) of those that cannot be read."""
    values = [one.encode() if isinstance(one, str) else one for one in texts]
    batch = pa.record_batch(
        {"offset": pa.array(range(len(values)), pa.int64()), "value": pa.array(values, pa.binary())}
    )
    typed, bad = decoder(schema).split(batch)
    typed.validate(full=True)
    errors = [] if bad is None else [(row["offset"], row["error"]) for row in bad.to_pylist()]
    kept = typed.to_pylist()
    assert sorted([row["offset"] for row in kept] + [offset for offset, _ in errors]) == list(range(len(values)))
    return [row["record"] for row in kept], errors


DECIMAL = logical("bytes", "decimal", precision=5, scale=2)


@each(
    ("schema", "text", "value"),
    [
        ("boolean", "true", True),
        ("int", "-2147483648", -(2**31)),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "3.0", 3),
        ("long", "1e3", 1000),
        ("double", "3", 3.0),
        ("double", "1e-3", 0.001),
        ("float", "0.5", 0.5),
        ("string", '"\\u00fc\\ud83d\\ude00"', "ü😀"),
        ("string", "17", "17"),
        ("string", '{"a": [1, null]}', '{"a":[1,null]}'),
        ("string", "null", "null"),
        (["null", "string"], "null", None),
        (DECIMAL, "123.4", Decimal("123.40")),
        (DECIMAL, '"-999.99"', Decimal("-999.99")),
        (DECIMAL, "0", Decimal("0.00")),
        (logical("int", "date"), '"2026-03-01"', date(2026, 3, 1)),
        (logical("int", "date"), "-1", date(1969, 12, 31)),
        (logical("int", "time-millis"), '"17:30:00.250"', 63_000_250),
        (logical("long", "time-micros"), "86399999999", 86_399_999_999),
        (logical("long", "timestamp-millis"), '"2026-03-01T17:30:00Z"', datetime(2026, 3, 1, 17, 30, tzinfo=UTC)),
        (logical("long", "timestamp-micros"), '"2026-03-01T18:30:00+01:00"', datetime(2026, 3, 1, 17, 30, tzinfo=UTC)),
        (logical("long", "timestamp-millis"), '"2026-03-01 17:30"', datetime(2026, 3, 1, 17, 30, tzinfo=UTC)),
        (logical("long", "timestamp-millis"), "-1", datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (logical("long", "local-timestamp-micros"), '"2026-03-01T17:30:00"', datetime(2026, 3, 1, 17, 30)),
        (logical("string", "uuid"), '"a"', "a"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, '"B"', "B"),
        ({"type": "array", "items": "long"}, "[1, 2]", [1, 2]),
        ({"type": "map", "values": "long"}, '{"a": 1, "ü": 2}', [("a", 1), ("ü", 2)]),
        (["null", "long", "string"], '"x"', {"member0": None, "member1": "x"}),
        (fields(), "{}", True),
        (fields(a="long", b=["null", "string"]), '{"a": 1}', {"a": 1, "b": None}),
        (fields(a=fields(b="long") | {"name": "inner"}), '{"a": {"b": 1}}', {"a": {"b": 1}}),
    ],
)
def test_values_of_each_type(schema: Any, text: str, value: Any) -> None:
    assert read(schema, text, None) == ([value, None], [])


@each(
    ("schema", "text", "error"),
    [
        ("boolean", "1", "found 1"),
        ("int", "2147483648", "32 bits"),
        ("long", "true", "found true"),
        ("long", "1.5", "whole number"),
        ("long", "1e999999999", "64 bits"),
        ("double", '"1"', "a number"),
        ("double", "9007199254740993", "a double"),
        ("double", "1e999", "a double"),
        ("string", "1e999", "a double"),
        ("float", "1e39", "a float"),
        ("string", '"\\ud800"', "surrogate"),
        (DECIMAL, "1.234", "5 digits"),
        (DECIMAL, "1000", "5 digits"),
        (DECIMAL, "1e999999999", "5 digits"),
        (DECIMAL, '"NaN"', "5 digits"),
        (DECIMAL, '"x"', "5 digits"),
        (logical("int", "date"), '"2026-02-30"', "2026-03-01"),
        (logical("int", "date"), "2000000000", "9999"),
        (logical("int", "time-millis"), '"24:00:01"', ":30:00"),
        (logical("int", "time-millis"), '"12:00:00.0005"', "1/1000 s"),
        (logical("int", "time-millis"), "86400000", "a day"),
        (logical("long", "timestamp-millis"), '"yesterday"', ":30:00"),
        (logical("long", "timestamp-millis"), "9223372036854775807", "microseconds"),
        (logical("long", "local-timestamp-millis"), '"2026-03-01T17:30:00Z"', "an offset"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, '"C"', "symbol"),
        ({"type": "array", "items": "long"}, "{}", "an array"),
        ({"type": "map", "values": "long"}, "[]", "an object"),
        (fields(a="long"), "[]", "an object"),
        (fields(a="long"), "{}", "field a"),
        (fields(a=fields(b={"type": "array", "items": "int"}) | {"name": "i"}), '{"a":{"b":[1,"x"]}}', "a.b: "),
        (["null", "long"], '"x"', "whole number"),
        ("null", "1", "null, found 1"),
        ("long", "", "not JSON"),
        ("long", "1 2", "not JSON"),
        ("long", b"\xff", "UTF-8"),
        ("double", "NaN", "not JSON: NaN"),
        ("string", '{"a": 1, "a": 2}', "name a"),
        ("string", "[" * 100_000, "nested"),
        ("long", "9" * 10_000, "not JSON"),
    ],
)
def test_what_is_not_of_its_type_is_kept_with_its_reason(schema: Any, text: str | bytes, error: str) -> None:
    good = {"null": "null"}.get(schema if isinstance(schema, str) else "")
    records, errors = read(schema, text, good)
    assert records == [None]
    ((row, found),) = errors
    assert row == 0
    assert error in found
    assert len(found) < 300


@each(
    "schema",
    ["bytes", {"type": "fixed", "name": "f", "size": 4}, logical("fixed", "duration", size=12) | {"name": "d"}],
)
def test_types_without_a_form_in_json_are_refused_at_once(schema: Any) -> None:
    with pytest.raises(InvalidSchema):
        decoder(fields(a=schema))
    with pytest.raises(InvalidSchema):
        Decoding("value", json.dumps(fields(a=schema)), form="json").typed_schema(pa.schema([]))


def test_defaults_and_other_names() -> None:
    schema = fields(a="long", b="string")
    schema["fields"][0] |= {"default": 7, "aliases": ["old"]}
    assert read(schema, '{"b": "x"}', '{"old": 1, "b": "y"}') == ([{"a": 7, "b": "x"}, {"a": 1, "b": "y"}], [])
    schema["fields"][0] = {"name": "a", "type": logical("int", "date"), "default": 2_000_000_000}
    with pytest.raises(InvalidSchema, match="field a"):
        decoder(schema)


def test_fields_without_a_column_are_named_and_bounded() -> None:
    reads = decoder(fields(a=["null", fields(b="long") | {"name": "i"}]))
    rows = [b'{"x": 1, "a": {"b": 1, "y": [1]}}', *(b'{"n%d": 1}' % number for number in range(10_000))]
    typed, bad = reads.split(pa.record_batch({"value": pa.array(rows, pa.binary())}))
    assert (typed.num_rows, bad) == (len(rows), None)
    (paths,) = reads.left_out.values()
    assert {"x", "a.y"} <= set(paths)
    assert len(paths) == 200
    assert [*reads.left_out] == [NO_SCHEMA]


def test_a_schemas_id_in_front_is_a_column() -> None:
    framed = struct.pack(">bi", 0, 7) + b"5"
    batch = pa.record_batch({"value": pa.array([framed, b"6", None, b"\0"], pa.binary())})
    typed, bad = decoder("long").split(batch)
    assert typed.to_pylist() == [
        {"schema_id": 7, "record": 5},
        {"schema_id": None, "record": 6},
        {"schema_id": None, "record": None},
    ]
    assert bad is not None and bad.column("value").to_pylist() == [b"\0"]


def test_a_plan_goes_to_tasks_and_those_of_avro_stay_as_they_were() -> None:
    plan = Decoding("key", '"long"', form="json")
    assert Decoding.from_json(json.loads(json.dumps(plan.as_json()))) == plan
    assert "form" not in Decoding("value", '"long"').as_json()


# --- inferred schemas -------------------------------------------------------------------------------------------------

NAMES = some.sampled_from(["a", "b", "c", "user-id", "", "é"])
VALUES: some.SearchStrategy[Any] = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-(2**70), 2**70)
    | some.integers(-3, 3)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.text(some.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(some.lists(VALUES, min_size=1, max_size=8))
def test_whatever_the_messages_are_the_schema_reads_them(values: list[Any]) -> None:
    texts = [json.dumps(one) for one in values]
    found = infer(one.encode() for one in texts)
    if found is None:
        assert all(one is None for one in values)
        return
    records, errors = read(json.loads(found), *texts)
    assert errors == []
    for value, record in zip(values, records, strict=True):
        _check_same(value, record)


def _check_same(value: Any, record: Any) -> None:
    """Nothing of a value is lost, but for names that no column can have."""
    match value:
        case None:
            assert record is None
        case dict() if isinstance(record, dict):
            for name, part in value.items():
                if name in record:
                    _check_same(part, record[name])
                else:
                    assert not name.isascii() or not name.isidentifier()
            assert all(part is None for name, part in record.items() if name not in value)
        case dict() if isinstance(record, list):
            assert {name for name, _ in record} == value.keys()
            for name, part in record:
                _check_same(value[name], part)
        case list() if isinstance(record, list):
            assert len(value) == len(record)
            for one, other in zip(value, record, strict=True):
                _check_same(one, other)
        case str():
            assert record == value
        case _ if isinstance(record, str):
            assert json.loads(record) == value or math.isclose(json.loads(record), value)
        case _:
            assert record == value and isinstance(record, bool) == isinstance(value, bool)


def inferred(*values: Any) -> Any:
    """Of messages that are records: name -> type, null left out."""
    text = infer(json.dumps(one).encode() for one in values)
    assert text is not None
    return {one["name"]: one["type"][1] for one in json.loads(text)[1]["fields"]}


def test_what_is_inferred() -> None:
    assert inferred({"a": 1, "b": True, "c": "x"}, {"a": 2.5, "d": [1], "b": None}) == {
        "a": "double",
        "b": "boolean",
        "c": "string",
        "d": {"type": "array", "items": ["null", "long"]},
    }
    assert inferred({"a": 1}, {"a": "x"}) == {"a": "string"}
    assert inferred({"a": 2**60}, {"a": 1}) == {"a": "long"}
    assert inferred({"a": 2**60}, {"a": 0.5}) == {"a": "string"}
    assert inferred({"a": {}, "b": []}) == {
        "a": {"type": "map", "values": ["null", "string"]},
        "b": {"type": "array", "items": ["null", "string"]},
    }
    wide = {"a": {f"k{number}": number for number in range(FIELDS_MAX + 1)}}
    assert inferred(wide) == {"a": {"type": "map", "values": ["null", "long"]}}
    both = inferred({"a": {"x": {"y": 1}}, "a_x": {"z": 1}})
    assert both["a"]["fields"][0]["type"][1]["name"] != both["a_x"]["name"]
    deep: Any = 1
    for _ in range(DEPTH_MAX + 5):
        deep = [deep]
    schema = infer([json.dumps(deep).encode()])
    assert schema is not None and schema.count("array") == DEPTH_MAX
    assert infer([b"", b"\xff", b"{", b"[" * 100_000, b"null"]) is None
