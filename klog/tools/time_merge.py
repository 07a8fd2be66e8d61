"""The order of time over several partitions, in bounded memory. No I/O, no clock of its own.

Rules:
- Within a partition the order of offsets stands. A message whose time lies before that of an earlier one counts as if
  it had that one's time, so each partition's times never fall, and merging is comparing the next one of each.
- Of what is there (`ready`): a message may go once every partition that has more to come has something behind it. The
  order is exact.
- Of what comes (`settled`): what is still under way is unknown, so each message waits for a while and then goes, with
  all that is earlier. What comes later than that is shown late.
- Equal times go by partition, in the order in which the partitions were named.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

from klog.render.jsonl import timestamp_of

MEMORY_BYTES = 64 * 1024 * 1024
"""What may be held back in all, as far as one partition's share has room for a message at all."""

MESSAGE_BYTES = 400
"""What a message takes beside its key and value, about."""

Partition = tuple[str, int]
"""Topic and partition."""

Queued = tuple[int, int, int, Any]
"""Time, the partition's rank, offset, message: no two are equal, so messages themselves are never compared."""


class _Waiting:
    """What one partition has waiting, in order."""

    __slots__ = ("bytes", "entries", "rank", "time_ms")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.entries: list[Queued] = []
        self.bytes = 0
        self.time_ms = 0
        """The largest time so far."""

    def take(self, bound: Queued) -> list[Queued]:
        """Those up to and with ``bound``, which are then gone from here."""
        count = bisect_right(self.entries, bound)
        taken, self.entries = self.entries[:count], self.entries[count:]
        self.bytes -= sum([_size(entry[-1]) for entry in taken])
        return taken


class TimeMerge:
    """Takes messages as they come and gives them back in the order of time. One thread."""

    def __init__(self, places: Iterable[Partition], memory_bytes: int | None = None) -> None:
        self._waiting = {place: _Waiting(rank) for rank, place in enumerate(places)}
        self._memory_bytes = MEMORY_BYTES if memory_bytes is None else memory_bytes
        self._share_bytes = self._memory_bytes // max(len(self._waiting), 1)
        self._arrivals: deque[tuple[float, Queued]] = deque()

    def __bool__(self) -> bool:
        return any(one.entries for one in self._waiting.values())

    @property
    def is_full(self) -> bool:
        return sum(one.bytes for one in self._waiting.values()) > self._memory_bytes

    @property
    def oldest_arrival(self) -> float | None:
        """When that which waits longest has come."""
        return self._arrivals[0][0] if self._arrivals else None

    def crowded(self) -> set[Partition]:
        """Partitions that have more waiting than their share: nothing more is wanted of them for now."""
        return {place for place, one in self._waiting.items() if one.bytes > self._share_bytes}

    def starved(self, places: Iterable[Partition]) -> set[Partition]:
        """Those of ``places`` that have room again."""
        return {place for place in places if self._waiting[place].bytes <= self._share_bytes // 2}

    def add(self, messages: Iterable[Any], arrived: float | None = None) -> None:
        """More messages, those of one partition in the order of their offsets; `settled` goes by ``arrived``."""
        latest: Queued | None = None
        for message in messages:
            one = self._waiting[message.topic(), message.partition()]
            timestamp_ms = timestamp_of(message)
            if timestamp_ms is not None and timestamp_ms > one.time_ms:
                one.time_ms = timestamp_ms
            entry = (one.time_ms, one.rank, message.offset(), message)
            one.entries.append(entry)
            one.bytes += _size(message)
            if latest is None or entry > latest:
                latest = entry
        if latest is not None and arrived is not None:
            self._arrivals.append((arrived, latest))

    def ready(self, coming: Collection[Partition]) -> list[Any]:
        """What can go, where more will come of ``coming`` and nothing of the others."""
        lasts = []
        for place in coming:
            entries = self._waiting[place].entries
            if not entries:
                return []
            lasts.append(entries[-1])
        ends = [one.entries[-1] for one in self._waiting.values() if one.entries]
        if not ends:
            return []
        return self._take(min(lasts) if lasts else max(ends))

    def settled(self, before: float) -> list[Any]:
        """What came at ``before`` or earlier, and all that is earlier by its own time."""
        bound: Queued | None = None
        while self._arrivals and self._arrivals[0][0] <= before:
            latest = self._arrivals.popleft()[1]
            if bound is None or latest > bound:
                bound = latest
        return [] if bound is None else self._take(bound)

    def _take(self, bound: Queued) -> list[Any]:
        taken = [entry for one in self._waiting.values() if one.entries for entry in one.take(bound)]
        taken.sort()  # runs that are in order already: they are merged
        return [entry[-1] for entry in taken]


def _size(message: Any) -> int:
    return len(message.value() or b"") + len(message.key() or b"") + MESSAGE_BYTES
