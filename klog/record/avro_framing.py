"""A message's value as today's Avro serializers frame it.

    0   int8    magic, 0
    1   int32   schema id, big-endian: the schema that the datum was written with
    5   ..      the datum, in Avro's binary encoding

A magic of 1 is a newer framing, with a UUID of 16 bytes in the id's place; klog's registry gives none out, so it is
refused by name. Another first byte, or fewer than five bytes, is not a framed datum.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from klog.errors import InvalidRecord

MAGIC: Final = 0
MAGIC_WITH_UUID: Final = 1

_PREFIX = struct.Struct(
    ">"
    "B"  # magic
    "i"  # schema id
)
PREFIX_BYTES: Final = _PREFIX.size
assert PREFIX_BYTES == 5


class Framed(NamedTuple):
    """``datum``: a view into the payload."""

    schema_id: int
    datum: memoryview


def frame(schema_id: int, datum: bytes | memoryview) -> bytes:
    """The message value of a datum written with this schema."""
    assert schema_id > 0, "ids begin at 1"
    return b"".join((_PREFIX.pack(MAGIC, schema_id), datum))


def unframe(payload: bytes | bytearray | memoryview) -> Framed:
    """The schema id and datum of a message value. Raises InvalidRecord, with the bytes found, if it is not framed."""
    if len(payload) < PREFIX_BYTES:
        raise InvalidRecord(
            f"no framed datum: {len(payload)} bytes, where magic and schema id alone take {PREFIX_BYTES}"
        )
    magic, schema_id = _PREFIX.unpack_from(payload)
    if magic == MAGIC_WITH_UUID:
        raise InvalidRecord(
            f"no framed datum: magic {MAGIC_WITH_UUID} names a schema by a UUID, which no id stands for"
        )
    if magic != MAGIC:
        raise InvalidRecord(f"no framed datum: it begins with byte {magic}, expected magic {MAGIC}")
    if schema_id <= 0:
        raise InvalidRecord(f"no framed datum: schema id {schema_id}; ids begin at 1")
    return Framed(schema_id, memoryview(payload)[PREFIX_BYTES:])
