"""Recovers a log after a crash: decides from the bytes, then repairs.

Strategy: below the recovery point the checkpoint's summary is trusted where it agrees with the files. From there on
every batch is checked. Invalid bytes with nothing valid behind them are a torn tail, which is truncated. With a valid
batch behind them they are damage: the segment ends before them, the next begins at that batch, and ``<first
address>.damaged`` keeps the bytes and makes the hole legal.
Order of the repair: record, new segment, truncation; so a crash at any step leaves a log that recovers to the same.
At the end the files and the folder are flushed, because after a kill the page cache may hold what no disk has (rule
L1).
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import NamedTuple

from klog.storage.accounting import apply_batch, measure, restore
from klog.storage.batch_index import Anchor
from klog.storage.checking import Found, Skipped, check_batches
from klog.storage.checkpoint import LogSummary, SegmentSummary
from klog.storage.damage_record import DAMAGED_SUFFIX, DamageRecord
from klog.storage.epochs import Epochs
from klog.storage.file_pool import FilePool
from klog.storage.filesystem import COPY_BYTES, TEMPORARY_SUFFIX, FileSystem, copy_range
from klog.storage.log_end import LogEnd
from klog.storage.producers import Producers
from klog.storage.segment import Segment, base_address_of, segment_name

_log = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """A recovered log. All of it is durable."""

    segments: tuple[Segment, ...]
    epochs: Epochs
    producers: Producers
    end: LogEnd
    start_offset: int
    damages: tuple[DamageRecord, ...]
    checked_bytes: int
    fresh_damages: tuple[DamageRecord, ...]
    """Those of ``damages`` that this recovery found."""


class Recovery:
    """One log folder being recovered. Use once: ``Recovery(...).run()``."""

    def __init__(
        self, file_system: FileSystem, folder: str, pool: FilePool, now_ms: int, *, written: bool = False
    ) -> None:
        """``written``: everything was synced since the last process could write."""
        self._file_system = file_system
        self._folder = folder
        self._pool = pool
        self._now_ms = now_ms
        self._written = written
        self._sizes: dict[int, int] = {}
        self._modified_ms: dict[int, int] = {}
        self._damages: dict[int, DamageRecord] = {}
        self._fresh_damages: list[DamageRecord] = []
        self._checked_bytes = 0
        self._repaired = False

    def run(self, saved: LogSummary | None, recovery_point: int, start_offset: int | None) -> Recovered:
        """Recover. ``recovery_point`` is for a log without ``saved``; ``start_offset`` None: the first file's."""
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
        epochs.truncate(recovery_point)
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
        if self._repaired or (not self._written and (self._checked_bytes or bases[-1] not in summaries)):
            self._file_system.sync_folder(self._folder)
        if start_offset is None:
            start_offset = segments[0].base_address
        end = self._end(segments, start_offset)
        return Recovered(
            tuple(segments),
            epochs,
            producers,
            end,
            min(start_offset, end.offset),
            tuple(self._damages[first] for first in sorted(self._damages)),
            self._checked_bytes,
            tuple(self._fresh_damages),
        )

    # --- Which files ---

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
                damage = DamageRecord.parse(self._file_system.read(path) or b"")
                if damage is None:
                    _log.warning("%s is not a record of damage; the hole that it recorded is no longer legal", path)
                else:
                    self._damages[damage.first_address] = damage

    def _create(self, address: int) -> None:
        self._file_system.open(f"{self._folder}/{segment_name(address)}", create=True)
        self._file_system.sync_folder(self._folder)
        self._sizes[address] = 0
        self._modified_ms[address] = self._now_ms

    def _finish_deletion(self, saved: LogSummary | None, start_offset: int) -> None:
        """Finish a deletion that a crash interrupted: its start was made durable first (rule L4)."""
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
        """The summary without segments that disagree with the files; None if its recovery point is not in them."""
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
        """Take over a segment below the recovery point: closed, flushed and checked before."""
        segment.size = segment.flushed_size = self._sizes[segment.base_address]
        if summary is not None:
            restore(segment, summary)
            self._close_gap(segment, following)  # a segment was lost since
            return
        # Unknown and marked so: the walk that counts it runs after the start.
        segment.count = None
        segment.has_holes = True
        hole = next((one for one in self._damages.values() if one.end_address == following), None)
        segment.end_address = segment.end_offset = hole.first_address if hole else following

    def _is_legal(self, end: int, following: int) -> bool:
        """Whether a segment may begin at ``following`` after one that ends at ``end``: directly, or behind holes."""
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
            known = Anchor(segment.end_address, segment.count or 0, segment.max_timestamp_ms, segment.end_offset)
            segment.index.remember(known)
            segment.index.start_dense(segment.count or 0)
            start = segment.end_address
        checked_from = segment.size
        end = base + file_size if following is None else min(base + file_size, following)
        behind = None if following is None else self._first_epoch(following)
        for event in check_batches(segment.file, base, start, end, epochs.last, behind) if start < end else ():
            if isinstance(event, Found):
                apply_batch(segment, event.address, event.header, epochs, producers)
            elif event.is_tail or event.end >= end:
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
            if self._written and file_size == segment.size:
                segment.file.confirm()
            else:
                segment.file.sync()
        segment.flushed_size = segment.size

    def _first_epoch(self, base: int) -> int | None:
        """The epoch of a segment's first batch; None if that is invalid."""
        segment = self._segment(base)
        end = base + self._sizes[base]
        first = next(check_batches(segment.file, base, base, end), None) if base < end else None
        segment.close()
        return first.header.leader_epoch if isinstance(first, Found) else None

    def _has_split_at(self, segment: Segment, following: int) -> bool:
        """Whether a split put a segment between this one and ``following``."""
        return any(segment.base_address < base < following for base in self._sizes)

    def _split(self, segment: Segment, skipped: Skipped) -> None:
        """Record the damage, and move what lies behind it to a new segment."""
        self._record(segment, DamageRecord(skipped.address, skipped.end, skipped.reason))
        base = segment.base_address
        size = self._sizes[base] - (skipped.end - base)
        if skipped.end in self._sizes or size <= 0:
            return
        target = f"{self._folder}/{segment_name(skipped.end)}"
        copy_range(self._file_system, segment.file, skipped.end - base, size, target)
        self._sizes[skipped.end] = size
        self._modified_ms[skipped.end] = self._modified_ms[base]

    def _record(self, segment: Segment, damage: DamageRecord) -> None:
        self._repaired = True
        self._damages[damage.first_address] = damage
        self._fresh_damages.append(damage)
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
            "%s: cut %d bytes from address %d on that are not a whole batch",
            segment.path,
            file_size - segment.size,
            segment.end_address,
        )
        segment.file.truncate(segment.size)
        self._sizes[segment.base_address] = segment.size
        self._repaired = True

    def _close_gap(self, segment: Segment, following: int) -> None:
        """Between a checked segment's end and the next segment, allow only a recorded hole."""
        if self._is_legal(segment.end_address, following):
            return
        if following == max(self._sizes) and self._sizes[following] == 0:
            # Nothing was ever written behind the lost part: an end, not a hole.
            self._file_system.remove(f"{self._folder}/{segment_name(following)}")
            self._file_system.sync_folder(self._folder)
            del self._sizes[following]
            return
        self._record(segment, DamageRecord(segment.end_address, following, "bytes that are missing"))

    def _drop_empty(self, segment: Segment, before: list[Segment], following: int | None) -> None:
        """Drop an empty segment in the middle: the holes on both sides of it become one."""
        if segment.size or following is None or not before or following not in self._sizes:
            return
        segment.close()
        self._file_system.remove(segment.path)
        self._file_system.sync_folder(self._folder)
        del self._sizes[segment.base_address]

    def _end(self, segments: list[Segment], start_offset: int) -> LogEnd:
        """The end offset: the last record + 1, or the log start offset if all records are gone (rule L4)."""
        address = segments[-1].end_address
        for segment in reversed(segments):
            if segment.count is None:
                measure(segment)
            if segment.size:
                return LogEnd(address, max(segment.end_offset, min(start_offset, address)))
        return LogEnd(address, min(start_offset, address))
