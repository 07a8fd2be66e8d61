"""Avro schemas: read from JSON, checked, and written again in the one form that makes equal schemas equal texts.

Source: the specification of Avro 1.12, "Schema Declaration" and "Names".

`parse` gives the schema as a graph, whose named types are one node each however often they are referred to, and its
canonical text: the JSON without spaces, keys in one order, names as short as their surroundings allow, properties that
the specification does not know behind those it does, by name. Unlike the specification's "parsing canonical form" it
keeps defaults, aliases, logical types and documentation: readers need them, and the common registry takes schemas that
differ in them for different ones, too.

Limits: schemas that refer to types of other schemas are refused; nesting ends at `DEPTH_MAX`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from klog.protocol.schema_errors import InvalidSchema

DEPTH_MAX = 100
"""Of types inside types. Beyond it readers in other languages end their process."""

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ORDERS = ("ascending", "descending", "ignore")
_INTEGERS = {"int": 2**31, "long": 2**63}

_KNOWN = {
    "record": ("type", "name", "namespace", "doc", "aliases", "fields"),
    "enum": ("type", "name", "namespace", "doc", "aliases", "symbols", "default"),
    "fixed": ("type", "name", "namespace", "doc", "aliases", "size"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}
_KNOWN_OF_FIELD = ("name", "type", "doc", "default", "order", "aliases")


# Compared by identity: the graph of a recursive type has no end.


@dataclass(slots=True, eq=False)
class Primitive:
    name: str
    decimal: tuple[int, int] | None = None
    """(precision, scale) where the logical type is decimal."""


@dataclass(slots=True, eq=False)
class Array:
    items: Node


@dataclass(slots=True, eq=False)
class Map:
    values: Node


@dataclass(slots=True, eq=False)
class Union:
    branches: tuple[Node, ...]


@dataclass(slots=True, eq=False)
class Enum:
    full_name: str
    aliases: frozenset[str]
    symbols: tuple[str, ...]
    default: str | None


@dataclass(slots=True, eq=False)
class Fixed:
    full_name: str
    aliases: frozenset[str]
    size: int
    decimal: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class Field:
    name: str
    aliases: tuple[str, ...]
    node: Node
    has_default: bool


@dataclass(slots=True, eq=False)
class Record:
    full_name: str
    aliases: frozenset[str]
    fields: tuple[Field, ...] = ()


Named = Record | Enum | Fixed
Node = Primitive | Array | Map | Union | Named


@dataclass(frozen=True, slots=True)
class Parsed:
    """``text`` is canonical: two schemas are the same if their texts are."""

    node: Node
    text: str


def parse(text: str) -> Parsed:
    """InvalidSchema, with the place, for what is no Avro schema. A bare word such as ``string`` is taken for JSON's."""
    stripped = text.strip()
    try:
        raw = stripped if stripped in PRIMITIVES else json.loads(stripped, parse_constant=_no_constant)
        node, shown = _Parser().parse(raw, "", "", 0)
        canonical = json.dumps(shown, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        canonical.encode()
    except RecursionError:
        raise InvalidSchema(f"the schema is nested deeper than {DEPTH_MAX}") from None
    except ValueError as error:  # a half of a surrogate pair, and numbers that no float holds, are no JSON either
        raise InvalidSchema(f"the schema is no JSON: {error}") from None
    return Parsed(node, canonical)


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def type_name(node: Node) -> str:
    """``string``, ``array``, ``com.example.Order``: what a message calls it."""
    match node:
        case Primitive():
            return node.name
        case Record() | Enum() | Fixed():
            return node.full_name
        case _:
            return type(node).__name__.lower()


@dataclass(slots=True)
class _Parser:
    """One schema. ``path`` is where it is: names of fields, ``items``, ``values``, numbers of branches."""

    names: dict[str, Named] = field(default_factory=dict)

    def parse(self, raw: Any, namespace: str, path: str, depth: int) -> tuple[Node, Any]:
        """The node, and its canonical JSON inside ``namespace``."""
        if depth > DEPTH_MAX:
            raise _wrong(path, f"types are nested deeper than {DEPTH_MAX}")
        if isinstance(raw, str):
            return self._by_name(raw, namespace, path)
        if isinstance(raw, list):
            return self._union(raw, namespace, path, depth)
        if not isinstance(raw, dict):
            raise _wrong(path, f"found {_shown(raw)}, expected a type: a name, an object or an array")
        kind = raw.get("type")
        if isinstance(kind, dict | list) and raw.keys() == {"type"}:
            return self.parse(kind, namespace, path, depth + 1)
        if not isinstance(kind, str):
            raise _wrong(path, f'found {_shown(raw)}, expected an object with a "type"')
        match kind:
            case "record" | "error":
                return self._record(raw, kind, namespace, path, depth)
            case "enum":
                return self._enum(raw, namespace, path)
            case "fixed":
                return self._fixed(raw, namespace, path)
            case "array":
                items, shown = self.parse(_required(raw, "items", path), namespace, f"{path}/items", depth + 1)
                return Array(items), {"type": kind, "items": shown, **_rest(raw, _KNOWN[kind])}
            case "map":
                values, shown = self.parse(_required(raw, "values", path), namespace, f"{path}/values", depth + 1)
                return Map(values), {"type": kind, "values": shown, **_rest(raw, _KNOWN[kind])}
        node, shown = self._by_name(kind, namespace, path)
        if not isinstance(node, Primitive):
            return node, shown  # {"type": "Name"} is a reference, and what stands beside it means nothing
        rest = _rest(raw, ("type",))
        return Primitive(kind, _decimal(raw) if kind == "bytes" else None), {"type": kind, **rest} if rest else kind

    def _by_name(self, name: str, namespace: str, path: str) -> tuple[Node, Any]:
        if name in PRIMITIVES:
            return Primitive(name), name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise InvalidSchema(
                f"{_at(path)}there is no type {name!r}",
                hint="a schema has to define every type that it names: references to other schemas are not served",
            )
        return found, _short(found.full_name, namespace)

    def _union(self, raw: list[Any], namespace: str, path: str, depth: int) -> tuple[Node, Any]:
        branches, shown = [], []
        seen: set[str] = set()
        for number, one in enumerate(raw):
            node, text = self.parse(one, namespace, f"{path}/{number}", depth + 1)
            if isinstance(node, Union):
                raise _wrong(path, "a union stands right inside a union")
            if type_name(node) in seen:
                raise _wrong(path, f"a union has two branches {type_name(node)}")
            seen.add(type_name(node))
            branches.append(node)
            shown.append(text)
        if not branches:
            raise _wrong(path, "a union has no branches")
        return Union(tuple(branches)), shown

    def _enum(self, raw: dict[str, Any], namespace: str, path: str) -> tuple[Node, Any]:
        head, full, aliases = self._head(raw, "enum", namespace, path)
        symbols = _required(raw, "symbols", path)
        if not isinstance(symbols, list) or not all(isinstance(one, str) and _NAME.match(one) for one in symbols):
            raise _wrong(path, f"symbols {_shown(symbols)}: expected names")
        if len(set(symbols)) < len(symbols):
            raise _wrong(path, "two symbols are the same")
        default = raw.get("default")
        if default is not None and default not in symbols:
            raise _wrong(path, f"default {_shown(default)} is none of the symbols")
        node = Enum(full, aliases, tuple(symbols), default)
        self._define(node, path)
        more = {"symbols": symbols} | ({"default": default} if default is not None else {})
        return node, {**head, **more, **_rest(raw, _KNOWN["enum"])}

    def _fixed(self, raw: dict[str, Any], namespace: str, path: str) -> tuple[Node, Any]:
        head, full, aliases = self._head(raw, "fixed", namespace, path)
        size = _required(raw, "size", path)
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**31:
            raise _wrong(path, f"size {_shown(size)}: expected a number of bytes")
        node = Fixed(full, aliases, size, _decimal(raw))
        self._define(node, path)
        return node, {**head, "size": size, **_rest(raw, _KNOWN["fixed"])}

    def _record(self, raw: dict[str, Any], kind: str, namespace: str, path: str, depth: int) -> tuple[Node, Any]:
        head, full, aliases = self._head(raw, kind, namespace, path)
        node = Record(full, aliases)
        self._define(node, path)  # before its fields, which may be of this very type
        listed = _required(raw, "fields", path)
        if not isinstance(listed, list):
            raise _wrong(path, f"fields {_shown(listed)}: expected an array")
        fields: dict[str, Field] = {}
        shown = []
        inside = full.rpartition(".")[0]
        for one in listed:
            made, text = self._field(one, inside, path, depth)
            if made.name in fields:
                raise _wrong(path, f"two fields are named {made.name}")
            fields[made.name] = made
            shown.append(text)
        node.fields = tuple(fields.values())
        return node, {**head, "fields": shown, **_rest(raw, _KNOWN["record"])}

    def _field(self, raw: Any, namespace: str, path: str, depth: int) -> tuple[Field, Any]:
        if not isinstance(raw, dict):
            raise _wrong(path, f"field {_shown(raw)}: expected an object")
        name = _required(raw, "name", path)
        if not isinstance(name, str) or not _NAME.match(name):
            raise _wrong(path, f"{_shown(name)} is no name of a field")
        here = f"{path}/{name}"
        node, shown_type = self.parse(_required(raw, "type", here), namespace, here, depth + 1)
        aliases = _texts(raw, "aliases", here)
        if raw.get("order", "ascending") not in _ORDERS:
            raise _wrong(here, f"order {_shown(raw['order'])}: expected one of {', '.join(_ORDERS)}")
        shown = {"name": name, "type": shown_type}
        if isinstance(raw.get("doc"), str):
            shown["doc"] = raw["doc"]
        if "default" in raw:
            if not fits(node, raw["default"]):
                raise _wrong(here, f"default {_shown(raw['default'])} is no {type_name(node)}")
            shown["default"] = raw["default"]
        if raw.get("order", "ascending") != "ascending":
            shown["order"] = raw["order"]
        if aliases:
            shown["aliases"] = aliases
        return Field(name, tuple(aliases), node, "default" in raw), {**shown, **_rest(raw, _KNOWN_OF_FIELD)}

    def _head(
        self, raw: dict[str, Any], kind: str, namespace: str, path: str
    ) -> tuple[dict[str, Any], str, frozenset[str]]:
        """What named types begin with, the full name, and the aliases in full."""
        name = _required(raw, "name", path)
        given = raw.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(given, str):
            raise _wrong(path, f"name {_shown(name)}, namespace {_shown(given)}: expected texts")
        full = name if "." in name or not given else f"{given}.{name}"
        if full in PRIMITIVES or not all(_NAME.match(part) for part in full.split(".")):
            raise _wrong(path, f"{_shown(full)} is no name of a type")
        own = full.rpartition(".")[0]
        head: dict[str, Any] = {"type": kind, "name": full.rpartition(".")[2]}
        if own != namespace:
            head["namespace"] = own
        if isinstance(raw.get("doc"), str):
            head["doc"] = raw["doc"]
        aliases = [one if "." in one or not own else f"{own}.{one}" for one in _texts(raw, "aliases", path)]
        if aliases:
            head["aliases"] = [_short(one, own) for one in aliases]
        return head, full, frozenset(aliases)

    def _define(self, node: Named, path: str) -> None:
        if node.full_name in self.names:
            raise _wrong(path, f"{node.full_name} is defined twice")
        self.names[node.full_name] = node


def fits(node: Node, value: Any) -> bool:
    """Whether a default's JSON stands for a value of this type; of a union, for a value of any of its branches."""
    match node:
        case Primitive("null"):
            return value is None
        case Primitive("boolean"):
            return isinstance(value, bool)
        case Primitive("int" | "long" as name):
            whole = isinstance(value, int) and not isinstance(value, bool)
            return whole and -_INTEGERS[name] <= value < _INTEGERS[name]
        case Primitive("float" | "double"):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case Primitive("string"):
            return isinstance(value, str)
        case Primitive("bytes"):
            return _is_bytes(value)
        case Fixed():
            return _is_bytes(value) and len(value) == node.size
        case Enum():
            return value in node.symbols
        case Array():
            return isinstance(value, list) and all(fits(node.items, one) for one in value)
        case Map():
            return isinstance(value, dict) and all(fits(node.values, one) for one in value.values())
        case Union():
            return any(fits(one, value) for one in node.branches)
        case Record():
            return isinstance(value, dict) and all(
                fits(one.node, value[one.name]) if one.name in value else one.has_default for one in node.fields
            )
    return False


def _is_bytes(value: Any) -> bool:
    """A text whose characters stand for bytes."""
    return isinstance(value, str) and all(one <= "\xff" for one in value)


def _decimal(raw: dict[str, Any]) -> tuple[int, int] | None:
    """A decimal with senseless numbers is no decimal: the specification has readers ignore it."""
    precision, scale = raw.get("precision"), raw.get("scale", 0)
    if raw.get("logicalType") != "decimal" or not isinstance(precision, int) or not isinstance(scale, int):
        return None
    return (precision, scale) if 0 <= scale <= precision and precision > 0 else None


def _short(full: str, namespace: str) -> str:
    own, _, name = full.rpartition(".")
    return name if own == namespace else full


def _rest(raw: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    return {name: _sorted(raw[name]) for name in sorted(raw) if name not in known}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


def _required(raw: dict[str, Any], key: str, path: str) -> Any:
    if key not in raw:
        raise _wrong(path, f"{_shown(raw)} has no {key!r}")
    return raw[key]


def _texts(raw: dict[str, Any], key: str, path: str) -> list[str]:
    found = raw.get(key) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _wrong(path, f"{key} {_shown(found)}: expected an array of names")
    return found


def _wrong(path: str, message: str) -> InvalidSchema:
    return InvalidSchema(_at(path) + message)


def _at(path: str) -> str:
    return f"at {path}: " if path else ""


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
