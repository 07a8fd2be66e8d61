"""JSON values as Avro data (Avro 1.12, "Binary Encoding"), for messages that are written one at a time.

The JSON is what `klog tail --schema` shows: that of `klog.schemas.decoding.json_values`, and in addition

    bytes, fixed     a text in base64
    duration         an object of months, days and milliseconds
    union            the value of a branch, the first that fits; also an object that names the branch, as in Avro's
                     JSON ({"string": "x"}), or that has all members ({"member0": "x", "member1": null})

A field that a record lacks has the schema's default, else null where that is allowed. Unlike the decoder of JSON, which
reads what others wrote, this is exact: a string is a text, and a field that the schema does not have is an error.
"""

from __future__ import annotations

import binascii
import struct
import uuid
from base64 import b64decode
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any, Final

from klog.record.avro_framing import frame
from klog.record.records import varint
from klog.schemas.avro import Array, Enum, Field, Fixed, Map, Node, Primitive, Record, Union, describe, fits, type_name
from klog.schemas.decoding.arrow import logical_of
from klog.schemas.decoding.json_values import (
    READERS,
    Unfit,
    decimal_reader,
    enum_reader,
    json_parser,
    may_be_missing,
    not_a,
)
from klog.schemas.parsing import parse

Write = Callable[[Any, bytearray], None]
"""Appends a value's datum. Unfit where the value is not of the type; what was appended then has no meaning."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DURATION: Final = ("months", "days", "milliseconds")
_MICROS_PER_MILLI: Final = 1_000


class Encoder:
    """Encodes values of one schema, framed by its id. Used by one thread."""

    def __init__(self, schema_id: int, text: str) -> None:
        """InvalidSchema."""
        self.schema_id = schema_id
        self._write = _Writers().of(parse(text).node)

    def framed(self, value: Any) -> bytes:
        """The message of JSON that `parse_json` has parsed. Unfit, with the path of what does not fit."""
        out = bytearray()
        try:
            self._write(value, out)
        except RecursionError:
            raise Unfit("nested too deeply") from None
        return frame(self.schema_id, bytes(out))


parse_json = json_parser(Decimal)


class _Writers:
    """Makes the function of each type. With ``of_defaults``, for the JSON of defaults, which has logical types as the
    types below them, and bytes as characters."""

    def __init__(self, *, of_defaults: bool = False) -> None:
        self._of_defaults = of_defaults
        self._records: dict[int, Write] = {}

    def of(self, node: Node) -> Write:
        match node:
            case Record():
                return self._records.get(id(node)) or self._record(node)
            case Array():
                return _array(self.of(node.items))
            case Map():
                return _map(self.of(node.values))
            case Union():
                return self._union(node)
            case Enum():
                return _enum(node)
            case Fixed():
                return self._fixed(node)
            case Primitive():
                return self._primitive(node)

    def _record(self, node: Record) -> Write:
        writers: dict[str, Write] = {}

        def write(value: Any, out: bytearray) -> None:
            if value is True and not writers:
                return  # as the decoder shows a record without fields
            if type(value) is not dict:
                raise not_a("an object", value)
            unknown = next((name for name in value if name not in writers), None)
            if unknown is not None and not self._of_defaults:
                raise Unfit(f"the schema has no field {unknown}; it has {', '.join(writers) or 'none'}")
            for name, one in writers.items():
                try:
                    one(value.get(name, _MISSING), out)
                except Unfit as unfit:
                    if value.get(name, _MISSING) is not _MISSING:
                        unfit.where.append(name)
                    raise

        self._records[id(node)] = write  # before its fields, which may be of this very type
        writers.update({one.name: self._field(one) for one in node.fields})
        return write

    def _field(self, field: Field) -> Write:
        given = self.of(field.node)
        default: bytes | None = None

        def write(value: Any, out: bytearray) -> None:
            nonlocal default
            if value is not _MISSING:
                given(value, out)
                return
            if not may_be_missing(field):
                raise Unfit(f"the field {field.name} is missing, and the schema has no default for it")
            if default is None:
                default = default_datum(field)
            out += default

        return write

    def _union(self, node: Union) -> Write:
        branches = [_Branch(number, one, self.of(one)) for number, one in enumerate(node.branches)]
        members = [one for one in branches if one.name != "null"]
        shown = {f"member{number}": one for number, one in enumerate(members)}

        def write(value: Any, out: bytearray) -> None:
            if type(value) is dict and len(members) > 1 and value.keys() == shown.keys():
                given = [name for name, one in value.items() if one is not None]
                if len(given) == 1:
                    shown[given[0]].write(value[given[0]], out)
                    return
            start = len(out)
            unfit: dict[str, Unfit] = {}
            for branch in branches:
                if self._of_defaults and not fits(branch.node, value):
                    continue
                try:
                    branch.write(value, out)
                    return
                except Unfit as error:
                    del out[start:]
                    unfit[branch.name] = error
            if type(value) is dict and len(value) == 1:
                (name,) = value
                named = next((one for one in members if one.name == name), None)
                if named is not None:
                    named.write(value[name], out)
                    return
            if len(members) == 1 and value is not None:
                raise unfit[members[0].name]  # it names the place inside
            raise not_a(describe(node), value)

        return write

    def _fixed(self, node: Fixed) -> Write:
        logical = None if self._of_defaults else logical_of(node)
        match logical.name if logical else "":
            case "decimal":
                assert logical is not None
                read = decimal_reader(logical.precision, logical.scale)
                return lambda value, out: out.extend(_unscaled(read(value)).to_bytes(node.size, "big", signed=True))
            case "uuid":
                return lambda value, out: out.extend(_uuid(value).bytes)
            case "duration":
                return _duration
        of_text = self._bytes_of

        def write(value: Any, out: bytearray) -> None:
            data = of_text(value)
            if len(data) != node.size:
                raise Unfit(f"expected {node.size} bytes, found {len(data)}")
            out += data

        return write

    def _primitive(self, node: Primitive) -> Write:
        logical = None if self._of_defaults else logical_of(node)
        name = logical.name if logical else node.name
        if name == "decimal":
            assert logical is not None
            return _decimal(decimal_reader(logical.precision, logical.scale))
        if name == "bytes":
            of_text = self._bytes_of
            return lambda value, out: _blob(of_text(value), out)
        if name in ("string", "uuid"):
            return _string
        read, packed = READERS[name], _PACKED.get(name, varint)
        return lambda value, out: out.extend(packed(read(value)))

    def _bytes_of(self, value: Any) -> bytes:
        if type(value) is not str:
            raise not_a("a text", value)
        if self._of_defaults:
            return value.encode("latin-1")
        try:
            return b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise not_a("bytes in base64", value) from None


def default_datum(field: Field) -> bytes:
    """What a field's default is where it is written. Unfit."""
    made = bytearray()
    _Writers(of_defaults=True).of(field.node)(field.default, made)
    return bytes(made)


_MISSING: Final = object()
"""In place of a field's value."""


class _Branch:
    """One type of a union."""

    def __init__(self, number: int, node: Node, write: Write) -> None:
        self.node = node
        self.name = type_name(node)
        self._number = varint(number)
        self._write = write

    def write(self, value: Any, out: bytearray) -> None:
        out += self._number
        self._write(value, out)


def _array(item: Write) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if type(value) is not list:
            raise not_a("an array", value)
        if value:
            out += varint(len(value))
        for number, one in enumerate(value):
            try:
                item(one, out)
            except Unfit as unfit:
                unfit.where.append(str(number))
                raise
        out.append(0)

    return write


def _map(item: Write) -> Write:
    def write(value: Any, out: bytearray) -> None:
        if type(value) is not dict:
            raise not_a("an object", value)
        if value:
            out += varint(len(value))
        for name, one in value.items():
            _string(name, out)
            try:
                item(one, out)
            except Unfit as unfit:
                unfit.where.append(name)
                raise
        out.append(0)

    return write


def _enum(node: Enum) -> Write:
    read, numbers = enum_reader(node), {one: number for number, one in enumerate(node.symbols)}
    return lambda value, out: out.extend(varint(numbers[read(value)]))


def _string(value: Any, out: bytearray) -> None:
    if type(value) is not str:
        raise not_a("a text", value)
    _blob(READERS["string"](value).encode(), out)


def _blob(data: bytes, out: bytearray) -> None:
    out += varint(len(data))
    out += data


def _decimal(read: Callable[[Any], Decimal]) -> Write:
    def write(value: Any, out: bytearray) -> None:
        number = _unscaled(read(value))
        _blob(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True), out)

    return write


def _unscaled(number: Decimal) -> int:
    sign, digits, _ = number.as_tuple()
    found = int("".join(map(str, digits)))
    return -found if sign else found


def _uuid(value: Any) -> uuid.UUID:
    try:
        return uuid.UUID(value)
    except (AttributeError, TypeError, ValueError):
        raise not_a("a UUID", value) from None


def _millis(micros: int) -> bytes:
    if micros % _MICROS_PER_MILLI:
        raise Unfit(f"expected a time in milliseconds, found one {micros % _MICROS_PER_MILLI} microseconds off")
    return varint(micros // _MICROS_PER_MILLI)


_PACKED: Final[dict[str, Callable[[Any], bytes]]] = {
    "null": lambda value: b"",
    "boolean": lambda value: bytes([value]),
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "date": lambda value: varint(value.toordinal() - _EPOCH_DAY),
    "timestamp-millis": _millis,
    "local-timestamp-millis": _millis,
}
"""The datums of primitive types, of what `READERS` make of JSON; of others `varint`."""


def _duration(value: Any, out: bytearray) -> None:
    parts = [value.get(name) for name in _DURATION] if type(value) is dict and len(value) == len(_DURATION) else []
    if not parts or not all(type(one) is int and 0 <= one < 2**32 for one in parts):
        raise not_a("an object of months, days and milliseconds", value)
    out += struct.pack("<3I", *parts)
