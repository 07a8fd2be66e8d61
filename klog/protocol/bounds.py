"""Checks array lengths before a message is decoded (rule P2).

Why: an array's length precedes its elements, and the peer writes it. kio's native reader allocates as many elements as
the length says, and the kernel kills a process that asks for 32 GiB: twenty bytes from anyone would stop a broker. So
the message is walked first, by its schema: nothing is decoded, and a length is valid only if the bytes could hold that
many elements.

Limits: `ELEMENTS_MAX` elements in all arrays of a request. An element takes a few bytes on the wire, a hundred in
memory and microseconds to answer; unbounded, a frame of the largest size would be some GB and minutes. For answers, and
for requests among brokers, `TRUSTED_ELEMENTS_MAX`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from klog.errors import MalformedRequest
from klog.protocol.entity_fields import Field, fields_of

ELEMENTS_MAX = 100_000
"""A request for that many partitions takes one to two seconds, in which the broker answers no other; a broker silent
for longer than its ZooKeeper session ends itself (rule L8)."""
TRUSTED_ELEMENTS_MAX = 5_000_000
"""A cluster's metadata have some seven per partition: its replicas, and those in sync."""
RECORD_SETS_MAX = 20_000
"""Per produce request; each is checked by itself. A megabyte, the default maximum of Kafka's producers, holds some
14,000 of one record."""

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")

_FIXED_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
_SHORT_LENGTH = "string"
"""The only type with a length of two bytes in versions that are not flexible; bytes and records have four."""


class Walked:
    """The state of a walk: how many elements are still allowed, and sections with unknown tags."""

    __slots__ = ("cuts", "elements_left", "elements_max")

    def __init__(self, elements_max: int) -> None:
        self.elements_left = self.elements_max = elements_max
        self.cuts: list[tuple[int, int, bytes]] = []
        """Ranges to replace, (begin, end, replacement), in order."""


Walk = Callable[[memoryview, int, Walked], int]
"""(frame, begin, state) -> end."""


class _Part(NamedTuple):
    """One or more adjacent fields of a schema."""

    least_bytes: int
    """The minimum length."""
    walk: Walk | None
    """None: always ``least_bytes`` long."""


def check_lengths(frame: memoryview, at: int, schema: Any, elements_max: int = ELEMENTS_MAX) -> tuple[memoryview, int]:
    """The frame to decode the entity at ``at`` from, and the entity's end in ``frame``.

    Raises MalformedRequest unless every array can be as long as it says. Returns ``frame`` itself unless it has tagged
    fields that are not in the schema: readers must ignore them (KIP-482), kio does not, so they are cut out.
    """
    least_bytes, walk = _entity(schema)
    if walk is None:
        return frame, at + least_bytes
    walked = Walked(elements_max)
    try:
        end = walk(frame, at, walked)
    except (struct.error, IndexError):
        raise MalformedRequest(f"{schema.__name__} version {schema.__version__} ends before its last field") from None
    return (_cut(frame, walked.cuts) if walked.cuts else frame), end


def _cut(frame: memoryview, cuts: list[tuple[int, int, bytes]]) -> memoryview:
    parts, at = [], 0
    for begin, end, instead in cuts:
        parts += [bytes(frame[at:begin]), instead]
        at = end
    return memoryview(b"".join([*parts, bytes(frame[at:])]))


def check_count(known: int, claimed: int, elements_max: int = ELEMENTS_MAX) -> None:
    """Raise MalformedRequest where ``claimed`` more elements are too many; for hand-written readers."""
    if known + claimed > elements_max:
        raise _too_many(elements_max)


class TooManyElements(MalformedRequest):
    """Raised as soon as an array's length is read; nothing has been decoded."""


def _too_many(elements_max: int) -> TooManyElements:
    return TooManyElements(f"a message of more than {elements_max} elements")


@cache
def _entity(schema: Any) -> _Part:
    flexible = schema.__flexible__
    parts: list[_Part] = []
    tagged: dict[int, Walk] = {}
    names = set()
    for field in fields_of(schema):
        part = _field(field, flexible)
        if field.tag is None:
            parts.append(part)
            continue
        names.add(field.tag)
        if part.walk is not None:
            tagged[field.tag] = part.walk
    if flexible:
        parts.append(_Part(1, _tags(tagged, frozenset(names))))
    return _sequence(parts)


def _sequence(parts: list[_Part]) -> _Part:
    """Join parts; adjacent parts of fixed length become one."""
    least = sum(part.least_bytes for part in parts)
    steps: list[tuple[int, Walk]] = []
    skipped = 0
    for part in parts:
        if part.walk is None:
            skipped += part.least_bytes
        else:
            steps.append((skipped, part.walk))
            skipped = 0
    if not steps:
        return _Part(least, None)

    def walk(frame: memoryview, at: int, walked: Walked) -> int:
        for before, step in steps:
            at = step(frame, at + before, walked)
        return at + skipped

    return _Part(least, walk)


def _field(field: Field, flexible: bool) -> _Part:
    element = _entity(field.element) if field.is_structure else _primitive(field.kind, flexible)
    if field.is_array:
        return _Part(1 if flexible else 4, _array(element, flexible, field.is_nullable))
    return _Part(1, _nullable(element)) if field.is_structure and field.is_nullable else element


def _primitive(kafka_type: str | None, flexible: bool) -> _Part:
    fixed = _FIXED_BYTES.get(kafka_type or "")
    if fixed is not None:
        return _Part(fixed, None)
    if flexible:
        return _Part(1, _compact_bytes)
    return _Part(2, _short_bytes) if kafka_type == _SHORT_LENGTH else _Part(4, _long_bytes)


def read_uvarint(frame: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 5 bytes, and its end. Raises MalformedRequest."""
    try:
        value = frame[at]
        at += 1
        if value < 0x80:
            return value, at
        value &= 0x7F
        for shift in (7, 14, 21, 28):
            byte = frame[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
    except IndexError:
        pass
    raise MalformedRequest(f"a varint that does not end at byte {at}")


def _compact_bytes(frame: memoryview, at: int, walked: Walked) -> int:
    size, at = read_uvarint(frame, at)
    return at + max(size - 1, 0)


def _short_bytes(frame: memoryview, at: int, walked: Walked) -> int:
    size: int = _I16.unpack_from(frame, at)[0]
    return at + 2 + max(size, 0)


def _long_bytes(frame: memoryview, at: int, walked: Walked) -> int:
    size: int = _I32.unpack_from(frame, at)[0]
    return at + 4 + max(size, 0)


def _array(element: _Part, flexible: bool, may_be_null: bool) -> Walk:
    least, walk_element = element

    def walk(frame: memoryview, at: int, walked: Walked) -> int:
        if flexible:
            count, at = read_uvarint(frame, at)
            count -= 1
        else:
            count = _I32.unpack_from(frame, at)[0]
            at += 4
        if count <= 0:
            if count < 0 and not may_be_null:  # kio would return None, which no handler expects there
                raise MalformedRequest(f"an array that must not be null is null at byte {at}")
            return at
        if count * least > len(frame) - at:
            raise MalformedRequest(f"an array claims {count} elements at byte {at}; {len(frame) - at} bytes are left")
        walked.elements_left -= count
        if walked.elements_left < 0:
            raise _too_many(walked.elements_max)
        if walk_element is None:
            return at + count * least
        for _ in range(count):
            at = walk_element(frame, at, walked)
        return at

    return walk


def _nullable(entity: _Part) -> Walk:
    """A nullable struct has a byte before it (KIP-893)."""

    def walk(frame: memoryview, at: int, walked: Walked) -> int:
        if frame[at] >= 0x80:  # -1: null
            return at + 1
        return entity.least_bytes + at + 1 if entity.walk is None else entity.walk(frame, at + 1, walked)

    return walk


def _tags(known: dict[int, Walk], names: frozenset[int]) -> Walk:
    """``names``: all tags of the schema; ``known``: those whose fields have lengths to check."""

    def walk(frame: memoryview, at: int, walked: Walked) -> int:
        begin, count = at, frame[at]
        if not count:  # by far the most common
            return at + 1
        count, at = read_uvarint(frame, at)
        kept: list[bytes] = []
        for _ in range(count):
            field_begin = at
            tag, at = read_uvarint(frame, at)
            size, at = read_uvarint(frame, at)
            inside = known.get(tag)
            if inside is not None:
                outside = len(walked.cuts)
                inside(frame, at, walked)
                del walked.cuts[outside:]  # the field is kept unchanged, or not at all
            at += size
            if at > len(frame):
                raise MalformedRequest("a tagged field reaches past the frame's end")
            if tag in names:
                kept.append(bytes(frame[field_begin:at]))
        if len(kept) < count and len(kept) < 0x80:
            walked.cuts.append((begin, at, bytes([len(kept)]) + b"".join(kept)))
        return at

    return walk
