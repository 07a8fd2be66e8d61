"""The steps that read what one schema wrote as the columns of another: Avro's "Schema Resolution".

Fields are matched by name, then by the reader's aliases; what the reader does not know is skipped, and what the writer
did not have is the reader's default. Numbers grow (int, long, float, double), strings and bytes stand for each other.
A symbol that the reader's enum lacks is that enum's default. A branch of a union goes to the reader's branch that is
the same, else to the first that it can be read as.

What cannot be resolved is no error here: it becomes a step that gives up the messages which have such a value, and says
why, so that the others are decoded. (As in Avro for Java, where it fails when such a value is met.)

Where both schemas have logical types, units are brought to the reader's if it counts finer; a date is no time, and a
decimal keeps its scale. Where only one has, the number or the bytes are taken for what the reader says.
"""

from __future__ import annotations

from decimal import Decimal as Exact
from decimal import localcontext
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from klog.protocol.schema_errors import InvalidSchema
from klog.spark.avro.items import Items, pair
from klog.spark.avro.steps import (
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
from klog.spark.avro.types import AvroType, Field, arrow_type, members_of

_PROMOTED: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_UNITS: Final = {"millis": 1000, "micros": 1_000_000, "nanos": 1_000_000_000}
_DAY_S: Final = 86_400
_COLUMN_UNIT: Final = 1_000_000
"""Timestamps are columns of microseconds, also those of milliseconds."""


def plan(writer: AvroType, reader: AvroType, where: str = "") -> Step:
    """The step that reads a value of ``writer`` as a column of ``reader``. ``where``: the field's path, for reasons."""
    type_ = arrow_type(reader)
    if writer.kind == "union":
        return Union(type_, where or "the datum", [plan(branch, reader, where) for branch in writer.parts])
    if reader.kind == "union":
        return _into_union(writer, reader, where)
    place = where or "the datum"
    if not _is_same(writer, reader) and not _is_like(writer, reader):
        return Refuse(type_, place, f"{writer} was written, which cannot be read as {reader}")
    if trouble := _logical_trouble(writer, reader):
        return Refuse(type_, place, trouble)
    if reader.kind == "null":
        return Nothing(type_, place)
    if reader.kind == "boolean":
        return Boolean(type_, place)
    if reader.kind in ("int", "long", "float", "double"):
        return _number(writer, reader, type_, place)
    if reader.kind in ("bytes", "string", "fixed"):
        return _blob(writer, reader, type_, place)
    if reader.kind == "enum":
        return _enum(writer, reader, place)
    if reader.kind == "array":
        return Items(type_, place, plan(writer.parts[0], reader.parts[0], f"{where}[]"))
    if reader.kind == "map":
        key = Blob(pa.string(), f"a key of {place}", is_text=True)
        return Items(type_, place, pair(key, plan(writer.parts[0], reader.parts[0], f"{where}[]")))
    return _record(writer, reader, type_, where)


# --- What matches ---


def _is_same(writer: AvroType, reader: AvroType) -> bool:
    """The same type, one level deep: of named ones the full name."""
    return writer.kind == reader.kind and writer.name == reader.name and writer.size == reader.size


def _is_like(writer: AvroType, reader: AvroType) -> bool:
    """What the reader can take for its own: promotions, names without their namespaces, aliases."""
    if reader.kind in _PROMOTED.get(writer.kind, ()):
        return True
    if writer.kind != reader.kind or writer.size != reader.size:
        return False
    if not writer.name:
        return True
    return writer.name in reader.aliases or _last(writer.name) == _last(reader.name)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _into_union(writer: AvroType, reader: AvroType, where: str) -> Step:
    type_ = arrow_type(reader)
    for matches in (_is_same, _is_like):
        for branch in reader.parts:
            if not matches(writer, branch):
                continue
            if branch.kind == "null":
                return Nothing(type_, where)
            step = plan(writer, branch, where)
            members = members_of(reader)
            return step if len(members) == 1 else Member(type_, step, members.index(branch))
    return Refuse(type_, where or "the datum", f"{writer} was written, which is no branch of {reader}")


def _logical_trouble(writer: AvroType, reader: AvroType) -> str:
    """Why two logical types do not go together, or ""."""
    if not writer.logical or not reader.logical or writer.logical == reader.logical == "uuid":
        return ""
    if writer.logical == reader.logical == "decimal":
        if writer.scale == reader.scale:
            return ""
        return f"a decimal of scale {writer.scale} was written, which cannot be read with scale {reader.scale}"
    (family, unit), (wanted, wanted_unit) = _family(writer), _family(reader)
    if family != wanted:
        return f"{writer} was written, which cannot be read as {reader}"
    if unit > wanted_unit:
        return f"{writer} was written, which {reader} would cut"
    return ""


def _family(one: AvroType) -> tuple[str, int]:
    """What a logical type tells, and in how many parts of a second."""
    name = one.logical.removeprefix("local-")
    family, _, unit = name.rpartition("-")
    return (family, _UNITS[unit]) if unit in _UNITS else (name, 1)


# --- Primitives ---


def _number(writer: AvroType, reader: AvroType, type_: pa.DataType, where: str) -> Step:
    if reader.kind in ("float", "double"):
        wanted = np.float32 if reader.kind == "float" else np.float64
        if writer.kind in ("float", "double"):
            return Real(type_, where, "<f4" if writer.kind == "float" else "<f8", wanted)
    else:
        wanted = np.int32 if reader.kind == "int" else np.int64  # type: ignore[assignment]
    low, high = (INT_MIN, INT_MAX) if writer.kind == "int" else (LONG_MIN, LONG_MAX)
    factor = 1
    family, unit = _family(reader)
    if reader.logical:
        written = _family(writer)[1] if writer.logical else unit
        factor = max(unit, _COLUMN_UNIT if family == "timestamp" else 0) // written
    if family == "time":  # behind the last moment of a day there is none
        low, high = max(low, 0), min(high, _DAY_S * unit // factor - 1)
    return Number(type_, where, wanted, low=low, high=high, factor=factor)


def _blob(writer: AvroType, reader: AvroType, type_: pa.DataType, where: str) -> Step:
    size = writer.size if writer.kind == "fixed" else None
    if reader.logical == "decimal":
        return Decimal(type_, where, size=size)
    if reader.logical == "duration":
        return Duration(type_, where, size=size)
    if reader.logical == "uuid" and size is not None:
        return Uuid(type_, where, size=size)
    return Blob(type_, where, size=size, is_text="string" in (writer.kind, reader.kind))


def _enum(writer: AvroType, reader: AvroType, where: str) -> Step:
    places = {symbol: place for place, symbol in enumerate(reader.symbols)}
    other = places.get(reader.default_symbol or "", -1)
    return Enum(where, [places.get(symbol, other) for symbol in writer.symbols], reader.symbols)


# --- Records ---


def _record(writer: AvroType, reader: AvroType, type_: pa.DataType, where: str) -> Step:
    chosen = _fields_by_name(writer, reader)
    steps: list[tuple[int | None, Step]] = []
    for field in writer.fields:
        path = f"{where}.{field.name}" if where else field.name
        place = chosen.get(field.name)
        wanted = field.type if place is None else reader.fields[place].type
        steps.append((place, plan(field.type, wanted, path)))
    defaults: dict[int, pa.Array] = {}
    for place, field in enumerate(reader.fields):
        if place in chosen.values():
            continue
        if not field.has_default:
            reason = f"the field {field.name} was not written, and the reader's schema has no default for it"
            return Refuse(type_, where or "the datum", reason)
        defaults[place] = default_of(field)
    return Record(type_, where or "the datum", steps, defaults)


def _fields_by_name(writer: AvroType, reader: AvroType) -> dict[str, int]:
    """Of the writer's fields that the reader wants, their places there."""
    written = {field.name for field in writer.fields}
    chosen = {field.name: place for place, field in enumerate(reader.fields) if field.name in written}
    for place, field in enumerate(reader.fields):
        if field.name not in written:
            for alias in field.aliases:
                if alias in written and alias not in chosen:
                    chosen[alias] = place
                    break
    return chosen


def left_out(writer: AvroType, reader: AvroType, where: str = "") -> list[str]:
    """The writer's fields, by their paths, for which the reader has no column: `plan` skips them."""
    if writer.kind == "union":
        found = [path for branch in writer.parts for path in left_out(branch, reader, where)]
        return list(dict.fromkeys(found))
    if reader.kind == "union":
        for matches in (_is_same, _is_like):
            for branch in reader.parts:
                if matches(writer, branch):
                    return left_out(writer, branch, where)
        return []
    if writer.kind != reader.kind:
        return []
    if writer.kind in ("array", "map"):
        return left_out(writer.parts[0], reader.parts[0], f"{where}[]")
    chosen = _fields_by_name(writer, reader)
    found = []
    for field in writer.fields:
        path = f"{where}.{field.name}" if where else field.name
        place = chosen.get(field.name)
        found += [path] if place is None else left_out(field.type, reader.fields[place].type, path)
    return found


# --- Defaults ---


def check_defaults(reader: AvroType, where: str = "") -> None:
    """InvalidSchema where a default is no value of its field."""
    for field in reader.fields:
        if field.has_default:
            default_of(field)
    for part in [field.type for field in reader.fields] + list(reader.parts):
        check_defaults(part)


def default_of(field: Field) -> pa.Array:
    """An array of the one value."""
    try:
        return pa.array([_value(field.type, field.default)], arrow_type(field.type))
    except (_NoValue, pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError):
        raise InvalidSchema(f"the default of field {field.name} is no {field.type}: {field.default!r}") from None


class _NoValue(Exception):
    """JSON that is no value of the type."""


def _value(avro: AvroType, default: Any) -> Any:
    """A default in JSON as what pyarrow makes a value of. Bytes stand as text, a character each."""
    kind = avro.kind
    if kind == "union":
        return _union_value(avro, default)
    _require(isinstance(default, _JSON[kind]) and (kind == "boolean" or not isinstance(default, bool)))
    if kind == "enum":
        _require(default in avro.symbols)
    elif kind in ("bytes", "fixed"):
        data = default.encode("latin-1")
        _require(kind == "bytes" or len(data) == avro.size)
        return _bytes_value(avro, data)
    elif kind in ("float", "double"):
        return float(default)
    elif avro.logical.endswith("timestamp-millis"):
        return default * 1000
    elif kind == "array":
        return [_value(avro.parts[0], one) for one in default]
    elif kind == "map":
        return [(key, _value(avro.parts[0], one)) for key, one in default.items()]
    elif kind == "record":
        if not avro.fields:
            return True
        found = {}
        for field in avro.fields:
            _require(field.name in default or field.has_default)
            found[field.name] = _value(field.type, default.get(field.name, field.default))
        return found
    return default


_JSON: Final[dict[str, type | tuple[type, ...]]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float, str),
    "double": (int, float, str),
    "bytes": str,
    "fixed": str,
    "string": str,
    "enum": str,
    "array": list,
    "map": dict,
    "record": dict,
}


def _union_value(avro: AvroType, default: Any) -> Any:
    """Of the first branch that has such a value; older schemas want it to be the first of all."""
    members = members_of(avro)
    for branch in avro.parts:
        try:
            found = _value(branch, default)
        except (_NoValue, ValueError):
            continue
        return found if branch.kind == "null" or len(members) == 1 else {f"member{members.index(branch)}": found}
    raise _NoValue


def _bytes_value(avro: AvroType, data: bytes) -> Any:
    if avro.logical == "decimal":
        with localcontext(prec=avro.precision + 1):
            return Exact(int.from_bytes(data, "big", signed=True)).scaleb(-avro.scale)
    if avro.logical == "duration":
        names = ("months", "days", "milliseconds")
        return {name: int.from_bytes(data[4 * i : 4 * i + 4], "little") for i, name in enumerate(names)}
    return str(UUID(bytes=data)) if avro.logical == "uuid" else data


def _require(holds: bool) -> None:
    if not holds:
        raise _NoValue
