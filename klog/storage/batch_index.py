"""An index of a segment's batch starts: in memory only, built by appends or by the first walk.

Strategy: *anchors*, one batch start per ``interval`` bytes with totals of what lies before it, from which a look-up
walks over headers; and a *dense* list of the last batches, where consumers usually read, which needs no walk.
Limits: ``ANCHORS_MAX`` anchors per segment (then the interval doubles) and ``2 * DENSE_BATCHES`` dense starts, so about
72 KB for the active segment and 32 KB for a closed one, whatever the batch sizes. All segments of a broker share a
budget of anchors; beyond it each index drops every second anchor.
Concurrency: one owner appends; any thread reads. Lists are copied and swapped to shrink, never cut in place.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from typing import Final, NamedTuple
from weakref import WeakSet

DENSE_BATCHES: Final = 128
INTERVAL_BYTES: Final = 32 * 1024
"""About 450 headers of the smallest batches: a walk of 0.2 ms."""
ANCHORS_MAX: Final = 2048
ANCHORS_CLOSED_MAX: Final = 1024
BROKER_ANCHORS_MAX: Final = 128 * 1024
"""4 MB."""


class Anchor(NamedTuple):
    """A batch start, with the number of records before it in its segment and their largest timestamp (-1 for none).

    ``offset_before``: the last offset + 1 of the batch before it (without one, the segment's first address), a little
    below ``address``: the position of a consumer that has read up to here.
    """

    address: int
    count_before: int
    max_timestamp_before_ms: int
    offset_before: int


class Dense(NamedTuple):
    """The newest batches: ``starts[i]`` begins batch i, with ``counts_before[i]`` records of the segment before it.

    ``counts_before`` has one element more and is appended to first, so a reader that takes ``len(starts)`` first finds
    the count after each of them.
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
"""For segments without batches, and for one at address 0 without further anchors: shared by tens of thousands of them,
and never changed."""


class IndexBudget:
    """The limit on anchors of all indexes of a broker. Thread-safe."""

    def __init__(self, anchors_max: int = BROKER_ANCHORS_MAX) -> None:
        self._anchors_max = anchors_max
        self._lock = threading.Lock()
        self._indexes: WeakSet[BatchIndex] = WeakSet()
        self._estimate = 0
        """Too high if indexes have gone since the last count."""

    def added(self, index: BatchIndex) -> None:
        """Count an anchor."""
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
            # Each index keeps its first anchor, which counts for half the budget at most: others always get the rest.
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
        """Start an empty dense list after ``count_before`` records."""
        self.dense = Dense(array("q"), array("q", (count_before,))) if count_before else _NO_BATCHES

    def add(self, start: int, count_after: int, max_timestamp_before_ms: int) -> None:
        """Add the batch at ``start``; ``count_after``: records of the segment up to its end."""
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
        """The last anchor before which no record has ``offset`` or a higher one: the walk to its batch begins there.

        For a consumer that has read up to an anchor it is that anchor, and no walk is needed.
        """
        anchors = self.anchors
        return _at(anchors, max(bisect_right(anchors.offsets_before, offset) - 1, 0))

    def distance(self, address: int) -> int:
        """Bytes to walk to ``address``; 0 where the dense list has it."""
        starts = self.dense.starts
        if starts and address >= starts[0]:
            return 0
        return max(address - self.floor_by_offset(address).address, 0)

    def remember(self, anchor: Anchor) -> None:
        """Add an anchor found by a walk, unless one lies close below it."""
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
        """The segment is closed: keep fewer anchors and no dense list."""
        with self._lock:
            while len(self.anchors.addresses) > ANCHORS_CLOSED_MAX:
                self._thin()
        self.dense = _NO_BATCHES

    def thin(self) -> None:
        """Drop every second anchor, but not the first."""
        with self._lock:
            self._thin()

    def _thin(self) -> None:
        self._interval *= 2
        self.anchors = Anchors(*(column[::2] for column in self.anchors))


def _at(anchors: Anchors, at: int) -> Anchor:
    return Anchor._make([column[at] for column in anchors])
