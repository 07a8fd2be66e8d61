"""Which segments are too old or too many: decided from what is known of them, done elsewhere.

Rule L7: a jump of the wall clock must not delete a week. ``RetentionClock`` compares it with a clock that only runs on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.storage.segment import Segment

CLOCKS_APART_MS_MAX: Final = 60_000


class Deletion(NamedTuple):
    """Oldest segments that go, and the start shown once they have: the last removed record + 1 (rule L4)."""

    segments: tuple[Segment, ...]
    start_offset: int
    reason: str

    def __str__(self) -> str:
        return f"{len(self.segments)} segments removed ({self.reason})"


def newest_ms(segment: Segment, now_ms: int) -> int:
    """When the newest message of a segment was written: by the messages, or by the file where they do not say.

    They do not say it either where one of them lies ahead of the clock: a single message of the year 9999 would keep
    its segment, and all behind it, until then.
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
    """The oldest closed segments that are too old, or that the log is too large with; None where none is.

    Never the last segment, never one that reaches beyond ``limit_address`` (the high watermark), never one whose
    messages are not counted yet: its last record is not known, and the start shown needs it. Negative limits do not
    hold.
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
    """Tells whether the time that passed can be believed (rule L7). One for a broker."""

    def __init__(self, wall_ms: int, monotonic_ms: int) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def doubt(self, wall_ms: int, monotonic_ms: int) -> str | None:
        """Why retention by time must not run now; None if it may; then the next comparison begins here.

        While they disagree the old comparison holds, so retention pauses until the wall clock is set right or the
        broker is started again with the clock as it is.
        """
        apart_ms = (wall_ms - self._wall_ms) - (monotonic_ms - self._monotonic_ms)
        if abs(apart_ms) > CLOCKS_APART_MS_MAX:
            return (
                f"the wall clock moved {apart_ms / 1000:.0f} s more than time passed since the last run:"
                " retention by time pauses until the clock is right again, or the broker is restarted"
            )
        self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
        return None
