"""``--from`` of an export as offsets: `klog.client.positions` resolved over blocking connections.

The start of an export never changes, so a start after the log's end is refused: clamped to today's end, it would leave
out messages for ever. Positions before the log's start are clamped to it, with a note.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from klog.client.positions import Anchor, Position, parse_range
from klog.client.raw_fetch import Range, RawCluster
from klog.errors import UsageError
from klog.names import TopicPartition, first_few

NAMED_MAX = 8
"""Partitions in a sentence; of more it says how many there are."""


class Limits(NamedTuple):
    """Where each partition begins, and the offset that it does not go beyond (none: as far as there is)."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]


def resolve(
    cluster: RawCluster,
    partitions: Sequence[TopicPartition],
    text: str,
    on_note: Callable[[str], None] = lambda text: None,
) -> Limits:
    """The offsets that a position or range means in each partition, within its bounds.

    UsageError for other words, and for a beginning beyond the end of a partition that has messages (or of all);
    ``on_note`` hears of beginnings that are not those that were asked for.
    """
    wanted = parse_range(text)
    log = _Log(cluster, partitions)
    begin = log.at(wanted.begin)
    _check_begin(log, wanted.begin, begin, on_note)
    return Limits(log.clamped(begin), {} if wanted.end is None else log.clamped(log.at(wanted.end)))


class _Log:
    """The bounds of the partitions as of now, and what positions mean between them."""

    def __init__(self, cluster: RawCluster, partitions: Sequence[TopicPartition]) -> None:
        self._cluster = cluster
        self.partitions = partitions
        self.earliest, self.latest = cluster.bounds(partitions)

    def at(self, position: Position) -> dict[TopicPartition, int | None]:
        """Unclamped, where that can be known; None where no message is as late as the time asked for."""
        if position.anchor is Anchor.TIME:
            times = self._cluster.offsets(dict.fromkeys(self.partitions, position.value))
            return {one: None if at < 0 else at for one, at in times.items()}
        wanted = {one: position.counted(self.earliest[one], self.latest[one]) for one in self.partitions}
        is_counted = any(messages for _, messages in wanted.values())
        return {**self._cluster.nths(wanted)} if is_counted else {one: at for one, (at, _) in wanted.items()}

    def clamped(self, found: dict[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        return {
            one: self.latest[one] if at is None else min(max(at, self.earliest[one]), self.latest[one])
            for one, at in found.items()
        }

    def messages(self) -> dict[TopicPartition, int]:
        """How many each has; where brokers cannot count, offsets are taken to be consecutive."""
        ranges = {one: Range(*one, self.earliest[one], self.latest[one]) for one in self.partitions}
        counts = self._cluster.counts(one for one in ranges.values() if one.to_offset > one.from_offset)
        return {
            one: whole.to_offset - whole.from_offset if (count := counts.get(whole)) is None else count
            for one, whole in ranges.items()
        }


def _check_begin(
    log: _Log, position: Position, found: dict[TopicPartition, int | None], on_note: Callable[[str], None]
) -> None:
    match position.anchor:
        case Anchor.OFFSET:
            _refuse_beyond(log, position, [one for one in log.partitions if position.value > log.latest[one]])
            before = [
                f"{one} starts at {log.earliest[one]}" for one in log.partitions if position.value < log.earliest[one]
            ]
            if before:
                begins = first_few(before, NAMED_MAX)
                on_note(f"--from {position}: {begins}; earlier messages are neither in the log nor in the export")
        case Anchor.TIME:
            none = [one for one in log.partitions if found[one] is None]
            if position.value > time.time_ns() // 1_000_000:
                _refuse_beyond(log, position, none)
            none = [one for one in none if log.earliest[one] < log.latest[one]]
            if none:
                on_note(
                    f"--from {position}: {first_few(none, NAMED_MAX)}: no message at or after that time; "
                    "only new messages are exported"
                )
        case Anchor.FORWARD | Anchor.BACK:
            has = log.messages()
            fewer = [one for one in log.partitions if has[one] < position.value]
            if position.anchor is Anchor.FORWARD:
                _refuse_beyond(log, position, fewer)
            elif fewer:
                have = first_few((f"{one} has {has[one]:,} messages" for one in fewer), NAMED_MAX)
                on_note(f"--from {position}: {have}; all go")


def _refuse_beyond(log: _Log, position: Position, beyond: Sequence[TopicPartition]) -> None:
    """UsageError where messages would never be exported. Of a partition without any nothing can be missed."""
    some = [one for one in beyond if log.earliest[one] < log.latest[one]]
    if len(beyond) == len(log.partitions):
        some = some or list(beyond)
    if some:
        ends = first_few((f"{one} ends at {log.latest[one]}" for one in some), NAMED_MAX)
        raise UsageError(
            f"--from {position} is beyond the end: {ends}",
            hint="where an export begins is fixed by its first run; --from end begins with what comes next",
        )
