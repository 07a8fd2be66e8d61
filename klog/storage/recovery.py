"""What a log is after a crash: decided from the bytes, then made so.

Strategy: below the recovery point the summary of the checkpoint is believed where it agrees with the files. From there
on every batch is checked: own address, sane header, CRC, an epoch not below the one before (rule L2: the epoch lies
outside the CRC). What does not check and has nothing valid behind it is a torn tail and is cut. With a valid batch
behind it, it is damage: the segment ends before it, the next begins at that batch, and ``<first address>.damaged``
keeps the bytes and makes the hole legal.
Order of the repair, so that a crash at any step leaves a log that recovers to the same: record, new segment, cut.
At the end the files and the folder are flushed, because a kill leaves in the page cache what no disk has (rule L1).
Limits: one batch and one chunk are in memory at a time. A payload can be made to look like a batch, so the search for
the next one runs over damage only, never for a read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from klog.errors import PeerError
from klog.record.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from klog.storage.batch_index import Anchor
from klog.storage.checkpoint import LogSummary, SegmentSummary
from klog.storage.epochs import NO_EPOCH, Epochs, EpochStart
from klog.storage.file_pool import FilePool
from klog.storage.filesystem import COPY_BYTES, TEMPORARY_SUFFIX, FileSystem
from klog.storage.log_end import LogEnd
from klog.storage.producers import NO_PRODUCER, Producer, Producers
from klog.storage.segment import Segment, base_address_of, segment_name

_log = logging.getLogger(__name__)

CHECK_BYTES: Final = 1 << 20
MEASURE_BATCHES: Final = 10_000
"""About 10 ms of walking."""
DAMAGED_SUFFIX: Final = ".damaged"
_DAMAGED_MAGIC: Final = "klog-damaged"
MAGIC: Final = 2
CODEC_MAX: Final = 4


class Damage(NamedTuple):
    """Addresses [first, end) that hold no batch any more: one ``<first>.damaged`` file.

    The file is one line, ``klog-damaged 1 <first> <end> <reason>``, then the bytes that were there, a MiB at most.
    """

    first_address: int
    end_address: int
    reason: str

    @property
    def file_name(self) -> str:
        return f"{self.first_address:020d}{DAMAGED_SUFFIX}"

    def render(self, data: bytes) -> bytes:
        return f"{_DAMAGED_MAGIC} 1 {self.first_address} {self.end_address} {self.reason}\n".encode() + data

    @classmethod
    def parse(cls, data: bytes) -> Damage | None:
        """None where the file is no damage record."""
        head = data.split(b"\n", 1)[0].decode("utf-8", "replace").split(" ", 4)
        if len(head) != 5 or head[:2] != [_DAMAGED_MAGIC, "1"] or not (head[2] + head[3]).isdecimal():
            return None
        return cls(int(head[2]), int(head[3]), head[4])


class Found(NamedTuple):
    """A batch that checks."""

    address: int
    header: BatchHeader


class Skipped(NamedTuple):
    """Bytes from ``address`` up to ``end`` that are no batch; ``is_tail``: nothing valid follows in this file."""

    address: int
    end: int
    reason: str
    is_tail: bool


class Recovered(NamedTuple):
    """A log as it was found and, where needed, repaired. All of it is durable."""

    segments: tuple[Segment, ...]
    epochs: Epochs
    producers: Producers
    end: LogEnd
    start_offset: int
    damages: tuple[Damage, ...]
    checked_bytes: int
    cut_bytes: int
    repaired: bool


def batch_at(data: bytes, at: int, address: int, epoch_min: int) -> tuple[BatchHeader | None, str, int]:
    """The batch at ``data[at:]`` if it checks, else why not, and how many bytes it would take to tell (0: no more)."""
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
    if header.leader_epoch < epoch_min:
        return None, f"leader epoch {header.leader_epoch} below {epoch_min}", 0
    return header, "", 0


class Readable(Protocol):
    """What is checked: a LogFile, or something that reads like one."""

    def read_at(self, position: int, size: int) -> bytes: ...


def check_batches(
    file: Readable, base_address: int, start: int, end: int, epoch_before: int = NO_EPOCH
) -> Iterator[Found | Skipped]:
    """Every batch in addresses [start, end) of a segment file, and what lies between them that is none.

    ``start`` is believed to be a batch start; ``end`` is the end of the file, or where the next segment begins.
    """
    pending: Found | None = None  # held back by one: only the next batch shows that an epoch was too high
    epoch = epoch_before  # of the batch before the pending one
    for event in _check_each(file, base_address, start, end, epoch_before):
        if isinstance(event, Found) and pending is not None:
            found, before = event.header.leader_epoch, pending.header.leader_epoch
            if found < before:
                if found >= epoch:
                    yield Skipped(pending.address, event.address, f"leader epoch {before} before {found}", False)
                    pending = event
                else:
                    yield pending
                    pending, epoch = None, before
                    # The batch itself is the odd one; the hole reaches to the next batch or the end of the file.
                    yield Skipped(
                        event.address, event.header.next_address, f"leader epoch {found} after {before}", False
                    )
                continue
            yield pending
            epoch, pending = before, event
        elif isinstance(event, Found):
            if event.header.leader_epoch < epoch:
                yield Skipped(
                    event.address,
                    event.header.next_address,
                    f"leader epoch {event.header.leader_epoch} after {epoch}",
                    False,
                )
            else:
                pending = event
        else:
            if pending is not None:
                yield pending
                epoch, pending = pending.header.leader_epoch, None
            yield event
    if pending is not None:
        yield pending


def _check_each(file: Readable, base_address: int, start: int, end: int, epoch_min: int) -> Iterator[Found | Skipped]:
    """``check_batches`` without the comparison of neighbours' epochs."""
    chunk = _Chunk(file, base_address, end)
    address = start
    while address < end:
        header, reason = chunk.batch(address, epoch_min)
        if header is not None:
            yield Found(address, header)
            address = header.next_address
            continue
        following = chunk.search(address + 1, epoch_min)
        if following is None:
            yield Skipped(address, end, reason, True)
            return
        yield Skipped(address, following, reason, False)
        address = following


class _Chunk:
    """A window over a segment file that moves forward."""

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

    def batch(self, address: int, epoch_min: int) -> tuple[BatchHeader | None, str]:
        """The batch at ``address`` if it checks, and why not otherwise."""
        at = address - self._origin
        if not 0 <= at < len(self._data):
            self._load(address, CHECK_BYTES)
            at = 0
        while True:
            header, reason, needs = batch_at(self._data, at, address, epoch_min)
            if header is not None or not needs or address + needs > self._end:
                return header, reason
            had = len(self._data) - at
            self._load(address, needs)
            at = 0
            if len(self._data) <= had:
                return None, reason  # the file is shorter than its folder entry says

    def search(self, address: int, epoch_min: int) -> int | None:
        """The first valid batch at or after ``address``: its first eight bytes are its own address."""
        while address + HEADER_BYTES <= self._end:
            at = address - self._origin
            if not 0 <= at <= len(self._data) - 8:
                self._load(address, CHECK_BYTES)
                at = 0
                if len(self._data) < 8:
                    return None
            # Within 64 KiB the upper six bytes of the address are the same, so bytes.find does the looking.
            window_end = min(((address >> 16) + 1) << 16, self._origin + len(self._data) - 7)
            prefix = (address >> 16).to_bytes(6, "big")
            data, origin = self._data, self._origin
            hit = data.find(prefix, at, window_end - origin + 5)
            while hit >= 0:
                candidate = origin + hit
                if int.from_bytes(data[hit + 6 : hit + 8], "big") == candidate & 0xFFFF:
                    header, _ = self.batch(candidate, epoch_min)
                    if header is not None:
                        return candidate
                    if self._origin != origin:
                        break  # a batch that reached further moved the window: look on from behind the candidate
                hit = data.find(prefix, hit + 1, window_end - origin + 5)
            address = candidate + 1 if hit >= 0 else window_end
        return None


class Recovery:
    """One log folder being recovered. Use once: ``Recovery(...).run()``."""

    def __init__(self, file_system: FileSystem, folder: str, pool: FilePool, now_ms: int) -> None:
        self._file_system = file_system
        self._folder = folder
        self._pool = pool
        self._now_ms = now_ms
        self._sizes: dict[int, int] = {}
        self._modified_ms: dict[int, int] = {}
        self._damages: dict[int, Damage] = {}
        self._checked_bytes = 0
        self._cut_bytes = 0
        self._repaired = False

    def run(self, saved: LogSummary | None, recovery_point: int, start_offset: int | None) -> Recovered:
        """Recover. ``recovery_point`` counts where there is no ``saved``; ``start_offset`` None: the first file's."""
        self._scan()
        if not self._sizes:
            self._create(start_offset or 0)
        if start_offset is not None:
            self._finish_deletion(saved, start_offset)
        believed = self._agreed(saved)
        summaries = {row.base_address: row for row in believed.segments} if believed else {}
        if believed is not None:
            recovery_point = believed.recovery_point
        epochs = Epochs(believed.epochs if believed else ())
        producers = Producers(dict(believed.producers) if believed else None)
        segments: list[Segment] = []
        bases = sorted(self._sizes)
        while len(segments) < len(bases):
            base = bases[len(segments)]
            following = bases[len(segments) + 1] if len(segments) + 1 < len(bases) else None
            segment = self._segment(base)
            summary = summaries.get(base)
            if following is not None and following <= recovery_point:
                self._believe(segment, summary, following)
            else:
                self._check(segment, summary, following, epochs, producers)
                self._drop_empty(segment, segments, following)
            segments.append(segment)
            bases = sorted(self._sizes)
            segments = [one for one in segments if one.base_address in self._sizes]
        end = self._end(segments, start_offset)
        if start_offset is None:
            start_offset = segments[0].base_address
        return Recovered(
            tuple(segments),
            epochs,
            producers,
            end,
            min(start_offset, end.offset),
            tuple(self._damages[first] for first in sorted(self._damages)),
            self._checked_bytes,
            self._cut_bytes,
            self._repaired,
        )

    # --- What is there ---

    def _scan(self) -> None:
        for entry in self._file_system.scan(self._folder):
            path = f"{self._folder}/{entry.name}"
            base = base_address_of(entry.name)
            if base is not None:
                self._sizes[base] = entry.size
                self._modified_ms[base] = entry.modified_ms
            elif entry.name.endswith(TEMPORARY_SUFFIX):
                self._file_system.remove(path)
            elif entry.name.endswith(DAMAGED_SUFFIX):
                damage = Damage.parse(self._file_system.read(path) or b"")
                if damage is None:
                    _log.warning("%s is no record of damage; a hole that it stood for is no longer legal", path)
                else:
                    self._damages[damage.first_address] = damage

    def _create(self, address: int) -> None:
        self._file_system.open(f"{self._folder}/{segment_name(address)}", create=True)
        self._file_system.sync_folder(self._folder)
        self._sizes[address] = 0
        self._modified_ms[address] = self._now_ms

    def _finish_deletion(self, saved: LogSummary | None, start_offset: int) -> None:
        """A deletion that a crash cut off: its start was kept first (rule L4), so the rest follows from it."""
        ends = {one.base_address: one.end_offset for one in saved.segments[:-1]} if saved else {}
        bases = sorted(self._sizes)
        removed = False
        for base, following in pairwise(bases):
            if following > start_offset and ends.get(base, following) > start_offset:
                break
            self._file_system.remove(f"{self._folder}/{segment_name(base)}")
            del self._sizes[base]
            removed = True
        if removed:
            self._file_system.sync_folder(self._folder)

    def _agreed(self, saved: LogSummary | None) -> LogSummary | None:
        """The summary, if its recovery point lies in the files; segments that disagree are left out of it."""
        if saved is None:
            return None
        *closed, last = saved.segments
        if last.base_address < min(self._sizes):  # retention has removed all of it since; the rest is checked
            return saved._replace(segments=(last,))
        if self._sizes.get(last.base_address, -1) < last.size:
            _log.warning(
                "%s: the checkpoint knows %d bytes of segment %d, the file has %d: checking the whole log",
                self._folder,
                last.size,
                last.base_address,
                self._sizes.get(last.base_address, 0),
            )
            return None
        kept = [one for one in closed if self._sizes.get(one.base_address) == one.size]
        return saved._replace(segments=(*kept, last))

    def _segment(self, base: int) -> Segment:
        segment = Segment(self._file_system, self._folder, base, self._pool)
        segment.modified_ms = self._modified_ms[base]
        segment.created_ms = segment.modified_ms
        segment.name_is_durable = True
        return segment

    def _believe(self, segment: Segment, summary: SegmentSummary | None, following: int) -> None:
        """A segment below the recovery point: closed, flushed and checked when it was."""
        segment.size = segment.flushed_size = self._sizes[segment.base_address]
        if summary is not None and self._is_legal(summary.end_address, following):
            restore(segment, summary)
            return
        # Not known, so said to be: the walk that fills it in runs behind the start.
        segment.count = None
        segment.has_holes = True
        hole = next((one for one in self._damages.values() if one.end_address == following), None)
        segment.end_address = segment.end_offset = hole.first_address if hole else following

    def _is_legal(self, end: int, following: int) -> bool:
        """Whether the segment after one that ends at ``end`` may begin at ``following``: at once, or behind holes."""
        while end < following and end in self._damages:
            end = max(self._damages[end].end_address, end + 1)
        return end == following

    # --- What is checked ---

    def _check(
        self,
        segment: Segment,
        summary: SegmentSummary | None,
        following: int | None,
        epochs: Epochs,
        producers: Producers,
    ) -> None:
        base, file_size = segment.base_address, self._sizes[segment.base_address]
        start = base
        if summary is not None:
            restore(segment, summary)
            segment.index.remember(Anchor(segment.end_address, segment.count or 0, segment.max_timestamp_ms))
            segment.index.start_dense(segment.count or 0)
            start = segment.end_address
        checked_from = segment.size
        end = base + file_size if following is None else min(base + file_size, following)
        for event in check_batches(segment.file, base, start, end, epochs.last) if start < end else ():
            if isinstance(event, Found):
                take_in(segment, event.address, event.header, epochs, producers)
            elif event.is_tail:
                break
            else:
                self._split(segment, event)
                break
        self._checked_bytes += file_size - checked_from
        if segment.base_address + file_size > segment.base_address + segment.size:
            self._cut(segment, file_size)
        if following is not None and following in self._sizes and not self._has_split_at(segment, following):
            self._close_gap(segment, following)
        if checked_from != segment.size or file_size != segment.size:
            segment.file.sync()
        segment.flushed_size = segment.size

    def _has_split_at(self, segment: Segment, following: int) -> bool:
        """Whether a split put a segment between this one and ``following``."""
        return any(segment.base_address < base < following for base in self._sizes)

    def _split(self, segment: Segment, skipped: Skipped) -> None:
        """Record the damage and move what lies behind it to a segment of its own."""
        self._record(segment, Damage(skipped.address, skipped.end, skipped.reason))
        base = segment.base_address
        target = f"{self._folder}/{segment_name(skipped.end)}"
        size = self._sizes[base] - (skipped.end - base)
        if skipped.end in self._sizes or size <= 0:
            return
        self._file_system.remove(target + TEMPORARY_SUFFIX)
        copy = self._file_system.open(target + TEMPORARY_SUFFIX, create=True)
        for at in range(0, size, COPY_BYTES):
            copy.write_at(at, segment.file.read_at(skipped.end - base + at, min(COPY_BYTES, size - at)))
        copy.sync()
        self._file_system.rename(target + TEMPORARY_SUFFIX, target)
        self._sizes[skipped.end] = size
        self._modified_ms[skipped.end] = self._modified_ms[base]

    def _record(self, segment: Segment, damage: Damage) -> None:
        self._repaired = True
        self._damages[damage.first_address] = damage
        position = damage.first_address - segment.base_address
        size = min(damage.end_address - damage.first_address, COPY_BYTES)
        data = segment.file.read_at(position, size)
        self._file_system.replace(f"{self._folder}/{damage.file_name}", damage.render(data))
        _log.error(
            "%s: addresses %d to %d are damaged (%s); kept in %s",
            segment.path,
            damage.first_address,
            damage.end_address,
            damage.reason,
            damage.file_name,
        )

    def _cut(self, segment: Segment, file_size: int) -> None:
        _log.warning(
            "%s: cut %d bytes that are no whole batch from address %d",
            segment.path,
            file_size - segment.size,
            segment.end_address,
        )
        segment.file.truncate(segment.size)
        self._cut_bytes += file_size - segment.size
        self._sizes[segment.base_address] = segment.size
        self._repaired = True

    def _close_gap(self, segment: Segment, following: int) -> None:
        """Between the end of a checked segment and the next one only a recorded hole is legal."""
        if self._is_legal(segment.end_address, following):
            return
        if following == max(self._sizes) and self._sizes[following] == 0:
            # Nothing was ever written behind the part that was lost: no hole, just an end.
            self._file_system.remove(f"{self._folder}/{segment_name(following)}")
            self._file_system.sync_folder(self._folder)
            del self._sizes[following]
            return
        self._record(segment, Damage(segment.end_address, following, "bytes that are missing"))

    def _drop_empty(self, segment: Segment, before: list[Segment], following: int | None) -> None:
        """A segment in the middle of which nothing was left: the hole on both sides of it is one."""
        if segment.size or following is None or not before or following not in self._sizes:
            return
        segment.close()
        self._file_system.remove(segment.path)
        self._file_system.sync_folder(self._folder)
        del self._sizes[segment.base_address]

    def _end(self, segments: list[Segment], start_offset: int | None) -> LogEnd:
        last = segments[-1]
        if last.size:
            return LogEnd(last.end_address, last.end_offset)
        for segment in reversed(segments[:-1]):
            if segment.count is None:
                measure(segment)
            if segment.size:
                return LogEnd(last.end_address, segment.end_offset)
        start = start_offset if start_offset is not None else last.base_address
        return LogEnd(last.end_address, min(start, last.end_address))


def take_in(segment: Segment, address: int, header: BatchHeader, epochs: Epochs, producers: Producers) -> None:
    """Account for one batch of the log."""
    if header.leader_epoch > epochs.last:
        epochs.begin(header.leader_epoch, LogEnd(address, segment.end_offset))
    if header.producer_id != NO_PRODUCER:
        producers.written(address, header)
    segment.appended(address, header)


def restore(segment: Segment, summary: SegmentSummary) -> None:
    """Take over what the checkpoint knows of a segment."""
    segment.end_address = summary.end_address
    segment.end_offset = summary.end_offset
    segment.size = segment.flushed_size = summary.size
    segment.count = summary.count
    segment.max_timestamp_ms = summary.max_timestamp_ms
    segment.max_timestamp_address = summary.max_timestamp_address
    segment.has_holes = summary.has_holes
    segment.created_ms = summary.created_ms


def summarize(segment: Segment) -> SegmentSummary | None:
    """What the checkpoint keeps of a segment; None while its count is unknown."""
    if segment.count is None:
        return None
    return SegmentSummary(
        segment.base_address,
        segment.end_address,
        segment.end_offset,
        segment.size,
        segment.count,
        segment.max_timestamp_ms,
        segment.max_timestamp_address,
        segment.has_holes,
        segment.created_ms,
    )


class Rebuilt(NamedTuple):
    """What the walk over segments without a summary found, oldest first."""

    epochs: tuple[EpochStart, ...]
    producers: dict[int, Producer]


def measure(segment: Segment, pause: Callable[[], object] = lambda: None) -> Rebuilt:
    """Walk a closed segment of which nothing is known and fill it in. Blocks for the length of the file; any thread.

    ``pause`` is called every ``MEASURE_BATCHES`` batches, for the sake of other threads.
    """
    epochs, producers = Epochs(), Producers()
    count, end, max_timestamp_ms, max_at, has_holes = 0, segment.base_address, -1, segment.base_address, False
    for number, (anchor, header) in enumerate(segment.remembering_walk(segment.base_address)):
        epochs.begin(header.leader_epoch, LogEnd(anchor.address, end))
        if header.producer_id != NO_PRODUCER:
            producers.written(anchor.address, header)
        count += header.count
        end = anchor.address + header.count
        has_holes = has_holes or header.count > header.size_bytes
        if header.max_timestamp_ms > max_timestamp_ms:
            max_timestamp_ms, max_at = header.max_timestamp_ms, anchor.address
        if number % MEASURE_BATCHES == 0:
            pause()
    segment.end_offset = end
    segment.max_timestamp_ms, segment.max_timestamp_address = max_timestamp_ms, max_at
    segment.has_holes = has_holes
    segment.count = count  # last: from here on the rest is believed
    return Rebuilt(epochs.starts, producers.snapshot())
