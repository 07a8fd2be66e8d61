"""Protocol Buffers as columns, by descriptors that are made here: what is set, what is not, what is damaged."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as some

from klog.protocol.schema_errors import InvalidSchema
from klog.schemas.decoding.decoder import Decoding
from klog.schemas.decoding.protobuf_values import described
from klog.schemas.decoding.row_decoder import NO_SCHEMA, RowDecoder
from tests.rows import each

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "double": Field.TYPE_DOUBLE,
    "float": Field.TYPE_FLOAT,
    "int32": Field.TYPE_INT32,
    "sint64": Field.TYPE_SINT64,
    "uint32": Field.TYPE_UINT32,
    "uint64": Field.TYPE_UINT64,
    "fixed64": Field.TYPE_FIXED64,
    "bool": Field.TYPE_BOOL,
    "string": Field.TYPE_STRING,
    "bytes": Field.TYPE_BYTES,
}


def files() -> descriptor_pb2.FileDescriptorSet:
    """All that there is: scalars, an enum, a oneof, optional and repeated fields, maps, other messages, an import."""
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    file = found.file.add(
        name="visit.proto", package="shop", syntax="proto3", dependency=[timestamp_pb2.DESCRIPTOR.name]
    )
    visit = file.message_type.add(name="Visit")
    for number, (name, kind) in enumerate(SCALARS.items(), 1):
        visit.field.add(name=f"a_{name}", number=number, type=kind, label=Field.LABEL_OPTIONAL)
    visit.enum_type.add(name="Kind").value.add(name="NONE", number=0)
    visit.enum_type[0].value.add(name="LONG", number=7)
    one = {"label": Field.LABEL_OPTIONAL}
    many = {"label": Field.LABEL_REPEATED}
    visit.field.add(name="kind", number=20, type=Field.TYPE_ENUM, type_name=".shop.Visit.Kind", **one)
    visit.field.add(name="at", number=21, type=Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", **one)
    visit.field.add(name="tags", number=22, type=Field.TYPE_STRING, **many)
    visit.field.add(name="pages", number=23, type=Field.TYPE_MESSAGE, type_name=".shop.Page", **many)
    visit.oneof_decl.add(name="who")
    visit.field.add(name="user", number=24, type=Field.TYPE_INT64, oneof_index=0, **one)
    visit.field.add(name="guest", number=25, type=Field.TYPE_STRING, oneof_index=0, **one)
    visit.oneof_decl.add(name="_note")
    visit.field.add(name="note", number=26, type=Field.TYPE_STRING, oneof_index=1, proto3_optional=True, **one)
    entry = visit.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_INT32, **one)
    entry.field.add(name="value", number=2, type=Field.TYPE_MESSAGE, type_name=".shop.Page", **one)
    visit.field.add(name="counts", number=27, type=Field.TYPE_MESSAGE, type_name=".shop.Visit.CountsEntry", **many)
    file.message_type.add(name="Page").field.add(name="url", number=1, type=Field.TYPE_STRING, **one)
    file.message_type.add(name="Empty")
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=Field.TYPE_MESSAGE, type_name=".shop.Node", **one)
    return found


FILES = files().SerializeToString()


def message_class(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in files().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


Visit = message_class("shop.Visit")


def decoder(name: str = "shop.Visit") -> RowDecoder:
    reader, descriptor = described(FILES, name)
    decoding = Decoding("value", reader, form="protobuf", descriptor=descriptor)
    decoding.typed_schema(pa.schema([]))
    return RowDecoder(Decoding.from_json(decoding.as_json()))


def read(*values: bytes | None, name: str = "shop.Visit") -> tuple[list[Any], list[str]]:
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    typed, bad = decoder(name).split(batch)
    typed.validate(full=True)
    return typed.column("record").to_pylist(), [] if bad is None else bad.column("error").to_pylist()


def test_what_is_set_and_what_is_not() -> None:
    empty, full = Visit(), Visit(a_uint64=2**64 - 1, kind=7, note="", user=0, tags=["x", "ü"], a_bytes=b"\xff")
    full.at.FromDatetime(datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC))
    full.at.nanos = 999_999_999
    full.pages.add(url="/a")
    full.counts[-5].url = "/b"
    (nothing, found), errors = read(empty.SerializeToString(), full.SerializeToString())
    assert errors == []
    assert nothing == {
        "a_double": 0.0,
        "a_float": 0.0,
        "a_int32": 0,
        "a_sint64": 0,
        "a_uint32": 0,
        "a_uint64": Decimal(0),
        "a_fixed64": Decimal(0),
        "a_bool": False,
        "a_string": "",
        "a_bytes": b"",
        "kind": "NONE",
        "at": None,
        "tags": [],
        "pages": [],
        "user": None,
        "guest": None,
        "note": None,
        "counts": [],
    }
    assert (found["a_uint64"], found["kind"], found["note"], found["user"], found["guest"]) == (
        Decimal(2**64 - 1),
        "LONG",
        "",
        0,
        None,
    )
    assert found["at"] == {"seconds": 1_772_323_200, "nanos": 999_999_999}
    assert (found["tags"], found["pages"], found["counts"]) == (["x", "ü"], [{"url": "/a"}], [("-5", {"url": "/b"})])
    assert read(b"", None, name="shop.Empty") == ([True, None], [])


def test_a_number_without_a_name_is_kept() -> None:
    ((found,), _) = read(Visit.FromString(b"\xa0\x01\x63").SerializeToString())
    assert found["kind"] == "99"


def test_fields_that_the_descriptor_has_not_are_named() -> None:
    reads = decoder("shop.Page")
    inner = b"\x0a\x02/a\x38\x01"  # url, and field 7
    typed, bad = reads.split(pa.record_batch({"value": pa.array([inner], pa.binary())}))
    assert (typed.column("record").to_pylist(), bad) == ([{"url": "/a"}], None)
    assert reads.left_out == {NO_SCHEMA: ["#7"]}
    reads = decoder()
    reads.split(pa.record_batch({"value": pa.array([b"\xba\x01\x06" + inner], pa.binary())}))
    assert reads.left_out == {NO_SCHEMA: ["pages.*.#7"]}


@each("path", [b"\0", b"\x02\0", b"\x04\x02\x04"])
def test_framing_of_serializers_is_taken_off(path: bytes) -> None:
    value = b"\0\0\0\0\x07" + path + Visit(user=5).SerializeToString()
    typed, bad = decoder().split(pa.record_batch({"value": pa.array([value], pa.binary())}))
    assert bad is None
    ((row,)) = typed.to_pylist()
    assert (row["schema_id"], row["record"]["user"]) == (7, 5)


@each(
    "value",
    [
        b"\x08",
        b"\x0a\x05ab",
        b"\x00\0\0\0\x07",
        b"\x00\0\0\0\x07\xff\xff\xff\xff\xff",
        b"\x00\0\0\0\x07\x01",
        b"\x00",
        b"\xff" * 9,
    ],
)
def test_what_is_not_a_message_is_kept_with_its_reason(value: bytes) -> None:
    records, (error,) = read(value, Visit(user=5).SerializeToString())
    assert [one["user"] for one in records] == [5]
    assert error


@given(some.binary(max_size=60))
def test_no_bytes_break_it(value: bytes) -> None:
    records, errors = read(value)
    assert len(records) + len(errors) == 1


@given(
    some.fixed_dictionaries(
        {},
        optional={
            "a_double": some.floats(allow_nan=False),
            "a_int32": some.integers(-(2**31), 2**31 - 1),
            "a_sint64": some.integers(-(2**63), 2**63 - 1),
            "a_uint64": some.integers(0, 2**64 - 1),
            "a_string": some.text(some.characters(exclude_categories=["Cs"])),
            "a_bytes": some.binary(),
            "tags": some.lists(some.text(some.characters(exclude_categories=["Cs"])), max_size=3),
        },
    )
)
def test_values_come_back(values: dict[str, Any]) -> None:
    ((found,), errors) = read(Visit(**values).SerializeToString())
    assert errors == []
    for name, value in values.items():
        assert found[name] == value or math.isclose(found[name], value)


def test_a_type_has_to_be_named_where_there_are_several() -> None:
    with pytest.raises(InvalidSchema) as several:
        described(FILES, None)
    assert "shop.Page" in str(several.value.hint)
    for data, name in ((FILES, "shop.None"), (b"", None), (b"\xff", None), (b"{}", "x")):
        with pytest.raises(InvalidSchema):
            described(data, name)
    alone = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(alone.file.add())
    assert described(alone.SerializeToString(), None)[1].startswith("google.protobuf.Timestamp:")
    without_import = files()
    del without_import.file[0]
    with pytest.raises(InvalidSchema):
        described(without_import.SerializeToString(), "shop.Visit")
    reader, descriptor = described(FILES, "shop.Node")
    with pytest.raises(InvalidSchema):  # it contains itself
        Decoding("value", reader, form="protobuf", descriptor=descriptor).typed_schema(pa.schema([]))
