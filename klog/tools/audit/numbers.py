"""Sets of numbers that come almost in order: which of a producer's messages were seen, and which more than once."""

from __future__ import annotations

from collections.abc import Iterable

FRESH_MAX = 65_536
"""Numbers that wait to be sorted in: half a megabyte."""

RANGES_MAX = 200
"""Of what is written down; the numbers of a producer that lost nothing are one range."""


class NumberSet:
    """A set of numbers as ranges. ``distinct`` counts each once, however often it was added. One thread."""

    __slots__ = ("_fresh", "_ranges", "_uncounted")

    def __init__(self, ranges: Iterable[tuple[int, int]] = (), uncounted: int = 0) -> None:
        """``ranges`` are (first, last); ``uncounted``: so many more, of which only the number is known."""
        self._ranges = list(ranges)
        self._fresh: list[int] = []
        self._uncounted = uncounted

    def add(self, number: int) -> None:
        self._fresh.append(number)
        if len(self._fresh) >= FRESH_MAX:
            self._settle()

    def update(self, other: NumberSet) -> None:
        """Add all that the other has."""
        other._settle()
        self._settle()
        self._ranges = _merged(sorted([*self._ranges, *other._ranges]))
        self._uncounted += other._uncounted

    @property
    def distinct(self) -> int:
        self._settle()
        return sum(last - first + 1 for first, last in self._ranges) + self._uncounted

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """(first, last) of each run of numbers, ascending."""
        self._settle()
        return list(self._ranges)

    def to_json(self) -> dict[str, object]:
        """What `from_json` reads; of too many ranges only how many numbers there are."""
        if len(self.ranges) > RANGES_MAX:
            return {"ranges": [], "uncounted": self.distinct}
        return {"ranges": self._ranges, "uncounted": self._uncounted}

    @classmethod
    def from_json(cls, value: dict[str, list[list[int]]]) -> NumberSet:
        """KeyError, TypeError or ValueError where it is none."""
        ranges = [(int(first), int(last)) for first, last in value["ranges"]]
        return cls(_merged(sorted(ranges)), int(value["uncounted"]))  # type: ignore[call-overload]

    def _settle(self) -> None:
        if not self._fresh:
            return
        fresh: list[tuple[int, int]] = []
        first = last = None
        for number in sorted(self._fresh):
            if last is not None and number <= last + 1:
                last = number
                continue
            if first is not None and last is not None:
                fresh.append((first, last))
            first = last = number
        if first is not None and last is not None:
            fresh.append((first, last))
        self._fresh = []
        self._ranges = _merged(sorted([*self._ranges, *fresh])) if self._ranges else fresh


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted ranges with those joined that overlap or touch."""
    merged: list[tuple[int, int]] = []
    for first, last in ranges:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged
