"""The steps that read the values of one schema as the columns of another: Avro's "Schema Resolution".

`klog.schemas.resolution` says which types and fields match. The decoder skips fields that the reader does not have, and
fills fields that were not written with the reader's default. A symbol that the reader's enum lacks becomes that enum's
default.

Types that do not match are not an error here. They become a step that gives up the messages with such a value and
records why, so the other messages are still decoded. (Avro for Java also fails only when it meets such a value.)

Where both schemas have logical types, a value is converted to the reader's unit if that unit is finer. A date is not a
time, and a decimal keeps its scale. Where only one has a logical type, the number or the bytes are read as the reader
declares them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from klog.protocol.schema_errors import InvalidSchema
from klog.schemas import avro
from klog.schemas.avro import Field, Node, describe, parts_of, type_name
from klog.schemas.decoding.arrow import arrow_type, logical_of, members_of
from klog.schemas.decoding.front import Datums, Front
from klog.schemas.decoding.items import Items, pair
from klog.schemas.decoding.json_values import Unfit
from klog.schemas.decoding.steps import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    Blob,
    Boolean,
    Decimal,
    Duration,
    Enum,
    Member,
    Nothing,
    Number,
    Real,
    Record,
    Refuse,
    Step,
    Union,
    Uuid,
)
from klog.schemas.encoding import default_datum
from klog.schemas.resolution import branch_for, matches, sources_of

_UNITS: Final = {"millis": 1000, "micros": 1_000_000, "nanos": 1_000_000_000}
_DAY_S: Final = 86_400
_COLUMN_UNIT: Final = 1_000_000
"""Timestamps are columns of microseconds, also those of milliseconds."""


_WHOLE: Final = "the datum"
"""In reasons, the path of a value that is not inside a field."""


def plan(writer: Node, reader: Node, where: str = "", left_out: dict[str, None] | None = None) -> Step:
    """The step that reads a value of ``writer`` as a column of ``reader``. ``where``: the field's path, for reasons.

    ``left_out`` gets the paths of the writer's fields that have no column in the reader: the step skips them.
    """
    type_ = arrow_type(reader)
    place = where or _WHOLE
    if isinstance(writer, avro.Union):
        return Union(type_, place, [plan(branch, reader, where, left_out) for branch in writer.branches])
    if isinstance(reader, avro.Union):
        return _into_union(writer, reader, where, left_out)
    if not matches(writer, reader):
        return Refuse(type_, place, f"{describe(writer)} was written, which cannot be read as {describe(reader)}")
    if problem := logical_problem(writer, reader):
        return Refuse(type_, place, problem)
    match writer, reader:
        case _, avro.Primitive("null"):
            return Nothing(type_, place)
        case _, avro.Primitive("boolean"):
            return Boolean(type_, place)
        case avro.Primitive(), avro.Primitive("int" | "long" | "float" | "double"):
            return _number(writer, reader, type_, place)
        case avro.Enum(), avro.Enum():
            return _enum(writer, reader, place)
        case avro.Array(), avro.Array():
            return Items(type_, place, plan(writer.items, reader.items, f"{where}[]", left_out))
        case avro.Map(), avro.Map():
            key = Blob(pa.string(), f"a key of {place}", is_text=True)
            return Items(type_, place, pair(key, plan(writer.values, reader.values, f"{where}[]", left_out)))
        case avro.Record(), avro.Record():
            return _record(writer, reader, type_, where, left_out)
    return _blob(writer, reader, type_, place)


def _into_union(writer: Node, reader: avro.Union, where: str, left_out: dict[str, None] | None) -> Step:
    type_ = arrow_type(reader)
    branch = branch_for(writer, reader)
    if branch is None:
        reason = f"{describe(writer)} was written, which no branch of {describe(reader)} reads"
        return Refuse(type_, where or _WHOLE, reason)
    if type_name(branch) == "null":
        return Nothing(type_, where)
    step = plan(writer, branch, where, left_out)
    members = members_of(reader)
    return step if len(members) == 1 else Member(type_, step, members.index(branch))


# --- Logical types ---


def logical_problem(writer: Node, reader: Node) -> str:
    """Why two logical types do not go together, or ""."""
    written, wanted = logical_of(writer), logical_of(reader)
    if not written or not wanted or written.name == wanted.name == "uuid":
        return ""
    if written.name == wanted.name == "decimal":
        if written.scale == wanted.scale:
            return ""
        return f"a decimal of scale {written.scale} was written, which cannot be read with scale {wanted.scale}"
    (family, unit), (wanted_family, wanted_unit) = _family(written), _family(wanted)
    if family != wanted_family:
        return f"{written.name} was written, which cannot be read as {wanted.name}"
    if unit > wanted_unit:
        return f"{written.name} was written, which {wanted.name} would cut"
    return ""


def _family(logical: avro.Logical) -> tuple[str, int]:
    """What a logical type measures, and how many of its units are in a second."""
    name = logical.name.removeprefix("local-")
    family, _, unit = name.rpartition("-")
    return (family, _UNITS[unit]) if unit in _UNITS else (name, 1)


# --- Primitives ---


def _number(writer: avro.Primitive, reader: avro.Primitive, type_: pa.DataType, where: str) -> Step:
    if reader.name in ("float", "double"):
        wanted = np.float32 if reader.name == "float" else np.float64
        if writer.name in ("float", "double"):
            return Real(type_, where, "<f4" if writer.name == "float" else "<f8", wanted)
    else:
        wanted = np.int32 if reader.name == "int" else np.int64  # type: ignore[assignment]
    low, high = (INT_MIN, INT_MAX) if writer.name == "int" else (LONG_MIN, LONG_MAX)
    factor = 1
    if reader.logical:
        family, unit = _family(reader.logical)
        written = _family(writer.logical)[1] if writer.logical else unit
        factor = max(unit, _COLUMN_UNIT if family == "timestamp" else 0) // written
        if family == "time":  # a day ends
            low, high = max(low, 0), min(high, _DAY_S * unit // factor - 1)
    return Number(type_, where, wanted, low=low, high=high, factor=factor)


def _blob(writer: Node, reader: Node, type_: pa.DataType, where: str) -> Step:
    size = writer.size if isinstance(writer, avro.Fixed) else None
    logical = logical_of(reader)
    if logical and logical.name == "decimal":
        return Decimal(type_, where, size=size)
    if logical and logical.name == "duration":
        return Duration(type_, where, size=size)
    if logical and logical.name == "uuid" and size is not None:
        return Uuid(type_, where, size=size)
    return Blob(type_, where, size=size, is_text="string" in (type_name(writer), type_name(reader)))


def _enum(writer: avro.Enum, reader: avro.Enum, where: str) -> Step:
    places = {symbol: place for place, symbol in enumerate(reader.symbols)}
    other = places.get(reader.default or "", -1)
    return Enum(where, [places.get(symbol, other) for symbol in writer.symbols], reader.symbols)


# --- Records ---


def _record(
    writer: avro.Record, reader: avro.Record, type_: pa.DataType, where: str, left_out: dict[str, None] | None
) -> Step:
    sources = sources_of(writer, reader)
    places = {source.name: place for place, source in enumerate(sources) if source is not None}
    steps: list[tuple[int | None, Step]] = []
    for field in writer.fields:
        path = f"{where}.{field.name}" if where else field.name
        place = places.get(field.name)
        if place is None and left_out is not None:
            left_out[path] = None
        wanted = field.node if place is None else reader.fields[place].node
        steps.append((place, plan(field.node, wanted, path, left_out)))
    defaults: dict[int, pa.Array] = {}
    for place, (field, source) in enumerate(zip(reader.fields, sources, strict=True)):
        if source is not None:
            continue
        if not field.has_default:
            reason = f"the field {field.name} was not written, and the reader's schema has no default for it"
            return Refuse(type_, where or _WHOLE, reason)
        defaults[place] = default_of(field)
    return Record(type_, where or _WHOLE, steps, defaults)


# --- Defaults ---


def check_defaults(reader: Node) -> None:
    """InvalidSchema where a default is not a value of its field's column: it has too many digits, or is too late."""
    if isinstance(reader, avro.Record):
        for field in reader.fields:
            if field.has_default:
                default_of(field)
    for part in parts_of(reader):
        check_defaults(part)


def default_of(field: Field) -> pa.Array:
    """An array of the one value: as it is read where it was written."""
    found = None
    with suppress(Unfit):
        datums = Datums(np.frombuffer(default_datum(field), np.uint8), 1)
        front = Front(datums, np.array([0]), np.array([0]), np.array([datums.sink]))
        found = plan(field.node, field.node).read(front)
        front.finish()
    if found is None or datums.failed.any():
        raise InvalidSchema(f"the default of field {field.name} is not a {describe(field.node)}: {field.default!r}")
    return found
