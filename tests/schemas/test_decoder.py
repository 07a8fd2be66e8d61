"""Messages with schema ids as typed columns: what becomes of each type, each change of a schema, and of no datum."""

from __future__ import annotations

import json
import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from klog.errors import CannotConnect
from klog.protocol.schema_errors import InvalidSchema, SchemaNotFound
from klog.record.avro_framing import frame
from klog.schemas.decoding.decoder import NO_FRAMING, UUID_FRAMING, Decoder, Decoding
from klog.schemas.decoding.front import CUT_SHORT, NO_TEXT, TOO_LONG
from tests.rows import each
from tests.schemas.avro_reference import batch_of, number


def record(*fields: tuple[Any, ...], name: str = "R", **more: Any) -> dict[str, Any]:
    """(name, type) or (name, type, default)."""
    listed = [dict(zip(("name", "type", "default"), field, strict=False)) for field in fields]
    return {"type": "record", "name": name, "fields": listed, **more}


def string(text: str) -> bytes:
    return number(len(text.encode())) + text.encode()


def refused(*facts: str, place: str = "it") -> re.Pattern[str]:
    """Why a datum is refused: where, and these facts, in this order."""
    return re.compile(re.escape(place) + r":.*\b" + r"\b.*\b".join(map(re.escape, facts)) + ".*")


def decoder_of(reader: Any, writers: dict[int, Any] | None = None, **more: Any) -> Decoder:
    known = {1: reader} if writers is None else writers

    def schema_of(schema_id: int) -> str:
        if schema_id not in known:
            raise SchemaNotFound(f"no schema {schema_id}")
        return json.dumps(known[schema_id])

    return Decoder(Decoding(more.pop("column", "value"), json.dumps(reader), **more), schema_of)


def decoded(schema: Any, *data: bytes, reader: Any = None) -> list[Any]:
    """The records of data that one schema wrote; the reason where there is none."""
    decoder = decoder_of(schema if reader is None else reader, {1: schema})
    typed, undecodable = decoder.split(batch_of([frame(1, datum) for datum in data]))
    typed.validate(full=True)
    found = dict(zip(typed["offset"].to_pylist(), typed["record"].to_pylist(), strict=True))
    if undecodable is not None:
        found |= dict(zip(undecodable["offset"].to_pylist(), undecodable["error"].to_pylist(), strict=True))
    return [found[offset] for offset in range(len(data))]


# --- Messages ---


def test_what_is_typed_and_what_is_not_keep_their_columns() -> None:
    schema = record(("a", "int"))
    values = [frame(1, b"\x02"), None, b"plain", frame(9, b"\x02"), b"", frame(1, b""), frame(1, b"\x04")]
    typed, undecodable = decoder_of(schema).split(batch_of(values))
    assert typed.schema.names == ["key", "offset", "schema_id", "record"]
    assert typed.to_pylist() == [
        {"key": b"k", "offset": 0, "schema_id": 1, "record": {"a": 1}},
        {"key": b"k", "offset": 1, "schema_id": None, "record": None},
        {"key": b"k", "offset": 6, "schema_id": 1, "record": {"a": 2}},
    ]
    assert undecodable is not None
    rows = undecodable.to_pylist()
    errors = [row.pop("error") for row in rows]
    assert rows == [
        {"key": b"k", "value": b"plain", "offset": 2, "schema_id": None},
        {"key": b"k", "value": values[3], "offset": 3, "schema_id": 9},
        {"key": b"k", "value": b"", "offset": 4, "schema_id": None},
        {"key": b"k", "value": values[5], "offset": 5, "schema_id": 1},
    ]
    assert (errors[0], errors[2]) == (NO_FRAMING, NO_FRAMING)
    assert errors[1].endswith(" 9") and "datum" in errors[3]


def test_the_newer_framing_is_told_from_none() -> None:
    values: list[bytes | None] = [b"\x01" + bytes(16) + b"\x02", b"\x01", b"\x02abcdef", frame(1, b"\x02")]
    typed, undecodable = decoder_of("int").split(batch_of(values))
    assert typed["record"].to_pylist() == [1]
    assert undecodable is not None
    assert undecodable["error"].to_pylist() == [UUID_FRAMING, NO_FRAMING, NO_FRAMING]


def test_the_columns_are_known_before_there_are_messages() -> None:
    for keep in (False, True):
        decoder = decoder_of(record(("a", "int")), keep=keep)
        batch = batch_of([frame(1, b"\x02"), b"x"])
        typed, undecodable = decoder.split(batch)
        assert typed.schema == decoder.decoding.typed_schema(batch.schema)
        assert undecodable is not None
        assert undecodable.schema == pa.schema([*batch.schema, ("schema_id", pa.int32()), ("error", pa.string())])
        assert ("value" in typed.schema.names) is keep
        nothing, none = decoder.split(batch.slice(0, 0))
        assert (nothing.num_rows, nothing.schema, none) == (0, typed.schema, None)
    assert Decoding.from_json(json.loads(json.dumps(decoder.decoding.as_json()))) == decoder.decoding


def test_keys_are_decoded_as_values_are() -> None:
    typed, undecodable = decoder_of("string", column="key").split(batch_of([frame(1, string("a")), b"?"], "key"))
    assert typed.to_pylist() == [{"value": b"v", "offset": 0, "schema_id": 1, "record": "a"}]
    assert undecodable is not None
    assert undecodable["value"].to_pylist() == [b"v"]


def test_rows_of_several_schemas_and_a_slice_of_a_batch() -> None:
    writers = {1: record(("a", "int")), 2: record(("b", "string"), ("a", "long"))}
    values: list[bytes | None] = [b"-", frame(2, string("x") + b"\x06"), frame(1, b"\x02"), None, frame(3, b"")]
    values += [frame(2, string("") + b"\x08")]
    typed, undecodable = decoder_of(record(("a", "long")), writers).split(batch_of(values).slice(1))
    assert typed["offset"].to_pylist() == [1, 2, 3, 5]
    assert typed["schema_id"].to_pylist() == [2, 1, None, 2]
    assert typed["record"].to_pylist() == [{"a": 3}, {"a": 1}, None, {"a": 4}]
    assert undecodable is not None
    assert undecodable["offset"].to_pylist() == [4]


def test_a_registry_that_does_not_answer_is_no_message_s_fault() -> None:
    def away(schema_id: int) -> str:
        raise CannotConnect("refused")

    with pytest.raises(CannotConnect):
        Decoder(Decoding("value", '"int"'), away).split(batch_of([frame(1, b"\x02")]))


def test_a_schema_is_looked_up_once() -> None:
    asked: list[int] = []

    def schema_of(schema_id: int) -> str:
        asked.append(schema_id)
        if schema_id == 2:
            raise SchemaNotFound("2")
        return '"int"'

    decoder = Decoder(Decoding("value", '"int"'), schema_of)
    for _ in range(3):
        decoder.split(batch_of([frame(1, b"\x02"), frame(2, b"\x02")]))
    assert asked == [1, 2]


# --- Types ---

EPOCH = datetime(1970, 1, 1)


@each(
    ("schema", "datum", "value"),
    [
        ("null", b"", None),
        ("boolean", b"\x01", True),
        ("int", number(-(2**31)), -(2**31)),
        ("long", number(2**63 - 1), 2**63 - 1),
        ("float", struct.pack("<f", 1.5), 1.5),
        ("double", struct.pack("<d", 0.1), 0.1),
        ("bytes", b"\x04\xff\x00", b"\xff\x00"),
        ("string", string("ü🙂"), "ü🙂"),
        ({"type": "fixed", "name": "F", "size": 2}, b"\xff\x00", b"\xff\x00"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x02", "B"),
        ({"type": "array", "items": "long"}, b"\x04\x02\x04\x02\x06\x00", [1, 2, 3]),
        ({"type": "map", "values": "long"}, b"\x02" + string("a") + b"\x02\x00", [("a", 1)]),
        (["null", "string"], b"\x02" + string("a"), "a"),
        (["null", "string"], b"\x00", None),
        (["int", "string", "null"], b"\x02" + string("a"), {"member0": None, "member1": "a"}),
        (["int", "string", "null"], b"\x04", None),
        (["int"], b"\x02\x00"[1:] + b"\x06", 3),
        (record(), b"", True),
        (record(("a", record(("b", "int"), name="S"))), b"\x02", {"a": {"b": 1}}),
        ({"type": "int", "logicalType": "date"}, number(19_000), date(2022, 1, 8)),
        ({"type": "int", "logicalType": "time-millis"}, number(1000), 1000),
        ({"type": "long", "logicalType": "time-micros"}, number(1000), 1000),
        ({"type": "long", "logicalType": "timestamp-millis"}, number(1000), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            number(-1),
            datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        ),
        ({"type": "long", "logicalType": "timestamp-nanos"}, number(1), 1),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, number(0), EPOCH),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, number(0), EPOCH),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, b"\x04\xff\x00", Decimal("-2.56")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, b"\x00", Decimal("0.00")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 2}, b"\x02\x01", b"\x01"),
        (
            {"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 5},
            b"\x00\x01\x00",
            Decimal(256),
        ),
        ({"type": "string", "logicalType": "uuid"}, string("not looked at"), "not looked at"),
        (
            {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"},
            bytes(range(16)),
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
        ),
        (
            {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
            struct.pack("<3I", 1, 2, 2**32 - 1),
            {"months": 1, "days": 2, "milliseconds": 2**32 - 1},
        ),
        ({"type": "string", "logicalType": "date"}, string("x"), "x"),
    ],
)
def test_every_type_is_a_column(schema: Any, datum: bytes, value: Any) -> None:
    if schema == ["int"]:
        datum = b"\x00\x06"
    inside = record(("it", schema), name="Outer")
    assert decoded(inside, datum, datum) == [{"it": value}] * 2
    assert decoded({"type": "array", "items": inside}, b"\x02" + datum + b"\x00") == [[{"it": value}]]


def test_names_and_namespaces() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["A"]}
    schema = record(("a", inner), ("b", "E"), ("c", "space.E"), ("d", ["null", "E"]), name="R", namespace="space")
    assert decoded(schema, b"\x00\x00\x00\x02\x00") == [{"a": "A", "b": "A", "c": "A", "d": "A"}]


# --- Evolution ---

UP = {"type": "enum", "name": "E", "symbols": ["C", "A"], "default": "C"}
DOWN = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
NO_DEFAULT = {key: value for key, value in UP.items() if key != "default"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}


@each(
    ("writer", "reader", "datum", "value"),
    [
        ("int", "long", b"\x02", 1),
        ("int", "double", b"\x02", 1.0),
        ("long", "float", b"\x02", 1.0),
        ("float", "double", struct.pack("<f", 1.5), 1.5),
        ("string", "bytes", string("ü"), "ü".encode()),
        ("bytes", "string", string("ü"), "ü"),
        ("int", ["null", "long"], b"\x02", 1),
        (["null", "int"], "long", b"\x02\x02", 1),
        (["null", "int"], "long", b"\x00", refused("null", "long")),
        (["null", "string"], ["null", "int"], b"\x00", None),
        (["int", "string"], ["string", "long"], b"\x00\x02", {"member0": None, "member1": 1}),
        (["long", "int"], ["long", "int"], b"\x02\x02", {"member0": None, "member1": 1}),
        (
            ["null", "string"],
            ["null", "int"],
            b"\x02\x02a",
            refused("string", "null, int"),
        ),
        (DOWN, UP, b"\x00", "A"),
        (DOWN, UP, b"\x02", "C"),
        (DOWN, NO_DEFAULT, b"\x02", refused("symbol")),
        (MILLIS, MICROS, b"\x02", datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
        ("long", MILLIS, b"\x02", datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)),
        (MILLIS, "long", b"\x02", 1),
        (MILLIS, NANOS, b"\x02", 1_000_000),
        (NANOS, MILLIS, b"\x02", refused("timestamp-nanos", "timestamp-millis")),
        (CENTS, {**CENTS, "precision": 8}, b"\x02\x01", Decimal("0.01")),
        (
            CENTS,
            {**CENTS, "scale": 3},
            b"\x02\x01",
            refused("scale 2", "scale 3"),
        ),
        (
            {"type": "int", "logicalType": "date"},
            {"type": "int", "logicalType": "time-millis"},
            b"\x02",
            refused("date", "time-millis"),
        ),
        ({"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}, b"\x02", None),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "int"}, b"\x00", []),
        (
            {"type": "array", "items": "string"},
            {"type": "array", "items": "int"},
            b"\x02\x02a\x00",
            refused("string", "int", place="it[]"),
        ),
        (record(("a", "int"), name="x.S"), record(("a", "int"), name="y.S"), b"\x02", {"a": 1}),
        (record(("a", "int"), name="S"), record(("a", "int"), name="T", aliases=["S"]), b"\x02", {"a": 1}),
    ],
)
def test_a_field_of_another_schema(writer: Any, reader: Any, datum: bytes, value: Any) -> None:
    found = decoded(record(("it", writer)), datum, reader=record(("it", reader)))
    if "size" in writer:
        value = refused("fixed F", "fixed F")
    if isinstance(value, re.Pattern):
        assert len(found) == 1 and value.fullmatch(found[0])
    else:
        assert found == [{"it": value}]


def test_fields_that_have_no_column_are_known_by_their_paths() -> None:
    inner = record(("kept", "int"), ("more", "int"), name="Inner")
    smaller = record(("kept", "int"), name="Inner")
    writer = record(
        ("a", "int"),
        ("old", "int"),
        ("one", inner),
        ("some", {"type": "array", "items": ["null", "Inner"]}),
        ("other", {"type": "map", "values": "int"}),
    )
    reader = record(
        ("a", "long"),
        ("new", "int"),
        ("one", ["null", smaller]),
        ("some", ["null", {"type": "array", "items": "Inner"}]),
    )
    reader["fields"][1]["aliases"] = ["old"]
    decoder = decoder_of(reader, {1: writer, 2: reader})
    one = number(1) + number(2)
    datum = number(3) + number(4) + one + number(1) + number(1) + one + number(0) + number(0)
    typed, undecodable = decoder.split(batch_of([frame(1, datum), frame(2, number(1) * 2 + number(0) * 2)]))
    assert undecodable is None
    assert typed["record"].to_pylist()[0] == {"a": 3, "new": 4, "one": {"kept": 1}, "some": [{"kept": 1}]}
    assert decoder.left_out == {1: ["one.more", "some[].more", "other"]}


def test_a_field_without_default_that_was_not_written() -> None:
    reader = record(("a", "int"), ("b", "int"))
    (reason,) = decoded(record(("a", "int")), b"\x02", reader=reader)
    assert re.search(r"\bb\b.*\bdefault\b", reason)


# --- What is no datum ---


@each(
    ("schema", "datum", "reason"),
    [
        ("boolean", b"\x02", refused("boolean")),
        ("int", number(2**31), refused("number", "type")),
        ("long", b"\xff" * 9 + b"\x02", f"it: {TOO_LONG}"),
        ("long", b"\xff" * 20, f"it: {TOO_LONG}"),
        ("long", b"\xff\xff", CUT_SHORT),
        ("double", b"1234567", CUT_SHORT),
        ("string", b"\x04a", CUT_SHORT),
        ("string", b"\x01", refused("length", "0")),
        ("string", b"\x04\xc3\x28", f"it: {NO_TEXT}"),
        ("string", number(2**62), CUT_SHORT),
        ("bytes", b"\x02ab", re.compile(r"1\b.*bytes.*")),
        (["null", "int"], b"\x04", refused("branch", "2")),
        (["null", "int"], b"\x01", refused("branch", "2")),
        (DOWN, b"\x04", refused("enum", "2 symbols")),
        ({"type": "array", "items": "int"}, number(1000) + b"\x00", refused("items", "bytes")),
        (
            {"type": "array", "items": "int"},
            number(-(2**63)) + b"\x00\x00",
            refused("items", "bytes"),
        ),
        ({"type": "array", "items": "int"}, number(-(2**62)) + b"\xff" * 10, f"it: {TOO_LONG}"),
        ({"type": "array", "items": "null"}, number(2**40) + b"\x00", refused("items", "bytes")),
        ({"type": "array", "items": "string"}, b"\x04" + b"\x02ab", CUT_SHORT),
        ({"type": "int", "logicalType": "time-millis"}, number(86_400_000), refused("number", "type")),
        (MILLIS, number(2**62), refused("number", "type")),
        (CENTS, b"\x06\x0f\x42\x40", refused("decimal", "6 digits")),
        (CENTS, b"\x06\xf0\xbd\xc0", refused("decimal", "6 digits")),
        (CENTS, number(20) + b"\x01" * 20, refused("decimal", "6 digits")),
    ],
)
def test_what_is_no_datum_says_why_and_harms_nobody(schema: Any, datum: bytes, reason: str | re.Pattern[str]) -> None:
    pattern = reason if isinstance(reason, re.Pattern) else re.compile(re.escape(reason))
    whole = {"type": "record", "name": "W", "fields": [{"name": "id", "type": "int"}, {"name": "it", "type": schema}]}
    good = {
        "boolean": b"\x01",
        "int": b"\x02",
        "double": b"12345678",
        "array": b"\x00",
        "union": b"\x00",
    }
    kind = "union" if isinstance(schema, list) else schema["type"] if isinstance(schema, dict) else schema
    sound = good.get(kind, b"\x00")
    for rows in (3, 100):
        data = [number(row) + (datum if row % 3 == 1 else sound) for row in range(rows)]
        found = decoded(whole, *data)
        assert [bool(pattern.fullmatch(one)) for one in found if isinstance(one, str)] == [True] * ((rows + 1) // 3)
        assert [one["id"] for one in found if not isinstance(one, str)] == [row for row in range(rows) if row % 3 != 1]


def test_a_long_array_among_short_ones() -> None:
    pairs = {"type": "array", "items": record(("name", "string"), ("n", ["null", "int"]), name="Pair")}
    item = string("ab") + b"\x02\x06"
    data = [number(count) + item * count + b"\x00" if count else b"\x00" for count in (1, 0, 20_000, 3)]
    found = decoded(pairs, *data)
    assert [len(one) for one in found] == [1, 0, 20_000, 3]
    assert all(one == {"name": "ab", "n": 3} for row in found for one in row)
    bad = decoded(pairs, *data, number(20_000) + item * 19_999 + string("ab") + b"\x05\x00")
    assert bad[:4] == found
    assert bad[4].startswith("[].n: ") and "union" in bad[4]


# --- Schemas that have no columns ---


@each(
    "schema",
    [
        "{",
        json.dumps(record(("next", ["null", "R"]))),
        json.dumps(record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 2}, "aa"))),
    ],
)
def test_schemas_without_columns_are_refused_when_planned(schema: str) -> None:
    with pytest.raises(InvalidSchema):
        Decoding("value", schema).typed_schema(batch_of([]).schema)


def test_names_that_double_names_do_not_fill_the_memory() -> None:
    schema: Any = record(("x", "int"), name="R0")
    for level in range(1, 60):
        schema = record(("x", schema), ("y", f"R{level - 1}"), name=f"R{level}")
    with pytest.raises(InvalidSchema, match=r"\d+ types"):
        Decoding("value", json.dumps(schema)).typed_schema(batch_of([]).schema)


def test_a_writer_s_schema_without_columns_is_said_of_each_message() -> None:
    typed, undecodable = decoder_of("int", {1: record(("next", ["null", "R"]))}).split(batch_of([frame(1, b"\x00")]))
    assert typed.num_rows == 0
    assert undecodable is not None
    assert "schema 1" in undecodable["error"][0].as_py()
