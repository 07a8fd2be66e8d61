"""Where two logs of a partition diverge, and where a follower must truncate (rule R3; KIP-101, KIP-279). Pure.

Theory. A batch carries the epoch of the leader that wrote it, each epoch has one leader, and a leader only appends. So
two logs that both hold a batch of epoch E agree up to the lower of their ends of E. A follower sends the epoch of its
last batch and its end; the leader checks whether that end lies in its own part of that epoch. If not, it answers with
the largest epoch that it has at or below the asked one, and that epoch's end. The follower truncates to the lower of
that end and its own end of that epoch, and asks again: epochs that only one of them has are skipped one by one
(KIP-279). Every round removes something, so the rounds end.

Epochs in a hole of its log are unknown to the leader, which takes them for the epoch before: a follower keeps what it
has there. It may be unacknowledged, or the last copy of acknowledged messages.

Epochs without a batch count on the leader's side only: a leader knows its epoch before the first batch of it (rule R8),
while a former leader that follows forgets an epoch in which it wrote nothing (`Log.forget_empty_epochs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from klog.storage.epochs import NO_EPOCH, EpochStart
from klog.storage.log import Log
from klog.storage.log_end import LogEnd


class Diverged(NamedTuple):
    """The leader has nothing of ``epoch`` from ``end`` on, nor of any later epoch that the follower may have."""

    epoch: int
    end: LogEnd


class StartsElsewhere(NamedTuple):
    """The logs have nothing in common: the follower's must restart where the leader's starts."""

    address: int
    offset: int
    """The log start offset."""


Disagreement: TypeAlias = Diverged | StartsElsewhere


def disagreement(log: Log, last_epoch: int, end_address: int) -> Disagreement | None:
    """A leader's answer to a follower whose last batch is of ``last_epoch`` and whose log ends at ``end_address``.

    None if they agree. ``last_epoch``: -1 for a log that never held a batch. Reads the log's files where the end lies
    far back: for a thread, unless `Log.is_known`.
    """
    start = log.start_address
    if end_address < start or (last_epoch == NO_EPOCH and end_address != start):
        return StartsElsewhere(start, log.start_offset)
    if last_epoch == NO_EPOCH:
        return None
    epochs = log.epoch_starts
    if not epochs or last_epoch < epochs[0].epoch:
        return StartsElsewhere(start, log.start_offset)
    if last_epoch > epochs[-1].epoch:
        # Where requests are fenced by exact epochs: what an earlier leader wrote to a log that was set back since.
        return Diverged(epochs[-1].epoch, log.end)
    epoch, end = log.epoch_end(last_epoch)
    if epoch != last_epoch or end_address > end.address:
        return Diverged(epoch, end)
    floor = log.floor(end_address)
    if floor.address == end_address or log.is_in_hole(end_address):
        return None
    return Diverged(epoch, floor)


def truncation_address(epochs: Sequence[EpochStart], start_address: int, end_address: int, diverged: Diverged) -> int:
    """Where a follower truncates after the answer ``diverged``: below its end, and at least at its start.

    ``epochs``: its own, oldest first. The address may lie inside a batch, which is then removed as well.
    """
    own_end = start_address
    for at, one in enumerate(epochs):
        if one.epoch > diverged.epoch:
            break
        own_end = epochs[at + 1].address if at + 1 < len(epochs) else end_address
    return max(min(own_end, diverged.end.address), start_address)
