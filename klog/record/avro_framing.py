"""A message's value as today's Avro serializers frame it.

    0   int8    magic, 0
    1   int32   schema id, big-endian: the schema that the datum was written with
    5   ..      the datum, in Avro's binary encoding

A magic of 1 is a newer framing, with a UUID of 16 bytes in the id's place; klog's registry gives none out. Another
first byte, or fewer than five bytes, is not a framed datum.
"""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = 0
MAGIC_WITH_UUID: Final = 1

_PREFIX = struct.Struct(
    ">"
    "B"  # magic
    "i"  # schema id
)
PREFIX_BYTES: Final = _PREFIX.size
assert PREFIX_BYTES == 5


def frame(schema_id: int, datum: bytes | memoryview) -> bytes:
    """The message value of a datum written with this schema."""
    assert schema_id > 0, "ids begin at 1"
    return b"".join((_PREFIX.pack(MAGIC, schema_id), datum))


def unframed(data: bytes) -> tuple[int | None, bytes]:
    """The schema's id, None without framing, and what follows it. Garbage may have an id that no schema has."""
    if len(data) < PREFIX_BYTES or data[0] != MAGIC:
        return None, data
    return _PREFIX.unpack_from(data)[1], data[PREFIX_BYTES:]
