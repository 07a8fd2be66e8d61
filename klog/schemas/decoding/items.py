"""Arrays and maps: blocks of items, each after its count.

Strategy: first find where each item of each row begins, then read all items of all rows at once, as if they were rows.
Items of one size are found by arithmetic, items that are one variable-length number by the bytes that end such numbers.
Others are found by skipping: the k-th item of all rows at once, or in plain Python when few rows have more items.

Limits: the items of a row must fit into its bytes. Of items without bytes an array has at most WEIGHTLESS_MAX.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from klog.schemas.decoding.front import CUT_SHORT, FAR, Front, Ints
from klog.schemas.decoding.steps import Record, Step, Undecodable, number_at

WEIGHTLESS_MAX: Final = 1000
"""Nulls in arrays: a few bytes can announce 2**40 of them."""
PLAIN_BELOW: Final = 32
"""Fewer rows than this are skipped one by one, since a round of numpy's calls costs more."""

_Chunk = tuple[Ints, Ints]
"""The row and the position of each item."""


class Items(Step):
    """An array, or a map, whose item is a record of key and value."""

    def __init__(self, type_: pa.DataType, where: str, item: Step) -> None:
        super().__init__(type_, where)
        self.item = item

    def read(self, front: Front) -> pa.Array:
        rows = len(front)
        of_rows, starts = self._find(front)
        items = Front(front.datums, front.rows[of_rows], starts, front.end[of_rows])
        values = self.item.read(items)
        front.sink_failed()
        bounds = np.zeros(rows + 1, np.int32)
        np.cumsum(np.bincount(of_rows, minlength=rows), out=bounds[1:])
        if pa.types.is_map(self.type):
            return pa.MapArray.from_arrays(pa.array(bounds), values.field(0), values.field(1), type=self.type)
        return pa.ListArray.from_arrays(pa.array(bounds), values, type=self.type)

    def skip(self, front: Front) -> None:
        of_rows, starts = self._find(front)
        if self.item.is_number:  # found by their last bytes: whether they are numbers is not known yet
            self.item.skip(Front(front.datums, front.rows[of_rows], starts, front.end[of_rows]))
            front.sink_failed()

    def skip_one(self, data: memoryview, at: int, end: int) -> int:
        weightless = 0
        while True:
            count, at = number_at(data, at)
            if count < 0:
                count = -count
                _, at = number_at(data, at)
            if not count:
                return at
            if not self.item.bytes_min:
                weightless += count
            if count * self.item.bytes_min > end - at or weightless > WEIGHTLESS_MAX:
                raise Undecodable(self._too_many(at > end))
            if self.item.bytes_all is not None:
                at += count * self.item.bytes_all
                continue
            for _ in range(count):
                at = self.item.skip_one(data, at, end)

    def _too_many(self, is_past: bool = False) -> str:
        return CUT_SHORT if is_past else f"{self.where}: more items than the datum has bytes for"

    def read_block(self, front: Front, counts: Ints) -> pa.Array:
        """The items of one block per row, whose ``counts`` (above 0) the caller has read: all items in one array."""
        chunks: list[_Chunk] = []
        self._find_in_blocks(front, counts, np.arange(len(front)), chunks)
        of_rows, starts = _in_order(chunks)
        return self.item.read(Front(front.datums, front.rows[of_rows], starts, front.end[of_rows]))

    # --- Where the items are ---

    def _find(self, front: Front) -> _Chunk:
        """Row and place of every item, in the order of the rows. ``front`` moves behind them."""
        chunks: list[_Chunk] = []
        open_rows = np.arange(len(front))
        weightless = np.zeros(len(front), np.int64)
        while open_rows.size:
            part = front.some(open_rows)
            counts = self._counts(part, weightless[open_rows])
            if not self.item.bytes_min:
                weightless[open_rows] += counts
            goes_on = np.flatnonzero(counts)
            if goes_on.size:
                inside = part.some(goes_on)
                self._find_in_blocks(inside, counts[goes_on], open_rows[goes_on], chunks)
                part.put(goes_on, inside)
            front.put(open_rows, part)
            open_rows = open_rows[goes_on]
        of_rows, starts = _in_order(chunks)
        if front.datums.failed.any():
            front.sink_failed()
            alive = ~front.datums.failed[front.rows[of_rows]]
            of_rows, starts = of_rows[alive], starts[alive]
        return of_rows, starts

    def _counts(self, part: Front, weightless: Ints) -> Ints:
        """Of the items in the next block of each row; 0 ends the array. ``weightless``: of earlier items."""
        counts = part.numbers(self.where)
        with_size = np.flatnonzero(counts < 0)
        if with_size.size:  # the block's size in bytes follows, for those who skip it; it is not needed here
            sized = part.some(with_size)
            sized.numbers(self.where)
            part.put(with_size, sized)
            counts[with_size] = -counts[with_size]
            counts[part.end == FAR] = 0  # given up for its size: its count was not looked at yet
        if self.item.bytes_min:
            bad = (counts < 0) | (counts > (part.end - part.at) // self.item.bytes_min)
        else:
            bad = (counts < 0) | (counts > WEIGHTLESS_MAX - weightless)
        if bad.any():
            part.fail(bad, self._too_many())
            counts = np.where(bad, 0, counts)
        return counts

    def _find_in_blocks(self, inside: Front, counts: Ints, of_rows: Ints, chunks: list[_Chunk]) -> None:
        """The items of one block of each of these rows."""
        size = self.item.bytes_all
        if size is not None or self.item.is_number:
            firsts = np.cumsum(counts) - counts
            numbers = np.arange(int(counts.sum())) - np.repeat(firsts, counts)  # of each item in its block
            if size is not None:
                chunks.append((np.repeat(of_rows, counts), np.repeat(inside.at, counts) + size * numbers))
                inside.at = inside.at + size * counts
                return
            # The item after one begins behind the byte that one ends with.
            ends = inside.datums.ends_of_numbers()
            rank = np.searchsorted(ends, inside.at)
            before = np.repeat(rank, counts) + numbers - 1
            starts = np.where(numbers == 0, np.repeat(inside.at, counts), ends.take(before, mode="clip") + 1)
            chunks.append((np.repeat(of_rows, counts), starts))
            inside.at = ends.take(rank + counts - 1, mode="clip") + 1
            return
        left = counts
        index = np.arange(len(inside))
        part = inside.some(index)
        while index.size >= PLAIN_BELOW:
            chunks.append((of_rows[index], part.at.copy()))
            self.item.skip(part)
            inside.put(index, part)
            left = left - 1
            goes_on = np.flatnonzero((left > 0) & ~part.datums.failed[part.rows])
            index, left, part = index[goes_on], left[goes_on], part.some(goes_on)
        for place, count in zip(index, left, strict=True):
            starts = self._one_by_one(inside, int(place), int(count))
            chunks.append((np.full(len(starts), of_rows[place]), starts))

    def _one_by_one(self, inside: Front, place: int, count: int) -> Ints:
        data = inside.datums.data.data
        at, end = int(inside.at[place]), int(inside.end[place])
        starts: list[int] = []
        reason = ""
        skip = self.item.skip_one
        try:
            for _ in range(count):
                starts.append(at)
                at = skip(data, at, end)
                if at > end:
                    reason = CUT_SHORT
                    break
        except Undecodable as error:
            reason = str(error)
        except IndexError:
            reason = CUT_SHORT
        inside.at[place] = at
        if reason:
            bad = np.zeros(len(inside), np.bool_)
            bad[place] = True
            inside.fail(bad, reason)
        return np.array(starts, np.int64)


def _in_order(chunks: list[_Chunk]) -> _Chunk:
    """All items, by row, and of a row in the order they were found in."""
    if not chunks:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    of_rows = np.concatenate([rows for rows, _ in chunks])
    starts = np.concatenate([at for _, at in chunks])
    if len(chunks) > 1:
        order = np.argsort(of_rows, kind="stable")
        of_rows, starts = of_rows[order], starts[order]
    return of_rows, starts


def pair(key: Step, value: Step) -> Record:
    """The item of a map."""
    return Record(pa.struct([("key", key.type), ("value", value.type)]), value.where, [(0, key), (1, value)], {})
