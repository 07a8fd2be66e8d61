"""A partition as its leader sees it: appends, the high watermark, and who waits for it to move.

Committed means: in the log of every in-sync replica and flushed there under the flush rule (DESIGN: commit and
visibility). The high watermark is the log end below which everything is committed; consumers see nothing above it, and
an acks=all acknowledgement is sent when it has passed the batch in the epoch in which the batch was appended, and in
no other case (rule R9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from klog.errors import FencedLeaderEpoch, KlogError, NotLeader, UnknownLeaderEpoch
from klog.names import TopicPartition
from klog.storage.log import AppendResult, Log, LogEnd


class CommitWaiter(Protocol):
    """Somebody who waits until an append is committed."""

    def committed(self, error: KlogError | None) -> None: ...


class DataWaiter(Protocol):
    """Somebody who waits until there is more to read."""

    def more(self) -> None: ...


class _Waiting(NamedTuple):
    address: int
    """Committed when the high watermark has reached it: the end of the append."""
    leader_epoch: int
    waiter: CommitWaiter


def decide_high_watermark(current: LogEnd, flushed_ends: Iterable[LogEnd]) -> LogEnd:
    """The high watermark given what each in-sync replica has flushed: the lowest of them, and never back."""
    lowest = min(flushed_ends, key=lambda end: end.address)
    return lowest if lowest.address > current.address else current


class Partition:
    """The leader's side of one partition. Event loop only."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        *,
        leader_epoch: int,
        want_flush: Callable[[Log], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.isr_size = 1
        self.epoch_start_address = log.end.address
        """Where this leader's epoch begins; until the high watermark is there the shown end may be stale (rule R8)."""
        self.high_watermark: LogEnd = log.flushed_end
        self._want_flush = want_flush
        self._commits: deque[_Waiting] = deque()
        self._readers: set[DataWaiter] = set()
        self._resigned = False

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, records: memoryview) -> AppendResult:
        """Append a record set as the leader; the flush that will commit it is asked for.

        Raises what `Log.append` raises for bad batches, sequences and disks; NotLeader after `resign`.
        """
        if self._resigned:
            raise NotLeader(f"{self.topic_partition} is led by another broker")
        result = self.log.append(records, self.leader_epoch)
        self._want_flush(self.log)
        if self.log.flushed_end.address > self.high_watermark.address:  # where the rule is never to flush
            self.flushed(self.log.flushed_end)
        return result

    def when_committed(self, address: int, waiter: CommitWaiter) -> bool:
        """Whether everything below ``address`` is committed already; if not, ``waiter`` is told when it is, or why
        not.
        """
        if address <= self.high_watermark.address:
            return True
        self._commits.append(_Waiting(address, self.leader_epoch, waiter))
        return False

    def flushed(self, end: LogEnd) -> None:
        """Our log is flushed up to ``end``: move the high watermark and wake those it passes."""
        moved = decide_high_watermark(self.high_watermark, (end,))
        if moved is self.high_watermark:
            return
        self.high_watermark = moved
        commits = self._commits
        while commits and commits[0].address <= moved.address:
            commits.popleft().waiter.committed(None)
        if self._readers:
            for reader in list(self._readers):
                reader.more()

    def failed(self, error: KlogError) -> None:
        """The disk has refused: nobody who waits will be committed."""
        while self._commits:
            self._commits.popleft().waiter.committed(error)

    def finish(self) -> None:
        """Take no more appends; those who wait may still be committed by the last flush."""
        self._resigned = True

    def resign(self, error: KlogError) -> None:
        """Lead no more: refuse appends and fail whoever waits (rule R2)."""
        self._resigned = True
        self.failed(error)
        for reader in list(self._readers):
            reader.more()

    # --- reading ------------------------------------------------------------------------------------------------------

    def check_epoch(self, asked: int) -> None:
        """KIP-320: a client that knows another epoch than ours must refresh its metadata; -1 means it did not say."""
        if asked < 0 or asked == self.leader_epoch:
            return
        if asked < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.topic_partition} is in leader epoch {self.leader_epoch}, not {asked}")
        raise UnknownLeaderEpoch(f"{self.topic_partition} is in leader epoch {self.leader_epoch}, not {asked} yet")

    @property
    def resigned(self) -> bool:
        return self._resigned

    @property
    def end_is_known(self) -> bool:
        """Whether the high watermark has reached this leader's own epoch (rule R8)."""
        return self.high_watermark.address >= self.epoch_start_address

    def watch(self, reader: DataWaiter) -> None:
        self._readers.add(reader)

    def unwatch(self, reader: DataWaiter) -> None:
        self._readers.discard(reader)
