"""Validates every batch of a segment file, and finds the invalid bytes between them.

A batch is valid if its base offset is its own address, its header is sane, its CRC-32C matches and its epoch is not
below the one before (rule L2: the CRC does not cover it). After invalid bytes, the next batch is searched for by its
first eight bytes, its own address: the log is self-synchronising.
Limits: one batch and one chunk in memory at a time. A payload can imitate a batch, so the search is used on damage
only, never for a read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from crc32c import crc32c

from klog.errors import PeerError
from klog.record.batch import (
    CRC_FROM,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    check_crc,
    read_header,
)
from klog.storage.epochs import NO_EPOCH
from klog.storage.filesystem import next_data

CHECK_BYTES: Final = 1 << 20
CODEC_MAX: Final = 4


class Found(NamedTuple):
    """A valid batch."""

    address: int
    header: BatchHeader


class Skipped(NamedTuple):
    """Bytes from ``address`` up to ``end`` that are not a batch. ``is_tail``: no valid batch follows in this file."""

    address: int
    end: int
    reason: str
    is_tail: bool


def batch_at(data: bytes, at: int, address: int) -> tuple[BatchHeader | None, str, int]:
    """The batch at ``data[at:]`` or None; the reason; and the bytes needed to decide (0: no more)."""
    if len(data) - at < HEADER_BYTES:
        return None, "a header that is cut off", HEADER_BYTES
    header = read_header(data, at)
    if header.base_offset != address:
        return None, f"base offset {header.base_offset}", 0
    if header.magic != MAGIC:
        return None, f"magic {header.magic}", 0
    size, count = header.size_bytes, header.count
    if size < HEADER_BYTES or count < 1 or header.last_offset_delta != count - 1:
        return None, f"length {header.batch_length}, count {count}, delta {header.last_offset_delta}", 0
    if header.attributes & 7 > CODEC_MAX:
        return None, f"codec {header.attributes & 7}", 0
    if len(data) - at < size:
        return None, f"a batch of {size} bytes that is cut off", size
    try:
        check_crc(data, at, header)
    except PeerError as error:
        return None, error.message, 0
    return header, "", 0


class Readable(Protocol):
    """A LogFile, or anything that reads like one."""

    def read_at(self, position: int, size: int) -> bytes: ...


def check_batches(
    file: Readable,
    base_address: int,
    start: int,
    end: int,
    epoch_before: int = NO_EPOCH,
    epoch_behind: int | None = None,
) -> Iterator[Found | Skipped]:
    """Every batch in addresses [start, end) of a segment file, and the invalid bytes between them.

    ``start`` must be a batch start; ``end``: end of the file, or start of the next segment. ``epoch_behind``: epoch of
    the next segment's first batch; it tells whether the last batch's epoch is too high.
    """
    epoch = epoch_before  # of the last batch yielded
    held: list[Found] = []  # one batch, or two of which the later has the lower epoch: the batch after them decides
    for event in _check_each(file, base_address, start, end):
        if isinstance(event, Skipped):
            yield from _settle(held)
            epoch = max(epoch, held[-1].header.leader_epoch) if held else epoch
            held = []
            yield event
            continue
        found = event.header.leader_epoch
        if len(held) == 2:
            first, second = held
            if found >= first.header.leader_epoch:
                yield first
                yield _skipped(second, first.header.leader_epoch)
                epoch, held = first.header.leader_epoch, []
            else:
                yield _skipped(first, second.header.leader_epoch)
                held = [second]
        if held and found >= held[0].header.leader_epoch:
            yield held[0]
            epoch, held = held[0].header.leader_epoch, [event]
        elif held and found >= epoch:
            held.append(event)
        elif held:
            yield held[0]
            yield _skipped(event, held[0].header.leader_epoch)
            epoch, held = held[0].header.leader_epoch, []
        elif found >= epoch:
            held = [event]
        else:
            yield Skipped(event.address, event.header.next_address, f"leader epoch {found} after {epoch}", False)
    if epoch_behind is not None and held and epoch <= epoch_behind:
        first = held[0]
        if epoch_behind < first.header.leader_epoch:
            yield _skipped(first, epoch_behind)
            yield from held[1:]
        else:
            yield first
            for second in held[1:]:
                yield _skipped(second, epoch_behind)
    else:
        yield from _settle(held)


def _settle(held: list[Found]) -> Iterator[Found | Skipped]:
    """Release held batches where no batch follows: an epoch that no other batch confirms is the wrong one."""
    if len(held) == 2:
        yield _skipped(held[0], held[1].header.leader_epoch)
    if held:
        yield held[-1]


def _skipped(batch: Found, epoch: int) -> Skipped:
    reason = f"leader epoch {batch.header.leader_epoch} beside {epoch}"
    return Skipped(batch.address, batch.header.next_address, reason, False)


def _check_each(file: Readable, base_address: int, start: int, end: int) -> Iterator[Found | Skipped]:
    """``check_batches`` without the comparison of epochs."""
    chunk = _Chunk(file, base_address, end)
    address = start
    while address < end:
        for found in chunk.sound_run(address):
            yield found
            address = found.header.next_address
        if address >= end:
            return
        header, reason = chunk.batch(address)
        if header is not None:
            yield Found(address, header)
            address = header.next_address
            continue
        following = chunk.search(address + 1)
        if following is None:
            yield Skipped(address, end, reason, True)
            return
        yield Skipped(address, following, reason, False)
        address = following


class _Chunk:
    """A window that moves forward over a segment file."""

    def __init__(self, file: Readable, base_address: int, end: int) -> None:
        self._file = file
        self._base_address = base_address
        self._end = end
        self._data = b""
        self._origin = base_address

    def _load(self, address: int, size: int) -> None:
        size = min(max(size, CHECK_BYTES), self._end - address)
        self._data = self._file.read_at(address - self._base_address, size)
        self._origin = address

    def sound_run(self, address: int) -> Iterator[Found]:
        """The valid batches from ``address`` on that are whole in the window; ends before the first that is not.

        Checks what ``batch`` checks, inline: start-up after a kill spends its time here.
        """
        data, origin = self._data, self._origin
        at, length = address - origin, len(self._data)
        if at < 0:
            return
        with memoryview(data) as view:
            while at + HEADER_BYTES <= length:
                header = read_header(data, at)
                base_offset, batch_length, _, magic, crc, attributes, last_delta, *_, count = header
                size = batch_length + LENGTH_PREFIX_BYTES
                end = at + size
                if base_offset != origin + at or magic != MAGIC or size < HEADER_BYTES or end > length:
                    return
                if count < 1 or last_delta != count - 1 or attributes & 7 > CODEC_MAX:
                    return
                if crc32c(view[at + CRC_FROM : end]) != crc:
                    return
                yield Found(base_offset, header)
                at += size if size > count else count

    def batch(self, address: int) -> tuple[BatchHeader | None, str]:
        """The batch at ``address``; else None and the reason."""
        at = address - self._origin
        if not 0 <= at < len(self._data):
            self._load(address, CHECK_BYTES)
            at = 0
        while True:
            header, reason, needs = batch_at(self._data, at, address)
            if header is not None or not needs or address + needs > self._end:
                return header, reason
            had = len(self._data) - at
            self._load(address, needs)
            at = 0
            if len(self._data) <= had:
                return None, reason  # the file is shorter than its directory entry says

    def search(self, address: int) -> int | None:
        """The first valid batch at or after ``address``, found by its address."""
        while address + HEADER_BYTES <= self._end:
            at = address - self._origin
            if not 0 <= at <= len(self._data) - 8:
                position = address - self._base_address
                address += max(0, next_data(self._file, position) - 7 - position)  # an address may begin with zeros
                if address >= self._end:
                    return None
                self._load(address, CHECK_BYTES)
                at = 0
                if len(self._data) < 8:
                    return None
            # Within 64 KiB the upper six bytes of the address are the same: search for them by bytes.find.
            window_end = min(((address >> 16) + 1) << 16, self._origin + len(self._data) - 7)
            prefix = (address >> 16).to_bytes(6, "big")
            data, origin = self._data, self._origin
            hit = data.find(prefix, at, window_end - origin + 5)
            while hit >= 0:
                candidate = origin + hit
                if int.from_bytes(data[hit + 6 : hit + 8], "big") == candidate & 0xFFFF:
                    header, _ = self.batch(candidate)
                    if header is not None:
                        return candidate
                    if self._origin != origin:
                        break  # a batch that reached further moved the window: continue behind the candidate
                hit = data.find(prefix, hit + 1, window_end - origin + 5)
            address = candidate + 1 if hit >= 0 else window_end
        return None
