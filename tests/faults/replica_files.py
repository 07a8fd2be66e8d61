"""What a broker's files hold of a partition, read without a line of klog's own code, so that it can judge that code."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from tests.faults.history import Batch

# Base offset, length behind it, leader epoch, magic, CRC, attributes, last offset delta.
_HEAD = struct.Struct(">qiibIhi")
_CRC_FROM = 21
_COUNT_AT = 57
_HEADER_BYTES = 61
_LENGTH_PREFIX_BYTES = 12


def read_partition(folder: Path) -> tuple[tuple[Batch, ...], str]:
    """Every batch of the partition's folder in its order, and where it could not be read through; "" if it could."""
    batches: list[Batch] = []
    end = -1
    for path in segments(folder):
        first = int(path.stem)
        if 0 <= end != first:
            return tuple(batches), f"{path.name} begins at {first}, and the file before it ends at {end}"
        for batch, end in walk(path.read_bytes(), first):
            if batch is None:
                return tuple(batches), f"{path.name}: no batch at {end}"
            batches.append(batch)
    return tuple(batches), ""


def segments(folder: Path) -> list[Path]:
    """The segment files, in the order of their addresses."""
    return sorted(path for path in folder.glob("*.log") if path.stem.isdigit())


def walk(data: bytes, first: int) -> Iterator[tuple[Batch | None, int]]:
    """Each batch with the address behind it; None with its address where there is none to be read."""
    at = 0
    while at < len(data):
        if at + _HEADER_BYTES > len(data):
            yield None, first + at
            return
        base, length, epoch, magic, crc, _, _ = _HEAD.unpack_from(data, at)
        size = length + _LENGTH_PREFIX_BYTES
        if magic != 2 or size < _HEADER_BYTES or at + size > len(data):
            yield None, first + at
            return
        (count,) = struct.unpack_from(">i", data, at + _COUNT_AT)
        whole = data[at : at + size]
        valid = crc32c(whole[_CRC_FROM:]) == crc
        span = max(size, count)
        batch = Batch(first + at, base, size, epoch, valid, hashlib.blake2b(whole, digest_size=8).hexdigest())
        at += span
        yield batch, first + at
