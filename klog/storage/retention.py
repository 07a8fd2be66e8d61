"""Decides which segments retention deletes; `Log` does it.

Rule L7: a jump of the wall clock must not delete a week. ``RetentionClock`` compares it with a monotonic clock.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.storage.segment import Segment

CLOCKS_APART_MS_MAX: Final = 60_000


class Deletion(NamedTuple):
    """The oldest segments, and the log start offset without them: the last removed record + 1 (rule L4)."""

    segments: tuple[Segment, ...]
    start_offset: int
    reason: str

    def __str__(self) -> str:
        return f"{len(self.segments)} segments removed ({self.reason})"


def newest_ms(segment: Segment, now_ms: int) -> int:
    """The time of a segment's newest message: its timestamp, or the file's time if no timestamp is usable.

    Timestamps ahead of the clock are not usable: a single message of the year 9999 would keep its segment, and all
    behind it, until then.
    """
    return segment.max_timestamp_ms if 0 <= segment.max_timestamp_ms <= now_ms else segment.modified_ms


def is_expired(segment: Segment, now_ms: int, retention_ms: int) -> bool:
    """Whether all of a segment is older than the retention. Empty ones are not."""
    return segment.size > 0 and now_ms - newest_ms(segment, now_ms) > retention_ms


def decide_deletion(
    segments: tuple[Segment, ...],
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    limit_address: int,
) -> Deletion | None:
    """The oldest closed segments beyond the retention time or size; None without any.

    Never the last segment, never one that reaches beyond ``limit_address`` (the high watermark), never one that is not
    counted yet: the new log start offset needs its last record. Negative limits: none.
    """
    surplus = sum(segment.size for segment in segments) - retention_bytes
    removed = 0
    by_time = by_size = False
    for segment in segments[:-1]:
        if segment.count is None or segment.end_address > limit_address:
            break
        old = retention_ms >= 0 and is_expired(segment, now_ms, retention_ms)
        large = retention_bytes >= 0 and surplus >= segment.size
        if not old and not large and segment.size:
            break
        by_time, by_size = by_time or old, by_size or (large and not old)
        surplus -= segment.size
        removed += 1
    if not removed:
        return None
    reasons = [f"older than {retention_ms} ms"] * by_time + [f"more than {retention_bytes} bytes"] * by_size
    start_offset = max((segment.end_offset for segment in segments[:removed] if segment.size), default=0)
    return Deletion(segments[:removed], start_offset, " and ".join(reasons) or "empty")


class RetentionClock:
    """Detects jumps of the wall clock (rule L7). One per broker."""

    def __init__(self, wall_ms: int, monotonic_ms: int) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def doubt(self, wall_ms: int, monotonic_ms: int) -> str | None:
        """Why retention by time must not run now; None if it may: then the next comparison begins here.

        While the clocks disagree the old comparison stays, so retention pauses until the wall clock is set right or the
        broker is restarted.
        """
        apart_ms = (wall_ms - self._wall_ms) - (monotonic_ms - self._monotonic_ms)
        if abs(apart_ms) > CLOCKS_APART_MS_MAX:
            return (
                f"the wall clock moved {apart_ms / 1000:.0f} s more than time passed since the last run:"
                " retention by time pauses until the clock is right again, or the broker is restarted"
            )
        self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
        return None
