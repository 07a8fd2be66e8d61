"""What lies in segment files, read from outside: every batch, and every stretch of addresses between them.

The eye is recovery's: what recovery would keep is a batch here, what it would skip is not. Every batch carries its own
address, so damage of any size ends at the next valid batch. Nothing is ever written, and no broker is asked; one may be
appending meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from klog.client.positions import Anchor, Position
from klog.errors import LogDirLocked, NoSuchThing, Refused, StorageError, UsageError
from klog.record.batch import BatchHeader
from klog.storage.checking import Found, check_batches
from klog.storage.damage_record import DAMAGED_SUFFIX, DamageRecord
from klog.storage.epochs import NO_EPOCH
from klog.storage.filesystem import NO_LINKS, OsFileSystem, OsLogFile, open_to_read
from klog.storage.log_dir import LOCK
from klog.storage.partition_folder import parse_folder_name
from klog.storage.segment import base_address_of

DAMAGE_HEAD_BYTES: Final = 4096
"""Of a ``.damaged`` file: its first line and no more than that."""


class State(StrEnum):
    """What a stretch of addresses is."""

    OK = "ok"
    DAMAGED = "damaged"  # bytes that are not a batch, with a valid batch behind them or a segment after theirs
    TORN = "torn"  # the end of the last segment: a batch that was not written whole
    MISSING = "missing"  # no bytes, and no record of why
    OVERLAP = "overlap"  # bytes at addresses that belong to the next segment
    HOLE = "hole"  # addresses that a ``.damaged`` file accounts for


FAULTS: Final = frozenset({State.DAMAGED, State.TORN, State.MISSING, State.OVERLAP})


class SegmentFile(NamedTuple):
    path: str
    base_address: int
    size: int


class Batch(NamedTuple):
    """A batch that checks."""

    file: str
    header: BatchHeader

    @property
    def address(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        return self.header.next_address


class Stretch(NamedTuple):
    """Addresses [address, end) that hold no batch; ``bytes`` of them are in ``file``."""

    file: str
    address: int
    end: int
    bytes: int
    state: State
    reason: str


class Meter:
    """How far a survey is, in bytes of files: written by the thread that reads, read by others. `stop` ends it."""

    def __init__(self) -> None:
        self.total = 0
        self.done = 0
        self._is_stopped = False

    def stop(self) -> None:
        """The next event is the last."""
        self._is_stopped = True

    def expect(self, folders: Iterable[tuple[str, list[SegmentFile]]]) -> None:
        self.total += sum(segment.size for _, segments in folders for segment in segments)

    def over(self, events: Iterator[Batch | Stretch]) -> Iterator[Batch | Stretch]:
        """The same events, counted. Raises Stopped."""
        for event in events:
            if self._is_stopped:
                raise Stopped
            yield event
            self.done += event.header.size_bytes if isinstance(event, Batch) else event.bytes


@contextmanager
def locked(log_dir: Path, hint: str) -> Iterator[None]:
    """No broker starts on it meanwhile. LogDirLocked where one runs."""
    try:
        held = OsFileSystem().lock(str(log_dir / LOCK))
    except LogDirLocked as error:
        raise LogDirLocked(f"{log_dir} is in use by a broker: {error.message}", hint=hint) from None
    try:
        yield
    finally:
        held.release()


class Stopped(Exception):
    """A survey was ended by `Meter.stop`."""


def find_folders(path: str | os.PathLike[str]) -> list[tuple[str, list[SegmentFile]]]:
    """Folders with their segment files in the order of addresses: of one file, one partition, or a whole log dir.

    NoSuchThing where there is none, UsageError for a file that is not a segment, Refused for a link below ``path``.
    """
    root = Path(path).resolve()  # the folder's own log dir holds the lock
    if root.is_file():
        base = base_address_of(root.name)
        if base is None:
            raise UsageError(
                f"{root} is not a segment file",
                hint="their names are twenty digits, the first address, and '.log'",
            )
        return [(str(root.parent), [SegmentFile(str(root), base, root.stat().st_size)])]
    if not root.is_dir():
        raise NoSuchThing(f"{root}: no such file or folder")
    found = _segments(root)
    if found:
        return [(str(root), found)]
    folders = [(str(folder), _segments(folder)) for folder in sorted(root.iterdir(), key=_by_partition)]
    if not (folders := [(folder, segments) for folder, segments in folders if segments]):
        raise NoSuchThing(f"{root} holds no segment files, nor do the folders in it")
    return folders


def _segments(folder: Path) -> list[SegmentFile]:
    found = []
    if folder.is_dir():
        for entry in folder.iterdir():
            base = base_address_of(entry.name)
            for link in (folder, entry) if base is not None else ():
                if link.is_symlink():
                    raise Refused(f"{link} is a link", hint=NO_LINKS)
            if base is not None and entry.is_file():
                found.append(SegmentFile(str(entry), base, entry.stat().st_size))
    return sorted(found, key=lambda one: one.base_address)


def _by_partition(folder: Path) -> tuple[str, int]:
    name = parse_folder_name(folder.name)
    return (name.topic, name.partition) if name else (folder.name, -1)


def read_damages(folder: str) -> dict[int, DamageRecord]:
    """The recorded holes of a folder, by their first addresses."""
    damages = {}
    for entry in Path(folder).glob(f"*{DAMAGED_SUFFIX}"):
        damage = DamageRecord.parse(open_to_read(str(entry)).read_at(0, DAMAGE_HEAD_BYTES))
        if damage is not None:
            damages[damage.first_address] = damage
    return damages


def survey(folder: str, segments: list[SegmentFile]) -> Iterator[Batch | Stretch]:
    """All of a folder's addresses from the first segment's on, in their order."""
    damages = read_damages(folder)
    at, epoch = segments[0].base_address, NO_EPOCH
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_address if number + 1 < len(segments) else None
        if segment.base_address > at:
            yield from _gap(segment.path, at, segment.base_address, damages)
        at = segment.base_address
        try:
            for event in _survey_file(open_to_read(segment.path), segment, following, epoch):
                if isinstance(event, Batch):
                    epoch = event.header.leader_epoch
                yield event
                at = event.end
        except StorageError as error:  # a disk that no longer reads these bytes
            end = max(segment.base_address + segment.size, at + 1)
            yield Stretch(segment.path, at, end, end - at, State.DAMAGED, error.message)
            at = end
        if following is not None:
            # What a batch with more records than bytes takes beyond its file is not an overlap.
            at = min(at, following)


def _survey_file(file: OsLogFile, segment: SegmentFile, following: int | None, epoch: int) -> Iterator[Batch | Stretch]:
    base = segment.base_address
    start, size = base, segment.size
    while True:
        end = base + size if following is None else min(base + size, following)
        tail: Stretch | None = None
        for event in check_batches(file, base, start, end, epoch):
            if isinstance(event, Found):
                epoch = event.header.leader_epoch
                yield Batch(segment.path, event.header)
            elif event.is_tail and following is None:
                tail = Stretch(segment.path, event.address, event.end, end - event.address, State.TORN, event.reason)
            else:
                there = min(event.end, end) - event.address
                yield Stretch(segment.path, event.address, event.end, there, State.DAMAGED, event.reason)
        if tail is None:
            break
        if (grown := file.size()) == size:
            yield tail
            break
        # A broker was in the middle of an append when the size was taken.
        start, size = tail.address, grown
    beyond = base + size - end
    if beyond > 0:
        reason = f"the next segment begins at {following}"
        yield Stretch(segment.path, end, end + beyond, beyond, State.OVERLAP, reason)


def _gap(path: str, start: int, end: int, damages: dict[int, DamageRecord]) -> Iterator[Stretch]:
    """Addresses between two segments: accounted for by records one behind the other, or missing."""
    holes = []
    at = start
    while at < end and (damage := damages.get(at)) is not None and damage.end_address > at:
        file = f"{Path(path).parent}/{damage.file_name}"
        holes.append(Stretch(file, at, damage.end_address, 0, State.HOLE, damage.reason))
        at = damage.end_address
    if at == end:
        yield from holes
    else:
        yield Stretch(path, start, end, 0, State.MISSING, "no bytes, and no record of why")


@dataclass(frozen=True, slots=True)
class LogRange:
    """None: no limit there.

    As with ListOffsets, a time is the place of the first message that is not older than it. What follows is in the
    range, whatever its time.
    """

    from_offset: int | None = None
    from_ms: int | None = None
    to_offset: int | None = None
    to_ms: int | None = None

    @classmethod
    def of(cls, begin: Position | None, end: Position | None) -> LogRange:
        """Raises UsageError for positions that are not offsets or times, and where the end is not above the start."""
        from_offset, from_ms = _limits(begin, "--from", Anchor.START)
        to_offset, to_ms = _limits(end, "--to", Anchor.END)
        for low, high in ((from_offset, to_offset), (from_ms, to_ms)):
            if low is not None and high is not None and low >= high:
                raise UsageError(f"--from must be below --to, got {begin} and {end}")
        return cls(from_offset, from_ms, to_offset, to_ms)

    def survey(self, folder: str, segments: list[SegmentFile]) -> Iterator[Batch | Stretch]:
        """The batches of a folder that reach into the range, and what is between them.

        Files below or above a range of offsets are not read. Until a time has come, nothing but batches is looked at.
        """
        if self.from_offset is not None:
            # The last segment that begins at or below it has it.
            below = [one for one in segments if one.base_address <= self.from_offset]
            segments = segments[max(0, len(below) - 1) :]
        if self.to_offset is not None:
            segments = [one for one in segments if one.base_address < self.to_offset]
        has_begun = self.from_ms is None
        for event in survey(folder, segments) if segments else ():
            if self.to_offset is not None and event.address >= self.to_offset:
                return
            if self.from_offset is not None and event.end <= self.from_offset:
                continue
            newest_ms = event.header.max_timestamp_ms if isinstance(event, Batch) else None
            if not has_begun:
                if newest_ms is None or self.from_ms is None or newest_ms < self.from_ms:
                    continue
                has_begun = True
            is_last = self.to_ms is not None and newest_ms is not None and newest_ms >= self.to_ms
            if is_last and isinstance(event, Batch) and self.to_ms is not None:
                if event.header.base_timestamp_ms < self.to_ms:
                    yield event
                return
            yield event


EVERYTHING: Final = LogRange()


def _limits(position: Position | None, flag: str, whole: Anchor) -> tuple[int | None, int | None]:
    if position is None or position.anchor is whole:
        return None, None
    if position.anchor is Anchor.OFFSET:
        return position.value, None
    if position.anchor is Anchor.TIME:
        return None, position.value
    raise UsageError(
        f"{flag} {position} is not an offset or a time", hint=f"1000, @-1h, @2026-02-01T10:00:00Z, {whole.value}"
    )
