"""What fastavro makes of one datum, strictly; random schemas, their evolution and their data, to hold columns against.

fastavro is laxer than Avro's other readers in places, so its decoder is made strict here: a number has at most ten
bytes and 64 bits, an int 32; a boolean is 0 or 1; a length, an index and an enum's number are not below 0. What is
skipped is not looked at as closely as what is read. Its logical types are left out, since Python's dates end where
Avro's do not: the numbers and bytes under them are compared.
"""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Iterator
from decimal import localcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from fastavro import _read_py as _fastavro
from fastavro import parse_schema
from fastavro.io.binary_decoder import BinaryDecoder

from klog.record.records import varint
from klog.schemas.avro import Array, Fixed, Map, Node, Primitive, Record, Union
from klog.schemas.decoding.arrow import logical_of, members_of

WEIGHTLESS_MAX = 1000
_read_py: Any = _fastavro


def batch_of(values: list[bytes | None], column: str = "value") -> pa.RecordBatch:
    """Messages with keys and values, of which one column is given."""
    columns = {
        "key": pa.array([b"k"] * len(values), pa.binary()),
        "value": pa.array([b"v"] * len(values), pa.binary()),
        "offset": pa.array(range(len(values)), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns | {column: pa.array(values, pa.binary())})


class Strict(BinaryDecoder):
    """Raises for what fastavro lets pass."""

    skipping = 0

    def read_boolean(self) -> bool:
        found = self.read_fixed(1)[0]
        if found > 1 and not self.skipping:
            raise ValueError("boolean")
        return bool(found)

    def read_long(self) -> int:
        found = shift = 0
        while True:
            byte = self.read_fixed(1)[0]
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift == 70:
                raise ValueError("long")
        if found >= 2**64:
            raise ValueError("long")
        return (found >> 1) ^ -(found & 1)

    def read_int(self) -> int:
        found = self.read_long()
        if not self.skipping and not -(2**31) <= found < 2**31:
            raise ValueError("int")
        return found

    def read_bytes(self) -> bytes:
        size = self.read_long()
        if size < 0:
            raise ValueError("length")
        return self.read_fixed(size)

    def read_utf8(self, handle_unicode_errors: str = "strict") -> Any:
        found = self.read_bytes()
        return found if self.skipping else found.decode()

    def read_fixed(self, size: int) -> bytes:
        found: bytes = self.fo.read(size)
        if len(found) != size:
            raise EOFError
        return found

    def read_index(self) -> int:
        found = self.read_long()
        if found < 0:
            raise IndexError
        return found

    def read_enum(self) -> int:
        return self.read_long() if self.skipping else self.read_index()

    def read_array_start(self) -> None:
        pass

    read_map_start = read_map_end = read_array_end = read_array_start

    def iter_array(self) -> Iterator[None]:
        weightless = 0
        while count := self.read_long():
            if count < 0:
                count = -count
                self.read_long()
            if count == 2**63:
                raise ValueError("count")
            for _ in range(count):
                before = self.fo.tell()
                yield
                weightless += self.fo.tell() == before
                if weightless > WEIGHTLESS_MAX:
                    raise ValueError("too many")

    iter_map = iter_array


def read(datum: bytes, writer: Any, reader: Any, reader_type: Node) -> Any:
    """The value, by schemas in JSON as `plain` leaves them. Raises anything where the datum has none."""
    named: dict[str, Any] = {"writer": {}, "reader": {}}
    writer = parse_schema(writer, named_schemas=named["writer"])
    reader = parse_schema(reader, named_schemas=named["reader"])
    data = io.BytesIO(datum)
    decoder: Any = Strict
    found = _read_py.read_data(decoder(data), writer, named, reader, {})
    if data.read(1):
        raise ValueError("left")
    check(reader_type, found)
    return found


def be_strict(monkeypatch: Any) -> None:
    """Skipped values are looked at less closely; maps are lists of pairs, so that no value of a doubled key is lost."""
    skip = _read_py.skip_data

    def skip_data(decoder: Strict, *others: Any) -> None:
        decoder.skipping += 1
        skip(decoder, *others)
        decoder.skipping -= 1

    def read_map(decoder: Strict, writer: Any, named: Any, reader: Any, options: Any) -> list[tuple[str, Any]]:
        return [
            (decoder.read_utf8(), _read_py.read_data(decoder, writer["values"], named, reader["values"], options))
            for _ in decoder.iter_map()
        ]

    monkeypatch.setattr(_read_py, "skip_data", skip_data)
    monkeypatch.setitem(_read_py.READERS, "map", read_map)


def plain(schema: Any) -> Any:
    """Without logical types."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    for key in ("type", "items", "values"):
        if key in found:
            found[key] = plain(found[key])
    if "fields" in found:
        found["fields"] = [{**field, "type": plain(field["type"])} for field in found["fields"]]
    return found["type"] if set(found) == {"type"} else found


# --- Values ---


def check(node: Node, value: Any) -> None:
    """ValueError for what a logical type does not have."""
    if value is None:
        return
    logical = logical_of(node)
    name = logical.name if logical else ""
    if logical and name == "decimal" and abs(_number(value)) >= 10**logical.precision:
        raise ValueError("decimal")
    if name.startswith("time-") and not 0 <= value < 86_400 * (1000 if "milli" in name else 10**6):
        raise ValueError("time")
    if name.endswith("timestamp-millis") and abs(value) > (2**63 - 1) // 1000:
        raise ValueError("timestamp")
    match node:
        case Record():
            for field in node.fields:
                check(field.node, value.get(field.name, field.default))
        case Array():
            for one in value:
                check(node.items, one)
        case Map():
            for _, one in _pairs(value):
                check(node.values, one)
        case Union() if len(members := members_of(node)) == 1:
            check(members[0], value)


def same(node: Node, ours: Any, theirs: Any) -> bool:
    """Whether a value as `raw` shows it is what fastavro has read, or a default in JSON."""
    logical = logical_of(node)
    name = logical.name if logical else ""
    match node:
        case Union():
            members = members_of(node)
            if theirs is None or ours is None:
                return ours is theirs
            if len(members) == 1:
                return same(members[0], ours, theirs)
            chosen = [number for number in range(len(members)) if ours[f"member{number}"] is not None]
            return len(chosen) == 1 and same(members[chosen[0]], ours[f"member{chosen[0]}"], theirs)
        case Primitive("bytes") | Fixed():
            theirs = theirs.encode("latin-1") if isinstance(theirs, str) else theirs
            if name == "decimal":
                return bool(ours == _number(theirs))
            if name == "duration":
                return list(ours.values()) == list(struct.unpack("<3I", theirs))
            return bool(ours == (_uuid(theirs) if name == "uuid" else theirs))
        case Primitive("float" | "double"):
            wanted = np.float32(theirs) if node.name == "float" else np.float64(theirs)
            return bool(ours == wanted or (ours != ours and wanted != wanted))
        case Record():
            if not node.fields:
                return ours is True
            return all(
                same(field.node, ours[field.name], theirs.get(field.name, field.default)) for field in node.fields
            )
        case Array():
            return len(ours) == len(theirs) and all(map(same, [node.items] * len(ours), ours, theirs))
        case Map():
            theirs = _pairs(theirs)
            is_like = [key for key, _ in ours] == [key for key, _ in theirs]
            return is_like and all(
                same(node.values, one, other) for (_, one), (_, other) in zip(ours, theirs, strict=True)
            )
    if name.endswith("timestamp-millis"):
        theirs *= 1000
    return bool(ours == theirs) and type(ours) is type(theirs)


def _pairs(value: Any) -> list[tuple[str, Any]]:
    """Of a map that was read, or of a default."""
    return list(value.items()) if isinstance(value, dict) else value


def _number(value: Any) -> int:
    return int.from_bytes(value.encode("latin-1") if isinstance(value, str) else value, "big", signed=True)


def _uuid(value: bytes) -> str:
    digits = value.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def raw(array: pa.Array) -> list[Any]:
    """Python's values, with numbers for times (Python's own end at the year 9999) and unscaled decimals."""
    type_ = array.type
    valid = array.is_valid().to_pylist()
    if pa.types.is_struct(type_):
        columns = {field.name: raw(array.field(number)) for number, field in enumerate(type_)}
        found: list[Any] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    elif pa.types.is_list(type_) or pa.types.is_map(type_):
        if pa.types.is_map(type_):
            items: list[Any] = list(zip(raw(array.keys), raw(array.items), strict=True))
        else:
            items = raw(array.values)
        bounds = array.offsets.to_pylist()
        found = [items[start:end] for start, end in pairwise(bounds)]
    elif pa.types.is_decimal(type_):
        with localcontext(prec=80):
            found = [None if one is None else int(one.scaleb(type_.scale)) for one in array.to_pylist()]
    elif pa.types.is_date32(type_):
        found = array.view(pa.int32()).to_pylist()
    elif pa.types.is_timestamp(type_):
        found = array.view(pa.int64()).to_pylist()
    else:
        found = array.to_pylist()
    return [one if is_valid else None for one, is_valid in zip(found, valid, strict=True)]


# --- Random schemas, their evolution, their data ---

PRIMITIVES: list[Any] = ["boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL: list[Any] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
    {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 10},
]
FIXED: list[Any] = [
    {"size": 0},
    {"size": 5},
    {"size": 16, "logicalType": "uuid"},
    {"size": 12, "logicalType": "duration"},
    {"size": 6, "logicalType": "decimal", "precision": 14, "scale": 3},
    {"size": 20, "logicalType": "decimal", "precision": 38, "scale": 3},
]
PROMOTED = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
PROMOTED |= {"string": ["bytes"], "bytes": ["string"]}
NUMBERS = {"int", "long", "float", "double"}


def fields(**types: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": one} for name, one in types.items()]}


def logical(type_: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": logical_type, **more}


class Schemas:
    """Random schemas in JSON. Names are numbered, so that no two types share one.

    ``is_entangled``: types are named again, also inside themselves, which columns cannot be.
    """

    def __init__(self, dice: random.Random, *, is_entangled: bool = False) -> None:
        self.dice = dice
        self.names = 0
        self.is_entangled = is_entangled
        self.defined: list[str] = []

    def name(self, what: str) -> str:
        self.names += 1
        return f"{what}{self.names}"

    def type_name(self, what: str) -> str:
        self.defined.append(self.name(what))
        return self.defined[-1]

    def record(self, depth: int = 3) -> dict[str, Any]:
        name = self.type_name("space.R")
        fields = [
            {"name": self.name("f"), "type": self.any(depth - 1)} for _ in range(self.dice.choice([0, 1, 2, 3, 5]))
        ]
        return {"type": "record", "name": name, "fields": fields}

    def any(self, depth: int) -> Any:
        if self.is_entangled and self.defined and self.dice.random() < 0.2:
            again = self.dice.choice(self.defined)
            return ["null", again] if self.dice.random() < 0.5 else again
        kind = self.dice.randrange(10 if depth > 0 else 6)
        if kind < 3:
            return self.dice.choice([*PRIMITIVES, "null"])
        if kind == 3:
            return dict(self.dice.choice(LOGICAL))
        if kind == 4:
            return {"type": "fixed", "name": self.type_name("space.F"), **self.dice.choice(FIXED)}
        if kind == 5:
            symbols = [self.name("S") for _ in range(self.dice.randint(1, 4))]
            return {"type": "enum", "name": self.type_name("space.E"), "symbols": symbols}
        if kind == 6:
            return self.record(depth)
        if kind == 7:
            return {"type": "array", "items": self.any(depth - 1)}
        if kind == 8:
            return {"type": "map", "values": self.any(depth - 1)}
        return self.union(depth)

    def union(self, depth: int) -> Any:
        """One number and one text at most: which of two that could hold it a value goes to, is a matter of taste.

        Without logical types where there are several branches: fastavro does not say which one a value is of.
        """
        found: dict[str, Any] = {}
        for _ in range(self.dice.randint(1, 4)):
            before = len(self.defined)
            one = self.dice.choice(["null", self.any(depth - 1)])
            kind = one if isinstance(one, str) else one["type"] if isinstance(one, dict) else "union"
            kind = "number" if kind in NUMBERS else "text" if kind in ("bytes", "string") else kind
            kind = one["name"] if kind in ("record", "enum", "fixed") else kind
            if one == "null" or kind == "union" or kind in found:
                del self.defined[before:]
            if kind != "union":
                found.setdefault(kind, one)
        branches = list(found.values()) or ["null"]
        return plain(branches) if len(branches) > 2 or "null" not in branches else branches

    def evolved(self, schema: Any, *, strange: bool = True, is_branch: bool = False) -> Any:
        """What could read it; with ``strange``, sometimes what could not."""
        dice = self.dice
        if isinstance(schema, list):
            found = [self.evolved(one, strange=False, is_branch=True) for one in schema]
            dice.shuffle(found)
            if dice.random() < 0.3:
                found = found[1:] or found
            if "null" not in found and dice.random() < 0.3:
                found.append("null")
            return found[0] if strange and len(found) == 1 and dice.random() < 0.3 else found
        if dice.random() < 0.15 and not is_branch:
            return dice.choice([["null", schema], [schema, "null"], [schema]]) if schema != "null" else ["null", "int"]
        if strange and dice.random() < 0.03:
            return dice.choice(PRIMITIVES)
        if isinstance(schema, str):
            return dice.choice(PROMOTED[schema]) if schema in PROMOTED and dice.random() < 0.2 else schema
        kind = schema["type"]
        if kind == "array":
            return {"type": "array", "items": self.evolved(schema["items"], strange=False)}
        if kind == "map":
            return {"type": "map", "values": self.evolved(schema["values"], strange=False)}
        if kind == "enum":
            return self._evolved_enum(schema)
        if kind == "record":
            return self._evolved_record(schema, strange)
        return schema["type"] if kind in PRIMITIVES and dice.random() < 0.2 else schema

    def _evolved_enum(self, schema: dict[str, Any]) -> dict[str, Any]:
        symbols = [one for one in schema["symbols"] if self.dice.random() < 0.8]
        symbols += [self.name("S")] * (not symbols or self.dice.random() < 0.3)
        self.dice.shuffle(symbols)
        return {**schema, "symbols": symbols} | ({"default": symbols[0]} if self.dice.random() < 0.5 else {})

    def _evolved_record(self, schema: dict[str, Any], strange: bool) -> dict[str, Any]:
        dice = self.dice
        fields = []
        for field in schema["fields"]:
            fate = dice.random()
            if fate < 0.15:
                continue
            other = {"name": field["name"], "type": self.evolved(field["type"], strange=strange)}
            if fate < 0.3:
                other = {**other, "name": self.name("g"), "aliases": ["other", field["name"]]}
            fields.append(other)
        if dice.random() < 0.4:
            type_, default = dice.choice(DEFAULTS)
            type_ = {**type_, "name": self.name("R")} if "fields" in type_ else type_
            fields.append({"name": self.name("new"), "type": type_, "default": default})
        if strange and dice.random() < 0.02:
            fields.append({"name": self.name("new"), "type": "int"})
        if dice.random() < 0.4:
            dice.shuffle(fields)
        found = {**schema, "fields": fields}
        if dice.random() < 0.1:
            found |= {"name": self.name("space.Q"), "aliases": [schema["name"]]}
        elif dice.random() < 0.1:
            found["name"] = "elsewhere." + schema["name"].rpartition(".")[2]
        return found

    # --- Data ---

    def datum(self, schema: Any) -> bytes:
        dice = self.dice
        if isinstance(schema, list):
            chosen = dice.randrange(len(schema))
            return number(chosen) + self.datum(schema[chosen])
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = "" if isinstance(schema, str) else schema.get("logicalType", "")
        if kind == "null":
            return b""
        if kind == "boolean":
            return bytes([dice.randrange(2)])
        if kind in ("int", "long"):
            if logical.startswith("time-"):
                return number(dice.choice([0, 1, 86_399_999, 86_400_000, 5_000_000]))
            bits = dice.choice([3, 7, 20, 31] if kind == "int" else [3, 7, 20, 31, 40, 63])
            return number(dice.choice([dice.getrandbits(bits), ~dice.getrandbits(bits)]))
        if kind in ("float", "double"):
            return dice.choice([dice.randbytes(8), struct.pack("<d", dice.random())])[: 4 if kind == "float" else 8]
        if kind in ("bytes", "string"):
            size = dice.choice([0, 1, 3, 10, 16, 40])
            data = dice.randbytes(size) if kind == "bytes" else "".join(dice.choices("aé漢🙂", k=size)).encode()
            if logical == "decimal" and data and dice.random() < 0.6:
                data = dice.choice([b"", b"\0" * 20, b"\xff" * 20]) + data[:3]
            return number(len(data)) + data
        if kind == "fixed":
            return dice.randbytes(schema["size"])
        if kind == "enum":
            return number(dice.randrange(len(schema["symbols"])))
        if kind == "record":
            return b"".join(self.datum(field["type"]) for field in schema["fields"])
        return self._blocks(schema)

    def _blocks(self, schema: dict[str, Any]) -> bytes:
        found = b""
        for _ in range(self.dice.choice([0, 1, 1, 1, 2])):
            count = self.dice.choice([1, 2, 3, 7])
            items = b""
            for _ in range(count):
                if "values" in schema:
                    items += self.datum("string")
                items += self.datum(schema.get("items", schema.get("values")))
            found += number(-count) + number(len(items)) if self.dice.random() < 0.3 else number(count)
            found += items
        return found + b"\0"

    def damaged(self, value: bytes) -> bytes | None:
        """Another value for a message: cut, with other bytes, longer, without framing, or none at all."""
        fate = self.dice.randrange(8)
        if fate == 0:
            return value[: self.dice.randrange(len(value) + 1)]
        if fate == 1:
            return value + self.dice.randbytes(self.dice.randint(1, 3))
        if fate == 2:
            return None
        if fate == 3:
            return self.dice.randbytes(self.dice.randrange(12))
        other = bytearray(value)
        for _ in range(self.dice.randint(1, 3)):
            place = self.dice.randrange(len(other))
            other[place] = self.dice.choice(
                [other[place] ^ (1 << self.dice.randrange(8)), self.dice.randrange(256), 255]
            )
        return bytes(other)


DEFAULTS: list[tuple[Any, Any]] = [
    ("int", 7),
    ("string", "x"),
    ("bytes", "\u00ff\u0000"),
    ("double", 1),
    (["null", "string"], None),
    (["int", "string"], 5),
    (["int", "string"], "x"),
    ({"type": "array", "items": "long"}, [1, 2]),
    ({"type": "map", "values": "boolean"}, {"a": True}),
    ({"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "int", "default": 3}]}, {}),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001\u0000"),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1000),
]


number = varint
"""As Avro writes it."""


def text(schema: Any) -> str:
    return json.dumps(schema)
