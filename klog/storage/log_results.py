"""What an append gave, and what a flush is to make last."""

from __future__ import annotations

from typing import NamedTuple

from klog.storage.log_end import LogEnd
from klog.storage.segment import Segment


class AppendResult(NamedTuple):
    """Where a record set went. For a duplicate, where it went the first time: it is acknowledged when that is."""

    base_offset: int
    last_offset: int
    end: LogEnd
    count: int  # type: ignore[assignment]  # hides tuple.count, which klog never calls
    duplicate: bool
    log_append_time_ms: int


class FlushMark(NamedTuple):
    """What a flush is to make last."""

    generation: int
    end: LogEnd
    messages: int
    dirty: list[tuple[Segment, int]]
