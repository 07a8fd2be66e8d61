"""Which partition a row goes to: by its key as Java's clients place it, and always the same.

A message without a key goes by its value. Java's clients put it anywhere; here a batch that runs again must put it
where it was before.
"""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32 bits that ``org.apache.kafka.common.utils.Utils.murmur2`` makes of these bytes, unsigned."""
    length = len(data)
    mixed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> _R) * _M & _MASK
        mixed = (mixed * _M & _MASK) ^ word
    if length > whole:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    mixed = (mixed ^ mixed >> 13) * _M & _MASK
    return mixed ^ mixed >> 15


def partition_of(key: bytes | None, value: bytes | None, partitions: int) -> int:
    """From 0 to ``partitions`` - 1."""
    placed_by = key if key is not None else value or b""
    return (murmur2(placed_by) & 0x7FFFFFFF) % partitions
