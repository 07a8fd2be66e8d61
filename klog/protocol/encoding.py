"""Encodes entities as kio does, in a fraction of the time for tens of thousands of elements.

kio packs field by field, and has a buffer for the tagged fields of every entity. Here adjacent fields of fixed size are
one struct, and an entity without tagged fields ends with their count, 0. Entities with other kinds of fields are left
to kio.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from io import BytesIO
from operator import attrgetter
from typing import Any, Final

from kio.serial import entity_writer, writers

from klog.protocol.entity_fields import Field, fields_of

Write = Callable[[BytesIO, Any], object]

_FIXED: Final = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "bool": "?"}

_WRITERS: Final[dict[tuple[str | None, bool, bool], Write]] = {
    ("string", False, True): writers.write_compact_string,
    ("string", True, True): writers.write_nullable_compact_string,
    ("string", False, False): writers.write_legacy_string,
    ("string", True, False): writers.write_nullable_legacy_string,
    **{("uuid", optional, flexible): writers.write_uuid for optional in (False, True) for flexible in (False, True)},
    **{("timedelta_i32", False, flexible): writers.write_timedelta_i32 for flexible in (False, True)},
    **{("timedelta_i64", False, flexible): writers.write_timedelta_i64 for flexible in (False, True)},
}
"""(type on the wire, nullable, flexible) -> kio's writer."""


def write(out: BytesIO, entity: Any) -> None:
    """Append the entity's bytes."""
    schema: Any = type(entity)
    writer_of(schema)(out, entity)


@cache
def writer_of(schema: Any) -> Write:
    """The writer of entities of this class."""
    flexible = schema.__flexible__
    steps: list[Write] = []
    run: list[tuple[str, str]] = []
    for field in fields_of(schema):
        if field.tag is not None:
            return entity_writer(schema)
        if field.kind in _FIXED and not (field.is_array or field.is_nullable):
            run.append((field.name, _FIXED[field.kind]))
            continue
        if field.kind == "error_code":
            run.append((f"{field.name}.value", "h"))
            continue
        write = _of_field(field, flexible=flexible)
        if write is None:
            return entity_writer(schema)
        if run:
            steps.append(_of_run(run))
            run = []
        steps.append(_of_attribute(field.name, write))
    if run:
        steps.append(_of_run(run))
    if flexible:
        steps.append(lambda out, _: out.write(b"\0"))
    if len(steps) == 1:
        return steps[0]

    def write_entity(out: BytesIO, entity: Any) -> None:
        for step in steps:
            step(out, entity)

    return write_entity


def _of_field(field: Field, *, flexible: bool) -> Write | None:
    """The writer of a field; None for an unknown kind."""
    if not field.is_array:
        return _WRITERS.get((field.kind, field.is_nullable, flexible))
    if field.is_nullable:
        return None
    if field.is_structure:
        return _array(writer_of(field.element), flexible=flexible)
    return _numbers(_FIXED[field.kind], flexible=flexible) if field.kind in _FIXED else None


def _of_run(run: Sequence[tuple[str, str]]) -> Write:
    """The writer of adjacent fields of fixed size."""
    layout = struct.Struct(">" + "".join(code for _, code in run))
    pack, names = layout.pack, [name for name, _ in run]
    value = attrgetter(*names)
    if len(names) == 1:
        return lambda out, entity: out.write(pack(value(entity)))
    return lambda out, entity: out.write(pack(*value(entity)))


def _of_attribute(name: str, write: Write) -> Write:
    value = attrgetter(name)
    return lambda out, entity: write(out, value(entity))


def _length(out: BytesIO, count: int, *, flexible: bool) -> None:
    if flexible:
        writers.write_compact_array_length(out, count)
    else:
        out.write(struct.pack(">i", count))


def _array(write_one: Write, *, flexible: bool) -> Write:
    def write_array(out: BytesIO, items: Any) -> None:
        _length(out, len(items), flexible=flexible)
        for one in items:
            write_one(out, one)

    return write_array


def _numbers(code: str, *, flexible: bool) -> Write:
    def write_numbers(out: BytesIO, values: Any) -> None:
        count = len(values)
        if flexible and count < 0x7F:
            out.write(_few(code, count).pack(count + 1, *values))
            return
        _length(out, count, flexible=flexible)
        out.write(struct.pack(f">{count}{code}", *values))

    return write_numbers


@cache
def _few(code: str, count: int) -> struct.Struct:
    return struct.Struct(f">B{count}{code}")
