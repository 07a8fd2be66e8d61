"""Batches removed by a truncation, kept for inspection: ``<20-digit first address>.lost`` files beside the segments.

A file holds the removed batches unchanged. Renamed to ``.log`` in an empty folder it is a segment that ``klog log``
reads. klog never serves or removes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klog.storage.filesystem import COPY_BYTES, TEMPORARY_SUFFIX, FileSystem
from klog.storage.segment import Segment

LOST_SUFFIX: Final = ".lost"


def keep(file_system: FileSystem, folder: str, cut: Sequence[tuple[Segment, int | None]]) -> list[str]:
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
        temporary = f"{folder}/{name}{TEMPORARY_SUFFIX}"
        file_system.remove(temporary)
        copy = file_system.open(temporary, create=True)
        for at in range(start, end, COPY_BYTES):
            copy.write_at(at - start, file.read_at(at - segment.base_address, min(COPY_BYTES, end - at)))
        copy.sync()
        file_system.rename(temporary, f"{folder}/{name}")
        names.append(name)
    return names


def _free_name(file_system: FileSystem, folder: str, address: int) -> str:
    """A file name that is not in use: the same range may be lost twice."""
    name, number = f"{address:020d}{LOST_SUFFIX}", 2
    while file_system.exists(f"{folder}/{name}"):
        name, number = f"{address:020d}-{number}{LOST_SUFFIX}", number + 1
    return name
