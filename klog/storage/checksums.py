"""The CRC-32C of a range of addresses, by which klog compares replicas.

A follower writes the leader's bytes at the same addresses, but rolls its segments at other times. So the CRC is over
addresses, not files: the bytes of batches, zeros where a batch has more records than bytes, and nothing for recorded
holes (rule L2), which an answer lists separately.
Pages that were not in the page cache before are dropped from it again, as by the scrubber. Any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from klog.errors import CorruptLog, KlogError
from klog.record.batch import check_crc
from klog.storage.lookup import segment_at
from klog.storage.segment import Segment

READ_BYTES: Final = 512 * 1024
"""Per read: 13 GB/s from the page cache; larger reads gain nothing (measured)."""
_ZEROS: Final = bytes(64 * 1024)


class Checksum(NamedTuple):
    """``size``: bytes in the CRC, which are the addresses of the range less holes."""

    crc: int
    size: int


def holes(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Addresses [first, end) between segments that hold no batch."""
    return [
        (before.end_address, after.base_address)
        for before, after in pairwise(segments)
        if before.end_address < after.base_address
    ]


def checksum(segments: tuple[Segment, ...], first: int, end: int, seed: int = 0) -> Checksum:
    """The CRC of addresses [first, end), continued from ``seed``.

    Raises OffsetOutOfRange where retention removes it meanwhile, CorruptLog where a file ends too early.
    """
    crc, size = seed, 0
    for segment in segments[segment_at(segments, first) :]:
        if segment.base_address >= end:
            break
        written = segment.base_address + segment.size
        if segment.end_address <= first:
            continue
        at, stop = max(first, segment.base_address), min(end, written)
        while at < stop:
            wanted = min(READ_BYTES, stop - at)
            position = at - segment.base_address
            file = segment.file
            was_resident = file.is_resident(position, wanted)
            data = file.read_at(position, wanted)
            if len(data) < wanted:
                raise CorruptLog(f"{segment.path}: ends at byte {position + len(data)}, expected {segment.size}")
            if not was_resident:
                file.forget(position, wanted)
            crc = crc32c(data, crc)
            at += wanted
            size += wanted
        at, stop = max(first, written), min(end, segment.end_address)
        while at < stop:
            zeros = _ZEROS[: stop - at]
            crc = crc32c(zeros, crc)
            at += len(zeros)
            size += len(zeros)
    return Checksum(crc, size)


def batch_checks(segments: tuple[Segment, ...], address: int) -> bool:
    """Whether the batch around the byte at ``address`` is valid: header, address and CRC."""
    segment = segments[segment_at(segments, address)]
    try:
        for start, header in segment.walk(segment.index.floor(address).address):
            if header.next_address > address:
                batch = segment.file.read_at(start - segment.base_address, header.size_bytes)
                check_crc(batch, 0, header)
                return True
    except KlogError:
        return False
    return False
