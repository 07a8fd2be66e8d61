"""Avro schemas as trees, and the Arrow types that their values have.

    null                    bool, always null: there is no type of nothing in ORC
    boolean, int, long      bool, int32, int64
    float, double           float32, float64
    bytes, fixed            binary
    string, enum            string
    uuid                    string; of fixed(16) in its text form
    date                    date32
    time-millis, -micros    int32, int64: the milliseconds or microseconds since midnight
    timestamp-millis,       timestamp[us], in UTC; the local ones without a zone
      -micros
    timestamp-nanos         int64: the nanoseconds
    decimal                 decimal128; binary beyond 38 digits
    duration                struct of months, days, milliseconds (int64)
    record                  struct; one without fields is a bool, true where the record is
    array, map              list; map with string keys
    union with null         the other branch's type: each column can hold nulls
    union of several        struct of member0, member1 ... without null, of which one is set (as Spark's Avro source)

These are types that Spark reads in every format of an export: a file with a column that it has no type for (a time, a
nanosecond, 39 digits) it does not read at all. A logical type that does not fit what it stands on is ignored, as the
Avro specification wants ("Logical Types").
A type that holds itself has no column type: InvalidSchema.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from klog.protocol.schema_errors import InvalidSchema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
DEPTH_MAX: Final = 100
"""Of types inside types, as in the registry."""
NODES_MAX: Final = 20_000
"""Of a schema whose named types are written out where they are used: names that double names would fill the memory."""

SIZE_MAX: Final = 2**31 - 1
"""Of a fixed."""
DURATION_BYTES: Final = 12
UUID_BYTES: Final = 16
DECIMAL_DIGITS_MAX: Final = 38

_LOGICAL_ON: Final = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
}


@dataclass(frozen=True)
class Field:
    """Of a record. ``default`` is JSON, of the first branch where the type is a union; read it where there is one."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    has_default: bool
    default: Any


@dataclass(frozen=True)
class AvroType:
    """One type. Which attributes mean something depends on ``kind``: a primitive's name, or a complex type's.

    ``name`` and ``aliases`` are full names. ``parts``: the item of an array, the value of a map, the branches of a
    union. ``logical`` is "" where there is none, or it does not fit.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    parts: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind == "union":
            return "union of " + ", ".join(map(str, self.parts))
        if self.kind in ("array", "map"):
            return f"{self.kind} of {self.parts[0]}"
        return f"{self.kind} {self.name}" if self.name else self.logical or self.kind


def parse(text: str) -> AvroType:
    """The type that a schema's JSON text describes. InvalidSchema for what is none, or has no columns."""
    try:
        found = _Parser().type(json.loads(text), "")
    except ValueError as error:
        raise InvalidSchema(f"the schema is no JSON: {error}") from None
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None
    _check_size(found)
    return found


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}  # None while the type is being read

    def type(self, schema: Any, namespace: str) -> AvroType:
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if not isinstance(schema, dict):
            raise InvalidSchema(f"no type of Avro: {_shown(schema)}")
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            return self.type(kind, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, kind, namespace)
        if kind == "array":
            return AvroType("array", parts=(self.type(_member(schema, "items"), namespace),))
        if kind == "map":
            return AvroType("map", parts=(self.type(_member(schema, "values"), namespace),))
        if kind in PRIMITIVES:
            return AvroType(kind, **_logical(schema, kind, 0))
        return self.type(_member(schema, "type"), namespace)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for full in {_full_name(name, namespace): 0, name: 0}:
            if full in self._named:
                if (found := self._named[full]) is None:
                    raise InvalidSchema(
                        f"the type {full} holds itself, and columns cannot",
                        hint="export such messages undecoded: leave --decode out",
                    )
                return found
        raise InvalidSchema(f"the schema names a type that it does not define: {name}")

    def _union(self, branches: list[Any], namespace: str) -> AvroType:
        found = tuple(self.type(branch, namespace) for branch in branches)
        if not found or any(one.kind == "union" for one in found):
            raise InvalidSchema("a union needs branches, none of which is a union")
        names = [one.name or one.kind for one in found]
        if len(set(names)) < len(names):
            raise InvalidSchema(f"a union with two branches of one type: {', '.join(names)}")
        return AvroType("union", parts=found)

    def _definition(self, schema: dict[str, Any], kind: str, namespace: str) -> AvroType:
        name = _name(_member(schema, "name"))
        own = schema.get("namespace")
        full = _full_name(name, namespace if own is None else own and _name(own))
        inside = full.rpartition(".")[0]
        if full in self._named:
            raise InvalidSchema(f"the schema defines {full} twice")
        aliases = tuple(_full_name(alias, inside) for alias in _aliases(schema))
        self._named[full] = None
        if kind == "enum":
            symbols = tuple(map(_name, _list(schema, "symbols")))
            default = schema.get("default")
            if default is not None and default not in symbols:
                raise InvalidSchema(f"enum {full} has the default {default}, which is no symbol of it")
            found = AvroType("enum", full, aliases, symbols=symbols, default_symbol=default)
        elif kind == "fixed":
            size = _member(schema, "size")
            if not isinstance(size, int) or not 0 <= size <= SIZE_MAX:
                raise InvalidSchema(f"fixed {full} has the size {_shown(size)}")
            found = AvroType("fixed", full, aliases, size=size, **_logical(schema, kind, size))
        else:
            fields = tuple(self._field(field, inside, full) for field in _list(schema, "fields"))
            names = [field.name for field in fields]
            if len(set(names)) < len(names):
                raise InvalidSchema(f"record {full} has two fields of one name")
            found = AvroType("record", full, aliases, fields=fields)
        self._named[full] = found
        return found

    def _field(self, field: Any, namespace: str, record: str) -> Field:
        if not isinstance(field, dict):
            raise InvalidSchema(f"record {record} has a field that is {_shown(field)}")
        return Field(
            _name(_member(field, "name")),
            _aliases(field),
            self.type(_member(field, "type"), namespace),
            "default" in field,
            field.get("default"),
        )


def _logical(schema: dict[str, Any], kind: str, size: int) -> dict[str, Any]:
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        return {}
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        digits_max = _digits(size) if kind == "fixed" else DECIMAL_DIGITS_MAX
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
            return {}
        fits = 0 < precision <= min(digits_max, DECIMAL_DIGITS_MAX)
        return {"logical": logical, "precision": precision, "scale": scale} if fits else {}
    fits = (
        _LOGICAL_ON.get(logical) == kind
        or (logical == "uuid" and (kind == "string" or (kind == "fixed" and size == UUID_BYTES)))
        or (logical == "duration" and kind == "fixed" and size == DURATION_BYTES)
    )
    return {"logical": logical} if fits else {}


def _digits(size: int) -> int:
    """That fit into a two's complement number of so many bytes."""
    return int((8 * size - 1) * math.log10(2)) if size else 0


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _name(name: Any) -> str:
    """Which other letters than ASCII's a name has is not looked at; but it has to be a text, also for Arrow."""
    try:
        if isinstance(name, str) and name.encode():
            return name
    except UnicodeEncodeError:
        pass
    raise InvalidSchema(f"no name: {_shown(name)}")


def _aliases(schema: dict[str, Any]) -> tuple[str, ...]:
    """An empty one names nothing, and is let pass as the registry lets it."""
    listed = _list(schema, "aliases") if schema.get("aliases") is not None else []
    return tuple(_name(alias) for alias in listed if alias != "")


def _member(schema: dict[str, Any], member: str) -> Any:
    if member not in schema:
        raise InvalidSchema(f"{_shown(schema)} has no {member!r}")
    return schema[member]


def _list(schema: dict[str, Any], member: str) -> list[Any]:
    found = _member(schema, member)
    if not isinstance(found, list):
        raise InvalidSchema(f"{_shown(schema)}: {member!r} is no list")
    return found


def _shown(schema: Any) -> str:
    text = json.dumps(schema)
    return text if len(text) <= 80 else text[:77] + "..."


def _check_size(found: AvroType) -> None:
    sizes: dict[int, int] = {}

    def nodes(one: AvroType, depth: int) -> int:
        if depth > DEPTH_MAX:
            raise InvalidSchema("the schema is nested too deep")
        if id(one) not in sizes:
            parts = [field.type for field in one.fields] + list(one.parts)
            sizes[id(one)] = 1 + sum(nodes(part, depth + 1) for part in parts)
        return sizes[id(one)]

    if (count := nodes(found, 1)) > NODES_MAX:
        raise InvalidSchema(f"the schema has {count} types when it is written out, more than {NODES_MAX}")


# --- Arrow ---

DURATION: Final = pa.struct([("months", pa.int64()), ("days", pa.int64()), ("milliseconds", pa.int64())])

_ARROW: Final[dict[str, pa.DataType]] = {
    "null": pa.bool_(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "uuid": pa.string(),
    "date": pa.date32(),
    "time-millis": pa.int32(),
    "time-micros": pa.int64(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.int64(),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.int64(),
    "duration": DURATION,
}


def arrow_type(avro: AvroType) -> pa.DataType:
    """What a column of these values is."""
    if avro.logical == "decimal":
        return pa.decimal128(avro.precision, avro.scale)
    if avro.kind == "record":
        if not avro.fields:
            return pa.bool_()
        return pa.struct([(field.name, arrow_type(field.type)) for field in avro.fields])
    if avro.kind == "array":
        return pa.list_(pa.field("element", arrow_type(avro.parts[0])))
    if avro.kind == "map":
        return pa.map_(pa.string(), arrow_type(avro.parts[0]))
    if avro.kind == "union":
        members = members_of(avro)
        if len(members) <= 1:
            return arrow_type(members[0]) if members else _ARROW["null"]
        return pa.struct([(f"member{number}", arrow_type(member)) for number, member in enumerate(members)])
    return _ARROW[avro.logical or avro.kind]


def members_of(union: AvroType) -> list[AvroType]:
    """The branches that have columns: all but null."""
    return [branch for branch in union.parts if branch.kind != "null"]
