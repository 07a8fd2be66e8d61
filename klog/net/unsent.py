"""Limits unsent answers: bounded for all connections together, over time (rule P2).

Strategy
    Checked every second. A peer with unsent answers must take `PACE` of them. Where more than ``bytes_max`` are unsent
    in all, a peer with more than `TINY_BYTES` must take `PACE_FULL`; else it is disconnected. Ranges of files do not
    count, since they take no memory.

Bound
    ``bytes_max``, and the answers of the few seconds until slow peers are noticed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from klog.net.connection import Connection
from klog.net.memory_pool import PACE, PACE_FULL, TINY_BYTES


class Unsent:
    """See the module. Event loop only."""

    def __init__(self, bytes_max: float) -> None:
        self._bytes_max: Final = bytes_max
        self._marks: dict[Connection, tuple[float, int]] = {}
        """Connection -> start of its measuring interval, and the bytes taken by then."""

    def too_slow(self, connections: Collection[Connection], now_s: float) -> Iterator[tuple[Connection, str]]:
        """Connections to close, each with the reason. Call every second."""
        waiting = [one for one in connections if one.waits_to_send]
        total = sum(one.waiting_bytes for one in waiting)
        self._marks = {one: self._marks.get(one, (now_s, one.taken_bytes)) for one in waiting}
        for one in waiting:
            since_s, taken = self._marks[one]
            is_full = total > self._bytes_max and one.waiting_bytes > TINY_BYTES
            pace = PACE_FULL if is_full else PACE
            if now_s - since_s < pace.seconds:
                continue
            took = one.taken_bytes - taken
            if took >= pace.bytes:
                self._marks[one] = now_s, one.taken_bytes
            else:
                why = f", and {total} bytes wait in all (queued.max.request.bytes)" if is_full else ""
                yield one, f"it took {took} bytes of its answers in {now_s - since_s:.0f} s{why}"
