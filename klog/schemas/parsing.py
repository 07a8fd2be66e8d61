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
    Named,
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

_KNOWN = {
    "record": ("type", "name", "namespace", "doc", "aliases", "fields"),
    "enum": ("type", "name", "namespace", "doc", "aliases", "symbols", "default"),
    "fixed": ("type", "name", "namespace", "doc", "aliases", "size"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}
_KNOWN_OF_FIELD = ("name", "type", "doc", "default", "order", "aliases")

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
        node, shown = _Parser(depth_max).parse(raw, "", "", 0)
        canonical = json.dumps(shown, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
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
    names: dict[str, Named] = field(default_factory=dict)

    def parse(self, raw: Any, namespace: str, path: str, depth: int) -> tuple[Node, Any]:
        """The node, and its canonical JSON inside ``namespace``."""
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
            return node, shown  # {"type": "Name"} is a reference; other properties have no meaning
        rest = _rest(raw, ("type",))
        return Primitive(kind, _logical(raw, kind)), {"type": kind, **rest} if rest else kind

    def _by_name(self, name: str, namespace: str, path: str) -> tuple[Node, Any]:
        if name in PRIMITIVES:
            return Primitive(name), name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise InvalidSchema(
                f"{_at(path)}type {name!r} is not defined",
                hint="a schema must define every type that it names; references to other schemas are not supported",
            )
        return found, _short(found.full_name, namespace)

    def _union(self, raw: list[Any], namespace: str, path: str, depth: int) -> tuple[Node, Any]:
        branches, shown = [], []
        seen: set[str] = set()
        for number, one in enumerate(raw):
            node, text = self.parse(one, namespace, f"{path}/{number}", depth + 1)
            if isinstance(node, Union):
                raise _wrong(path, "a union is directly inside a union")
            if type_name(node) in seen:
                raise _wrong(path, f"a union has two branches of type {type_name(node)}")
            seen.add(type_name(node))
            branches.append(node)
            shown.append(text)
        if not branches:
            raise _wrong(path, "a union has no branches")
        return Union(tuple(branches)), shown

    def _enum(self, raw: dict[str, Any], namespace: str, path: str) -> tuple[Node, Any]:
        head, full, aliases = self._head(raw, "enum", namespace, path)
        symbols = _required(raw, "symbols", path)
        if not isinstance(symbols, list) or not all(isinstance(one, str) and NAME.match(one) for one in symbols):
            raise _wrong(path, f"symbols {_shown(symbols)}: expected names")
        if len(set(symbols)) < len(symbols):
            raise _wrong(path, "two symbols are the same")
        default = raw.get("default")
        if default is not None and default not in symbols:
            raise _wrong(path, f"default {_shown(default)} is not one of the symbols")
        node = Enum(full, aliases, tuple(symbols), default)
        self._define(node, path)
        more = {"symbols": symbols} | ({"default": default} if default is not None else {})
        return node, {**head, **more, **_rest(raw, _KNOWN["enum"])}

    def _fixed(self, raw: dict[str, Any], namespace: str, path: str) -> tuple[Node, Any]:
        head, full, aliases = self._head(raw, "fixed", namespace, path)
        size = _required(raw, "size", path)
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**31:
            raise _wrong(path, f"size {_shown(size)}: expected a number of bytes")
        node = Fixed(full, aliases, size, _logical(raw, "fixed", size))
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
        if not isinstance(name, str) or not NAME.match(name):
            raise _wrong(path, f"{_shown(name)} is not a name for a field")
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
                raise _wrong(here, f"default {_shown(raw['default'])} is not of type {type_name(node)}")
            shown["default"] = raw["default"]
        if raw.get("order", "ascending") != "ascending":
            shown["order"] = raw["order"]
        if aliases:
            shown["aliases"] = aliases
        made = Field(name, tuple(aliases), node, "default" in raw, raw.get("default"))
        return made, {**shown, **_rest(raw, _KNOWN_OF_FIELD)}

    def _head(
        self, raw: dict[str, Any], kind: str, namespace: str, path: str
    ) -> tuple[dict[str, Any], str, frozenset[str]]:
        """What named types begin with, the full name, and the aliases in full."""
        name = _required(raw, "name", path)
        given = raw.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(given, str):
            raise _wrong(path, f"name {_shown(name)}, namespace {_shown(given)}: expected texts")
        full = name if "." in name or not given else f"{given}.{name}"
        if full in PRIMITIVES or not all(NAME.match(part) for part in full.split(".")):
            raise _wrong(path, f"{_shown(full)} is not a name for a type")
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
