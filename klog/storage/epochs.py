"""Leader epochs of one partition: where each began (KIP-101).

An immutable tuple, swapped whole: reads are thread-safe, changes belong to the owner thread.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from klog.storage.log_end import LogEnd

NO_EPOCH: Final = -1


class EpochStart(NamedTuple):
    """``epoch`` began at ``address``; ``offset_before``: the end offset of the log then."""

    epoch: int
    address: int
    offset_before: int


class Epochs:
    """The epochs in a log, oldest first."""

    __slots__ = ("_starts",)

    def __init__(self, starts: tuple[EpochStart, ...] = ()) -> None:
        self._starts = starts

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return self._starts

    @property
    def last(self) -> int:
        return self._starts[-1].epoch if self._starts else NO_EPOCH

    def begin(self, epoch: int, end: LogEnd) -> None:
        """``epoch`` leads from ``end`` on; ignored if it, or a later one, does already."""
        starts = self._starts
        if starts and starts[-1].epoch >= epoch:
            return
        self._starts = (*starts, EpochStart(epoch, end.address, end.offset))

    def end(self, epoch: int, log_start: int, log_end: LogEnd) -> tuple[int, LogEnd]:
        """The largest known epoch at or below ``epoch``, and its end.

        Before the first known one: the asked epoch and the log's start (rule R8: an undefined answer makes clients
        reset).
        After the last known one: (-1, (-1, -1)), undefined.
        """
        starts = self._starts
        if not starts or epoch > starts[-1].epoch:
            return NO_EPOCH, LogEnd(-1, -1)
        at = bisect_right(starts, epoch, key=lambda start: start.epoch)
        if at == 0:
            return epoch, LogEnd(log_start, log_start)
        if at == len(starts):
            return starts[-1].epoch, log_end
        return starts[at - 1].epoch, LogEnd(starts[at].address, starts[at].offset_before)

    def prepend(self, older: tuple[EpochStart, ...]) -> None:
        """Add epochs found by a walk over older segments."""
        starts = self._starts
        first = starts[0].epoch if starts else None
        older = tuple(start for start in older if first is None or start.epoch <= first)
        if older and older[-1].epoch == first:
            starts = starts[1:]  # it began earlier than was known
        self._starts = older + starts

    def insert(self, found: tuple[EpochStart, ...]) -> None:
        """Add epochs of a repaired range in the middle: the earlier start of an epoch wins."""
        starts = {one.epoch: one for one in self._starts}
        for one in found:
            known = starts.get(one.epoch)
            if known is None or one.address < known.address:
                starts[one.epoch] = one
        self._starts = tuple(starts[epoch] for epoch in sorted(starts))

    def correct(self, address: int, offset_before: int) -> None:
        """Set ``offset_before`` of the epoch that begins at ``address``, if one does."""
        self._starts = tuple(
            one._replace(offset_before=offset_before) if one.address == address else one for one in self._starts
        )

    def truncate(self, address: int) -> None:
        """Remove epochs that began at or after ``address``."""
        self._starts = tuple(start for start in self._starts if start.address < address)

    def forget_below(self, address: int) -> None:
        """Remove epochs that ended at or below ``address``; the one that covers it stays."""
        starts = self._starts
        at = bisect_right(starts, address, key=lambda start: start.address)
        self._starts = starts[max(at - 1, 0) :]
