"""Sets of numbers that come almost in order: which of a producer's messages were seen, and which more than once."""

from __future__ import annotations

FRESH_MAX = 65_536
"""Runs of numbers that wait to be merged: a few megabytes."""


class NumberSet:
    """A set of numbers as ranges. ``distinct`` counts each once, however often it was added. One thread."""

    __slots__ = ("_first", "_last", "_merge_at", "_ranges")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._first, self._last = 0, -1
        """The run that the next number continues, if it is the next one."""
        self._merge_at = FRESH_MAX

    def add(self, number: int) -> None:
        if number != self._last + 1:
            self._ranges.append((self._first, self._last))
            self._first = number
            if len(self._ranges) >= self._merge_at:
                self._ranges = _merged(self._ranges)
                self._merge_at = len(self._ranges) + FRESH_MAX
        self._last = number

    def update(self, other: NumberSet) -> None:
        """Add all that the other has."""
        self._ranges = _merged([*self._ranges, *other.ranges])

    @property
    def distinct(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """(first, last) of each run of numbers, ascending."""
        return _merged([*self._ranges, (self._first, self._last)])


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending, with those joined that overlap or touch, and without empty ones."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        elif first <= last:
            merged.append((first, last))
    return merged
