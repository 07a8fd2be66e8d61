"""JSON values as values of an Avro schema's types, in the form from which pyarrow makes columns.

docs/pipeline.md, "JSON", lists what each type takes. A field of a record that a message lacks has the schema's default,
else null where that is allowed. A name that is twice in one object, NaN and Infinity make a message undecodable. bytes,
fixed and duration have no form in JSON: InvalidSchema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

from klog.protocol.schema_errors import InvalidSchema
from klog.schemas import avro
from klog.schemas.avro import Node, describe
from klog.schemas.decoding.arrow import logical_of, members_of

SHOWN_CHARS: Final = 40
LEFT_OUT_MAX: Final = 200
"""Names of fields without a column that are remembered: strangers choose them."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
FLOAT_MAX: Final = 3.4028235677973366e38
"""32 bits do not have larger numbers, also when they are rounded."""

Read = Callable[[Any], Any]


class Unfit(Exception):  # a part of a reason, which ends in a row
    """A value is not of its type. ``where`` is the path to it, the innermost name first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.where: list[str] = []

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.where))}: {self.what}" if self.where else self.what


def json_parser(real: type[float] | type[Decimal]) -> Callable[[bytes], Any]:
    """A function from bytes to the value that they are the JSON of; numbers with a fraction become ``real``. Unfit."""
    loads = json.JSONDecoder(object_pairs_hook=_object, parse_float=real, parse_constant=_constant).decode

    def parse(data: bytes) -> Any:
        try:
            return loads(data.decode())
        except UnicodeDecodeError:
            raise Unfit("not JSON: it is not UTF-8") from None
        except json.JSONDecodeError as error:
            raise Unfit(f"not JSON: {error.msg} at character {error.pos}") from None
        except RecursionError:
            raise Unfit("not JSON: nested too deeply") from None
        except ValueError as error:  # a number of thousands of digits, a name that is there twice
            raise Unfit(f"not JSON: {_short(str(error))}") from None

    return parse


class JsonReader:
    """Reads the JSON of messages as one schema's type. Used by one thread."""

    def __init__(self, node: Node) -> None:
        """InvalidSchema for a type that JSON has no values of."""
        self.left_out: dict[str, None] = {}
        """The paths of fields that messages have and the schema has not, `LEFT_OUT_MAX` at most."""
        self._has_decimals = False
        self._read = self._reader(node, "")
        self._parse = json_parser(Decimal if self._has_decimals else float)

    def read(self, data: bytes) -> Any:
        """What pyarrow takes for the type of `klog.schemas.decoding.arrow`. Unfit where the bytes are not JSON, or the
        value is not of the type."""
        try:
            return self._read(self._parse(data))
        except RecursionError:
            raise Unfit("not JSON: nested too deeply") from None

    def behind_id(self, data: bytes) -> bytes:
        """Nothing else is in front."""
        return data

    # --- of each type -------------------------------------------------------------------------------------------------

    def _reader(self, node: Node, path: str) -> Read:
        match node:
            case avro.Record():
                return self._record(node, path)
            case avro.Array():
                return self._array(node, path)
            case avro.Map():
                return self._map(node, path)
            case avro.Union():
                return self._union(node, path)
            case avro.Enum():
                return enum_reader(node)
            case avro.Primitive():
                return self._primitive(node)
        raise InvalidSchema(f"JSON has no values of type {describe(node)}", hint="use string, array or map")

    def _primitive(self, node: avro.Primitive) -> Read:
        logical = logical_of(node)
        if logical is not None and logical.name == "decimal":
            self._has_decimals = True
            return decimal_reader(logical.precision, logical.scale)
        found = READERS.get(logical.name if logical is not None else node.name)
        if found is None:
            raise InvalidSchema(f"JSON has no values of type {describe(node)}", hint="use string, array or map")
        return found

    def _record(self, node: avro.Record, path: str) -> Read:
        readers = {one.name: self._reader(one.node, below(path, one.name)) for one in node.fields}
        defaults = {one.name: _default(one, readers[one.name]) for one in node.fields if may_be_missing(one)}
        by_name = {alias: one.name for one in node.fields for alias in one.aliases} | {name: name for name in readers}
        left_out = self.left_out

        def read(value: Any) -> Any:
            if type(value) is not dict:
                raise not_a("an object", value)
            found = dict(defaults)
            for name, part in value.items():
                field = by_name.get(name)
                if field is None:
                    if len(left_out) < LEFT_OUT_MAX:
                        left_out[below(path, name)] = None
                    continue
                try:
                    found[field] = readers[field](part)
                except Unfit as unfit:
                    unfit.where.append(field)
                    raise
            if len(found) < len(readers):
                missing = next(name for name in readers if name not in found)
                raise Unfit(f"the field {missing} is missing, and the schema has no default for it")
            return found if readers else True

        return read

    def _array(self, node: avro.Array, path: str) -> Read:
        item = self._reader(node.items, below(path, "*"))

        def read(value: Any) -> list[Any]:
            if type(value) is not list:
                raise not_a("an array", value)
            return [item(one) for one in value]

        return read

    def _map(self, node: avro.Map, path: str) -> Read:
        item = self._reader(node.values, below(path, "*"))

        def read(value: Any) -> list[tuple[str, Any]]:
            if type(value) is not dict:
                raise not_a("an object", value)
            return [(_text(name), item(one)) for name, one in value.items()]

        return read

    def _union(self, node: avro.Union, path: str) -> Read:
        members = members_of(node)
        is_nullable = len(members) < len(node.branches)
        readers = [self._reader(one, path) for one in members]
        if len(readers) == 1:
            only = readers[0]
            return (lambda value: None if value is None else only(value)) if is_nullable else only

        def read(value: Any) -> Any:
            if value is None and is_nullable:
                return None
            for number, reader in enumerate(readers):
                try:
                    return {f"member{number}": reader(value)}
                except Unfit:
                    continue
            raise not_a(describe(node), value)

        return read


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def may_be_missing(field: avro.Field) -> bool:
    return field.has_default or _is_nullable(field.node)


def _is_nullable(node: Node) -> bool:
    branches = node.branches if isinstance(node, avro.Union) else (node,)
    return any(isinstance(one, avro.Primitive) and one.name == "null" for one in branches)


def _default(field: avro.Field, read: Read) -> Any:
    if not field.has_default:
        return None
    try:
        return read(field.default)
    except Unfit as unfit:
        raise InvalidSchema(f"the default of field {field.name} cannot be read from JSON: {unfit}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {_short(twice)} is twice in one object")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def not_a(wanted: str, value: Any) -> Unfit:
    return Unfit(f"expected {wanted}, found {_short(_json(value))}")


def _json(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


# --- of each primitive type -------------------------------------------------------------------------------------------


def _null(value: Any) -> None:
    if value is not None:
        raise not_a("null", value)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise not_a("a boolean", value)
    return value


def _whole(bits: int) -> Read:
    most = 2 ** (bits - 1)

    def read(value: Any) -> int:
        if type(value) is bool or not isinstance(value, int | float | Decimal):
            raise not_a("a whole number", value)
        if not -most <= value < most:  # before it is made an int: 1e999999999 would fill the memory
            raise not_a(f"a number of {bits} bits", value)
        found = int(value)
        if found != value:
            raise not_a("a whole number", value)
        return found

    return read


def _number(value: Any) -> float:
    if type(value) is bool or not isinstance(value, int | float | Decimal):
        raise not_a("a number", value)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if math.isinf(found) or (type(value) is int and found != value):
        raise not_a("a number that a double can have", value)
    return found


def _small_number(value: Any) -> float:
    found = _number(value)
    if abs(found) >= FLOAT_MAX:
        raise not_a("a number that a float can have", value)
    return found


def _text(value: Any) -> str:
    text = value if type(value) is str else _json(value)
    if type(value) is float and math.isinf(value):
        raise not_a("a number that a double can have", value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unfit("a text with half a surrogate pair, which UTF-8 cannot have") from None
    return text


def _uuid(value: Any) -> str:
    if type(value) is not str:
        raise not_a("a text", value)
    return _text(value)


def enum_reader(node: avro.Enum) -> Read:
    symbols = frozenset(node.symbols)

    def read(value: Any) -> str:
        if type(value) is not str or value not in symbols:
            raise not_a(f"a symbol of {node.full_name}", value)
        return value

    return read


def decimal_reader(precision: int, scale: int) -> Read:
    step, exact = Decimal(1).scaleb(-scale), Context(prec=max(precision, 1) + 1)

    def read(value: Any) -> Decimal:
        if type(value) is bool or not isinstance(value, int | str | Decimal):
            raise not_a("a decimal number", value)
        try:
            given = Decimal(value)
            found = given.quantize(step, context=exact)
        except InvalidOperation:
            found = None
        if found is None or not given.is_finite() or found != given or len(found.as_tuple().digits) > precision:
            raise not_a(f"a number of at most {precision} digits, {scale} of them behind the point", value)
        return found

    return read


def _date(value: Any) -> Any:
    if type(value) is str:
        return _parsed(date.fromisoformat, "a date as 2026-03-01", value)
    found = _whole(32)(value)
    if abs(found) >= 700_000:
        raise not_a("a date within the years 1 to 9999", value)
    return date(1970, 1, 1) + timedelta(days=found)


def _parsed(parse: Callable[[str], Any], wanted: str, value: str) -> Any:
    try:
        return parse(value)
    except ValueError:
        raise not_a(wanted, value) from None


def _time(units_per_s: int, bits: int) -> Read:
    """Of a day, in units of which a second has so many."""
    whole, day = _whole(bits), 86_400 * units_per_s

    def read(value: Any) -> int:
        if type(value) is not str:
            found: int = whole(value)
            if not 0 <= found < day:
                raise not_a("a time within a day", value)
            return found
        at: time = _parsed(time.fromisoformat, "a time as 17:30:00", value)
        micros = ((at.hour * 60 + at.minute) * 60 + at.second) * 1_000_000 + at.microsecond
        if at.tzinfo is not None or micros % (1_000_000 // units_per_s):
            raise not_a(f"a time without an offset, in units of 1/{units_per_s} s", value)
        return micros * units_per_s // 1_000_000

    return read


def _timestamp(micros_per_unit: int, *, is_local: bool) -> Read:
    """In microseconds, as Arrow's timestamps are kept."""
    whole = _whole(64)
    example = "2026-03-01T17:30:00" if is_local else "2026-03-01T17:30:00Z"

    def read(value: Any) -> int:
        if type(value) is not str:
            micros: int = whole(value) * micros_per_unit
            if not -(2**63) <= micros < 2**63:
                raise not_a("a time that microseconds of 64 bits can have", value)
            return micros
        at: datetime = _parsed(datetime.fromisoformat, f"a time as {example}", value)
        if is_local and at.tzinfo is not None:
            raise not_a(f"a time without an offset, as {example}", value)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        try:
            return (at - EPOCH) // MICROSECOND
        except OverflowError:
            raise not_a(f"a time as {example}", value) from None

    return read


READERS: Final[dict[str, Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole(32),
    "long": _whole(64),
    "float": _small_number,
    "double": _number,
    "string": _text,
    "uuid": _uuid,
    "date": _date,
    "time-millis": _time(1_000, 32),
    "time-micros": _time(1_000_000, 64),
    "timestamp-millis": _timestamp(1_000, is_local=False),
    "timestamp-micros": _timestamp(1, is_local=False),
    "timestamp-nanos": _whole(64),
    "local-timestamp-millis": _timestamp(1_000, is_local=True),
    "local-timestamp-micros": _timestamp(1, is_local=True),
    "local-timestamp-nanos": _whole(64),
}
