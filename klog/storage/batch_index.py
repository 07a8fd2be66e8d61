"""Where the batches of one segment start: in memory only, built on append or by the walk that first needed it.

Strategy: *anchors*, one batch start every ``interval`` bytes with what lies before it, from which a lookup walks over
headers; and a *dense* list of the last batches, where consumers live, which needs no look into the file.
Limits: at most ``ANCHORS_MAX`` anchors a segment (then the interval doubles) and ``2 * DENSE_BATCHES`` dense starts, so
about 72 KB for a segment that is written to and 32 KB for a closed one, whatever the batch sizes; and all segments of
a broker share a budget of anchors: where it is used up, every second one of each goes.
Concurrency: one owner appends; any thread reads. What shrinks is copied and swapped, never cut in place.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from typing import Final, NamedTuple
from weakref import WeakSet

DENSE_BATCHES: Final = 128
INTERVAL_BYTES: Final = 32 * 1024
"""A walk over this many bytes of the smallest batches is about 450 headers: 0.2 ms."""
ANCHORS_MAX: Final = 2048
ANCHORS_CLOSED_MAX: Final = 1024
BROKER_ANCHORS_MAX: Final = 128 * 1024
"""4 MB."""


class Anchor(NamedTuple):
    """A batch start, with the records before it in its segment and their largest timestamp (-1 where there is none).

    ``offset_before`` is the last record's offset + 1 of the batch before it (the segment's first address where there is
    none): where a consumer stands who has read up to here, a little below ``address``.
    """

    address: int
    count_before: int
    max_timestamp_before_ms: int
    offset_before: int


class Dense(NamedTuple):
    """The newest batches: ``starts[i]`` begins batch i, ``counts_before[i]`` records of the segment lie before it.

    ``counts_before`` is one longer than ``starts`` and appended to first, so a reader that takes ``len(starts)`` first
    finds the count after each of them.
    """

    starts: array[int]
    counts_before: array[int]


class Anchors(NamedTuple):
    """Sorted columns of Anchor."""

    addresses: array[int]
    counts_before: array[int]
    max_timestamps_before_ms: array[int]
    offsets_before: array[int]


_NO_BATCHES: Final = Dense(array("q"), array("q", (0,)))
_FROM_THE_START: Final = Anchors(array("q", (0,)), array("q", (0,)), array("q", (-1,)), array("q", (0,)))
"""Of a segment without batches, and of one at address 0 without further anchors: shared, and never changed. A broker
may have tens of thousands of them."""


class IndexBudget:
    """How many anchors all indexes of a broker may have. Thread-safe."""

    def __init__(self, anchors_max: int = BROKER_ANCHORS_MAX) -> None:
        self._anchors_max = anchors_max
        self._lock = threading.Lock()
        self._indexes: WeakSet[BatchIndex] = WeakSet()
        self._estimate = 0
        """Too high where indexes have gone since they were last counted."""

    def added(self, index: BatchIndex) -> None:
        """An index has one anchor more."""
        with self._lock:
            self._indexes.add(index)
            self._estimate += 1
            if self._estimate <= self._anchors_max:
                return
            indexes = list(self._indexes)
            count = sum(len(one.anchors.addresses) for one in indexes)
            if count > self._anchors_max // 2:
                for one in indexes:
                    one.thin()
                count = sum(len(one.anchors.addresses) for one in indexes)
            # Each keeps its first: with more segments than half the budget has anchors, the room is theirs.
            self._estimate = min(count, self._anchors_max // 2)


class BatchIndex:
    """Batch starts of one segment. ``add`` belongs to the owner thread; the rest is thread-safe."""

    __slots__ = ("__weakref__", "_budget", "_interval", "_lock", "_next_anchor", "anchors", "dense")

    def __init__(self, base_address: int, budget: IndexBudget) -> None:
        self._lock = threading.Lock()
        self._budget = budget
        self._interval = INTERVAL_BYTES
        self._next_anchor = base_address + INTERVAL_BYTES
        self.anchors = _FROM_THE_START
        if base_address:
            first = array("q", (base_address,))
            self.anchors = _FROM_THE_START._replace(addresses=first, offsets_before=first)
        self.dense = _NO_BATCHES

    def start_dense(self, count_before: int) -> None:
        """The next ``add`` follows ``count_before`` records; what was dense before it is dropped."""
        self.dense = Dense(array("q"), array("q", (count_before,))) if count_before else _NO_BATCHES

    def add(self, start: int, count_after: int, max_timestamp_before_ms: int) -> None:
        """A batch was appended at ``start``, and ``count_after`` records of the segment lie up to its end."""
        dense = self.dense
        if dense is _NO_BATCHES:
            dense = self.dense = Dense(array("q"), array("q", (0,)))
        starts, counts_before = dense
        if start >= self._next_anchor:
            before = starts[-1] + counts_before[-1] - counts_before[-2] if starts else start
            self.remember(Anchor(start, counts_before[-1], max_timestamp_before_ms, before))
            self._next_anchor = start + self._interval
        counts_before.append(count_after)
        starts.append(start)
        if len(starts) >= 2 * DENSE_BATCHES:
            self.dense = Dense(starts[-DENSE_BATCHES:], counts_before[-DENSE_BATCHES - 1 :])

    def floor(self, address: int) -> Anchor:
        """The last anchor at or below ``address`` (which must not lie below the segment)."""
        anchors = self.anchors
        return _at(anchors, bisect_right(anchors.addresses, address) - 1)

    def floor_by_offset(self, offset: int) -> Anchor:
        """The last anchor before which no record has ``offset`` or one after it: the walk to its batch begins there.

        For a consumer that has read up to an anchor that is the anchor itself, and there is no walk.
        """
        anchors = self.anchors
        return _at(anchors, max(bisect_right(anchors.offsets_before, offset) - 1, 0))

    def distance(self, address: int) -> int:
        """How many bytes a walk to ``address`` would cover; 0 where the dense list knows."""
        starts = self.dense.starts
        if starts and address >= starts[0]:
            return 0
        return max(address - self.floor_by_offset(address).address, 0)

    def remember(self, anchor: Anchor) -> None:
        """Add an anchor that a walk came across, unless one lies near below it."""
        with self._lock:
            old = self.anchors
            at = bisect_right(old.addresses, anchor.address)
            if at and anchor.address - old.addresses[at - 1] < self._interval // 2:
                return
            columns = [column[:] for column in old]
            for column, value in zip(columns, anchor, strict=True):
                column.insert(at, value)
            self.anchors = Anchors(*columns)
            if len(columns[0]) > ANCHORS_MAX:
                self._thin()
        self._budget.added(self)

    def known_below(self, address: int) -> list[Anchor]:
        """The anchors below ``address``."""
        return [anchor for anchor in map(Anchor._make, zip(*self.anchors, strict=True)) if anchor.address < address]

    def close(self) -> None:
        """No more batches will come: keep fewer anchors and no dense list."""
        with self._lock:
            while len(self.anchors.addresses) > ANCHORS_CLOSED_MAX:
                self._thin()
        self.dense = _NO_BATCHES

    def thin(self) -> None:
        """Give up every second anchor, but not the first."""
        with self._lock:
            self._thin()

    def _thin(self) -> None:
        self._interval *= 2
        self.anchors = Anchors(*(column[::2] for column in self.anchors))


def _at(anchors: Anchors, at: int) -> Anchor:
    return Anchor._make([column[at] for column in anchors])
