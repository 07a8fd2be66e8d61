"""Files beside a partition's segments that are never served or removed: ``.lost`` and ``.damaged``.

``<first address>.lost``      batches that a truncation removed, unchanged; another of that address has ``-2``.
                              Renamed to ``.log`` in an empty folder it is a segment that ``klog log`` reads
``<first address>.damaged``   one line, then the first MiB of invalid bytes, see damage_record.py

Any thread; a file removed meanwhile counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from klog.errors import NoSuchThing, StorageError
from klog.storage.checking import Found, check_batches
from klog.storage.damage_record import DAMAGED_SUFFIX, DamageRecord
from klog.storage.filesystem import FileSystem, copy_range
from klog.storage.segment import Segment

LOST_SUFFIX: Final = ".lost"
HEAD_BYTES: Final = 4096
"""More than the line of any damage record."""
COUNTS_KEPT: Final = 256
TRUNCATED: Final = "cut to follow the leader"
_NAME: Final = re.compile(rf"(\d{{20}})(?:-\d+)?({re.escape(LOST_SUFFIX)}|{re.escape(DAMAGED_SUFFIX)})", re.ASCII)


class QuarantinedFile(NamedTuple):
    """Addresses [first, end); the ``size`` bytes kept of them begin at ``position`` of the file.

    ``messages`` None: unknown, since the bytes are invalid. ``time_ms``: when the file was written.
    """

    file: str
    first: int
    end: int
    messages: int | None
    position: int
    size: int
    reason: str
    time_ms: int


def list_quarantined(file_system: FileSystem, folder: str) -> list[QuarantinedFile]:
    """All files set aside in a partition's folder, by address. Reads ``.lost`` files whole."""
    found = []
    for entry in file_system.scan(folder):
        match = _NAME.fullmatch(entry.name)
        if match is None:
            continue
        try:
            one = _look(file_system, folder, entry.name, match, entry.size, entry.modified_ms)
        except StorageError:
            if file_system.exists(f"{folder}/{entry.name}"):
                raise
            continue
        if one is not None:
            found.append(one)
    return sorted(found, key=lambda one: (one.first, one.file))


def _look(
    file_system: FileSystem, folder: str, name: str, match: re.Match[str], size: int, modified_ms: int
) -> QuarantinedFile | None:
    file = file_system.open(f"{folder}/{name}")
    first = int(match[1])
    if match[2] == DAMAGED_SUFFIX:
        head = file.read_at(0, min(HEAD_BYTES, size))
        damage = DamageRecord.parse(head)
        if damage is None:
            return None
        position = head.find(b"\n") + 1
        return QuarantinedFile(
            name, damage.first_address, damage.end_address, None, position, size - position, damage.reason, modified_ms
        )
    messages, end = _count(file_system, f"{folder}/{name}", first, size, modified_ms)  # type: ignore[arg-type]
    return QuarantinedFile(name, first, end, messages, 0, size, TRUNCATED, modified_ms)


@lru_cache(COUNTS_KEPT)
def _count(file_system: FileSystem, path: str, first: int, size: int, modified_ms: int) -> tuple[int, int]:
    """(messages, end) of a file that never changes and may be large; time and size are part of the cache key."""
    messages, end = 0, first + size
    for event in check_batches(file_system.open(path), first, first, first + size):
        if isinstance(event, Found):
            messages += event.header.count
            end = max(end, event.header.next_address)
    return messages, end


def read_quarantined(file_system: FileSystem, folder: str, name: str, position: int, max_bytes: int) -> bytes:
    """Up to ``max_bytes`` of the kept bytes, from ``position`` on; empty behind their end. Raises NoSuchThing."""
    match = _NAME.fullmatch(name)
    path = f"{folder}/{name}"
    if match is None or position < 0 or not file_system.exists(path):
        raise NoSuchThing(f"there is no {path}")
    file = file_system.open(path)
    if match[2] == DAMAGED_SUFFIX:
        position += file.read_at(0, HEAD_BYTES).find(b"\n") + 1
    return file.read_at(position, max_bytes)


def keep_lost(file_system: FileSystem, folder: str, cut: Sequence[tuple[Segment, int | None]]) -> list[str]:
    """Copy each segment's bytes, from an address on where one is given, to ``.lost`` files; returns their names.
    Durable; blocks.

    An empty rest leaves no file.
    """
    names = []
    for segment, address in cut:
        start = segment.base_address if address is None else address
        file = file_system.open(segment.path)
        end = segment.base_address + file.size()
        if end <= start:
            continue
        name = _free_name(file_system, folder, start)
        copy_range(file_system, file, start - segment.base_address, end - start, f"{folder}/{name}")
        names.append(name)
    return names


def _free_name(file_system: FileSystem, folder: str, address: int) -> str:
    """A file name that is not in use: the same range may be lost twice."""
    name, number = f"{address:020d}{LOST_SUFFIX}", 2
    while file_system.exists(f"{folder}/{name}"):
        name, number = f"{address:020d}-{number}{LOST_SUFFIX}", number + 1
    return name
