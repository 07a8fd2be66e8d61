"""The fields of an entity, kio's or klog's own, in one form for all that is made from a schema."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints


class Field(NamedTuple):
    """``element``: the class of a structure, or the type of a plain value; of an array that of its elements."""

    name: str
    kind: str | None
    """kio's name of the type on the wire; None for a structure."""
    element: Any
    is_structure: bool
    is_array: bool
    is_nullable: bool
    tag: int | None
    has_default: bool


@cache
def fields_of(schema: Any) -> tuple[Field, ...]:
    """The fields of a class, in order."""
    hints = get_type_hints(schema)
    found = []
    for one in fields(schema):
        element, is_array, is_nullable = hints[one.name], False, False
        while arms := get_args(element):
            is_array |= get_origin(element) is tuple
            is_nullable |= NoneType in arms
            element = next(arm for arm in arms if arm not in (NoneType, ...))
        kind, tag = one.metadata.get("kafka_type"), one.metadata.get("tag")
        has_default = one.default is not MISSING
        found.append(Field(one.name, kind, element, is_dataclass(element), is_array, is_nullable, tag, has_default))
    return tuple(found)


def element_of(schema: Any, name: str) -> Any:
    """The element type of an array: a class, or that of a plain value."""
    return next(one.element for one in fields_of(schema) if one.name == name)
