"""Avro schemas as a graph: the one model that the registry, the decoder and the exports' files share.

Source: the specification of Avro 1.12, "Schema Declaration", "Names" and "Logical Types".

A named type is one node, however often the schema refers to it, so a recursive type is a circle. Nodes compare by
identity for the same reason. `klog.schemas.parsing` makes the graph from JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_INTEGERS = {"int": 2**31, "long": 2**63}


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type that fits the type it annotates. ``precision`` and ``scale`` belong to decimals."""

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(slots=True, eq=False)
class Primitive:
    name: str
    logical: Logical | None = None
    more: dict[str, Any] = field(default_factory=dict)
    """Here as elsewhere: properties without a meaning in the model, and a logical type's."""


@dataclass(slots=True, eq=False)
class Array:
    items: Node
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Map:
    values: Node
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Union:
    branches: tuple[Node, ...]


@dataclass(slots=True, eq=False)
class Named:
    """``kind``: the word in JSON. ``aliases`` are full names."""

    kind: str
    full_name: str
    aliases: tuple[str, ...]
    doc: str | None
    more: dict[str, Any]


@dataclass(slots=True, eq=False)
class Enum(Named):
    symbols: tuple[str, ...]
    default: str | None


@dataclass(slots=True, eq=False)
class Fixed(Named):
    size: int
    logical: Logical | None = None


@dataclass(slots=True, eq=False)
class Field:
    """``default`` is JSON, and means something only where ``has_default``. It fits ``node``."""

    name: str
    aliases: tuple[str, ...]
    node: Node
    has_default: bool
    default: Any = None
    doc: str | None = None
    order: str = "ascending"
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Record(Named):
    fields: tuple[Field, ...] = ()


Node = Primitive | Array | Map | Union | Record | Enum | Fixed


def type_name(node: Node) -> str:
    """The name that tells a union's branches apart: ``string``, ``array``, ``com.example.Order``."""
    match node:
        case Primitive():
            return node.name
        case Named():
            return node.full_name
        case _:
            return type(node).__name__.lower()


def describe(node: Node) -> str:
    """The type in a message: ``union of null, int``, ``array of string``, ``record Order``, ``timestamp-millis``."""
    match node:
        case Union():
            return "union of " + ", ".join(map(describe, node.branches))
        case Array():
            return f"array of {describe(node.items)}"
        case Map():
            return f"map of {describe(node.values)}"
        case Primitive():
            return node.logical.name if node.logical else node.name
    return f"{type(node).__name__.lower()} {node.full_name}"


def parts_of(node: Node) -> tuple[Node, ...]:
    """The types directly inside a type, in the schema's order."""
    match node:
        case Array():
            return (node.items,)
        case Map():
            return (node.values,)
        case Union():
            return node.branches
        case Record():
            return tuple(field.node for field in node.fields)
    return ()


def fits(node: Node, value: Any) -> bool:
    """Whether a default's JSON is a value of this type. A union takes a value of any of its branches."""
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
    """In JSON, bytes are a text of one character per byte."""
    return isinstance(value, str) and all(one <= "\xff" for one in value)
