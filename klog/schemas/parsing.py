"""Avro schemas from JSON, checked, and their canonical text, which equal schemas share.

Source: the specification of Avro 1.12, "Schema Declaration" and "Names".

The canonical text is the JSON without spaces, with keys in one order, names as short as their namespace allows, and
unknown properties sorted by name behind the known ones. Unlike the specification's "parsing canonical form" it keeps
defaults, aliases, logical types and documentation: readers need them, and the common registry also treats schemas that
differ in them as different.

Limits: a schema must define every type that it names; types nest at most `DEPTH_MAX` deep.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from klog.protocol.schema_errors import InvalidSchema
from klog.schemas.avro import (
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Logical,
    Map,
    Node,
    Primitive,
    Record,
    Union,
    fits,
    type_name,
)

DEPTH_MAX = 100
"""Of types inside types. Deeper schemas end the process of readers in other languages."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ORDERS = ("ascending", "descending", "ignore")

_HEAD = ("type", "name", "namespace", "doc", "aliases")

_LOGICAL_ON = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
    "uuid": "string",
}
_LOGICAL_SIZES = {"uuid": 16, "duration": 12}
"""Of the fixed types that these annotate, in bytes."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """``text`` is canonical: equal schemas have equal texts."""

    node: Node
    text: str


def parse(text: str, *, depth_max: int = DEPTH_MAX) -> Parsed:
    """InvalidSchema, with the path of the error. A bare word such as ``string`` is accepted as if it were quoted."""
    stripped = text.strip()
    try:
        raw = stripped if stripped in PRIMITIVES else json.loads(stripped, parse_constant=_no_constant)
        node = _Parser(depth_max).parse(raw, "", "", 0)
        canonical = text_of(node)
        canonical.encode()
    except RecursionError:
        raise InvalidSchema(f"the schema is nested deeper than {depth_max}") from None
    except json.JSONDecodeError as error:
        if not stripped:
            raise InvalidSchema("the schema is empty") from None
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidSchema(f"the schema is not JSON: {where}: {error.msg}") from None
    except ValueError as error:  # also half a surrogate pair, and numbers that no float holds
        raise InvalidSchema(f"the schema is not JSON: {error}") from None
    return Parsed(node, canonical)


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


@dataclass(slots=True)
class _Parser:
    """Parses one schema. ``path`` is made of names of fields, ``items``, ``values`` and numbers of branches."""

    depth_max: int
    names: dict[str, Node] = field(default_factory=dict)

    def parse(self, raw: Any, namespace: str, path: str, depth: int) -> Node:
        if depth > self.depth_max:
            raise _wrong(path, f"types are nested deeper than {self.depth_max}")
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
                return self._record(raw, namespace, path, depth)
            case "enum":
                return self._enum(raw, namespace, path)
            case "fixed":
                return self._fixed(raw, namespace, path)
            case "array" | "map":
                inside = "items" if kind == "array" else "values"
                node = self.parse(_required(raw, inside, path), namespace, f"{path}/{inside}", depth + 1)
                return (Array if kind == "array" else Map)(node, _rest(raw, ("type", inside)))
        node = self._by_name(kind, namespace, path)
        # {"type": "Name"} is a reference; other properties have no meaning there.
        return Primitive(kind, _logical(raw, kind), _rest(raw, ("type",))) if isinstance(node, Primitive) else node

    def _by_name(self, name: str, namespace: str, path: str) -> Node:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise InvalidSchema(
                f"{_at(path)}type {name!r} is not defined",
                hint="a schema must define every type that it names; references to other schemas are not supported",
            )
        return found

    def _union(self, raw: list[Any], namespace: str, path: str, depth: int) -> Node:
        branches: dict[str, Node] = {}
        for number, one in enumerate(raw):
            node = self.parse(one, namespace, f"{path}/{number}", depth + 1)
            if isinstance(node, Union):
                raise _wrong(path, "a union is directly inside a union")
            if type_name(node) in branches:
                raise _wrong(path, f"a union has two branches of type {type_name(node)}")
            branches[type_name(node)] = node
        if not branches:
            raise _wrong(path, "a union has no branches")
        return Union(tuple(branches.values()))

    def _enum(self, raw: dict[str, Any], namespace: str, path: str) -> Node:
        head = self._head(raw, namespace, path, ("symbols", "default"))
        symbols = _required(raw, "symbols", path)
        if not isinstance(symbols, list) or not all(isinstance(one, str) and NAME.match(one) for one in symbols):
            raise _wrong(path, f"symbols {_shown(symbols)}: expected names")
        if len(set(symbols)) < len(symbols):
            raise _wrong(path, "two symbols are the same")
        default = raw.get("default")
        if default is not None and default not in symbols:
            raise _wrong(path, f"default {_shown(default)} is not one of the symbols")
        return self._defined(Enum(*head, tuple(symbols), default), path)

    def _fixed(self, raw: dict[str, Any], namespace: str, path: str) -> Node:
        head = self._head(raw, namespace, path, ("size",))
        size = _required(raw, "size", path)
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**31:
            raise _wrong(path, f"size {_shown(size)}: expected a number of bytes")
        return self._defined(Fixed(*head, size, _logical(raw, "fixed", size)), path)

    def _record(self, raw: dict[str, Any], namespace: str, path: str, depth: int) -> Node:
        node = Record(*self._head(raw, namespace, path, ("fields",)))
        self._defined(node, path)  # before its fields, which may be of this very type
        listed = _required(raw, "fields", path)
        if not isinstance(listed, list):
            raise _wrong(path, f"fields {_shown(listed)}: expected an array")
        fields: dict[str, Field] = {}
        for one in listed:
            made = self._field(one, node.full_name.rpartition(".")[0], path, depth)
            if made.name in fields:
                raise _wrong(path, f"two fields are named {made.name}")
            fields[made.name] = made
        node.fields = tuple(fields.values())
        return node

    def _field(self, raw: Any, namespace: str, path: str, depth: int) -> Field:
        if not isinstance(raw, dict):
            raise _wrong(path, f"field {_shown(raw)}: expected an object")
        name = _required(raw, "name", path)
        if not isinstance(name, str) or not NAME.match(name):
            raise _wrong(path, f"{_shown(name)} is not a name for a field")
        here = f"{path}/{name}"
        node = self.parse(_required(raw, "type", here), namespace, here, depth + 1)
        aliases = tuple(_texts(raw, "aliases", here))
        order = raw.get("order", "ascending")
        if order not in _ORDERS:
            raise _wrong(here, f"order {_shown(order)}: expected one of {', '.join(_ORDERS)}")
        if "default" in raw and not fits(node, raw["default"]):
            raise _wrong(here, f"default {_shown(raw['default'])} is not of type {type_name(node)}")
        more = _rest(raw, ("name", "type", "doc", "default", "order", "aliases"))
        return Field(name, aliases, node, "default" in raw, raw.get("default"), _doc(raw), order, more)

    def _head(
        self, raw: dict[str, Any], namespace: str, path: str, own: tuple[str, ...]
    ) -> tuple[str, str, tuple[str, ...], str | None, dict[str, Any]]:
        """What all named types have; ``own``: the names of what this kind has besides."""
        name = _required(raw, "name", path)
        given = raw.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(given, str):
            raise _wrong(path, f"name {_shown(name)}, namespace {_shown(given)}: expected texts")
        full = name if "." in name or not given else f"{given}.{name}"
        if full in PRIMITIVES or not all(NAME.match(part) for part in full.split(".")):
            raise _wrong(path, f"{_shown(full)} is not a name for a type")
        inside = full.rpartition(".")[0]
        aliases = (one if "." in one or not inside else f"{inside}.{one}" for one in _texts(raw, "aliases", path))
        return raw["type"], full, tuple(aliases), _doc(raw), _rest(raw, (*_HEAD, *own))

    def _defined(self, node: Record | Enum | Fixed, path: str) -> Node:
        if node.full_name in self.names:
            raise _wrong(path, f"{node.full_name} is defined twice")
        self.names[node.full_name] = node
        return node


def _logical(raw: dict[str, Any], kind: str, size: int = 0) -> Logical | None:
    """The logical type, if it fits the type. The specification has readers ignore one that does not."""
    name = raw.get("logicalType")
    if not isinstance(name, str):
        return None
    if name == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = raw.get("precision"), raw.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
            return None
        holds = kind == "bytes" or precision <= _digits(size)
        return Logical(name, precision, scale) if precision > 0 and holds else None
    fits_type = _LOGICAL_SIZES.get(name) == size if kind == "fixed" else _LOGICAL_ON.get(name) == kind
    return Logical(name) if fits_type else None


def _digits(size: int) -> int:
    """How many decimal digits fit into a two's complement number of this many bytes."""
    return int((8 * size - 1) * math.log10(2)) if size else 0


# --- And back ---


def text_of(node: Node) -> str:
    """The canonical text. A type that differs from an earlier one of its name gets another name, and an alias."""
    return json.dumps(_Shown().of(node, ""), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class _Shown:
    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        """Of the types that are written out already, by their ids."""
        self._taken: set[str] = set()

    def of(self, node: Node, namespace: str) -> Any:
        match node:
            case Primitive():
                return {"type": node.name, **node.more} if node.more else node.name
            case Union():
                return [self.of(one, namespace) for one in node.branches]
            case Array():
                return {"type": "array", "items": self.of(node.items, namespace), **node.more}
            case Map():
                return {"type": "map", "values": self.of(node.values, namespace), **node.more}
        if id(node) in self._names:
            return _short(self._names[id(node)], namespace)
        full, number = node.full_name, 1
        while full in self._taken:
            full, number = f"{node.full_name}_{number + 1}", number + 1
        self._names[id(node)] = full
        self._taken.add(full)
        own, _, name = full.rpartition(".")
        found: dict[str, Any] = {"type": node.kind, "name": name}
        if own != namespace:
            found["namespace"] = own
        if node.doc is not None:
            found["doc"] = node.doc
        if aliases := node.aliases + ((node.full_name,) if full != node.full_name else ()):
            found["aliases"] = [_short(one, own) for one in aliases]
        match node:
            case Enum():
                found["symbols"] = list(node.symbols)
                if node.default is not None:
                    found["default"] = node.default
            case Fixed():
                found["size"] = node.size
            case Record():
                found["fields"] = [self._field(one, own) for one in node.fields]
        return found | node.more

    def _field(self, field: Field, namespace: str) -> dict[str, Any]:
        shown = {"name": field.name, "type": self.of(field.node, namespace)}
        if field.doc is not None:
            shown["doc"] = field.doc
        if field.has_default:
            shown["default"] = field.default
        if field.order != "ascending":
            shown["order"] = field.order
        if field.aliases:
            shown["aliases"] = list(field.aliases)
        return shown | field.more


def _short(full: str, namespace: str) -> str:
    own, _, name = full.rpartition(".")
    return name if own == namespace else full


# --- Parts ---


def _doc(raw: dict[str, Any]) -> str | None:
    doc = raw.get("doc")
    return doc if isinstance(doc, str) else None


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
