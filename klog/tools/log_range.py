"""A part of a log in files: from an offset or a time on, up to an offset or a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from klog.client.positions import Anchor, Position
from klog.errors import UsageError
from klog.tools.log_survey import Batch, SegmentFile, Stretch, survey


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
