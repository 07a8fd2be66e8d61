"""A partition on its leader: appends, followers, the ISR, the high watermark, and the requests that wait for it.

Committed means: in the log of every in-sync replica and flushed there under the flush rule. The high watermark is the
log end below which everything is committed. Consumers see nothing above it. An acks=all acknowledgement is sent only
when it has passed the batch in the epoch in which the batch was appended (rule R9): a `LedPartition` is one leader in
one epoch, and what waits in it fails when that epoch is over.

No I/O but the log's own; the time is passed in. `isr` decides the ISR. ``want_isr`` asks for it to be written, and the
outcome comes back by `isr_written` or `adopt`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from klog.config.topic import effective_min_isr
from klog.coordination.partition_states import PartitionState
from klog.errors import (
    FencedLeaderEpoch,
    KlogError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    ReplicaNotAvailable,
    StaleBrokerEpoch,
    UnknownLeaderEpoch,
)
from klog.names import TopicPartition
from klog.record.batch import BatchHeader
from klog.replication.isr import (
    IsrChange,
    LagMarks,
    ReplicaPosition,
    Sync,
    decide_isr,
    due_after_s,
    has_caught_up,
)
from klog.storage.log import AppendResult, Log, LogEnd

REFUSED_S = 5.0
"""Time after a refusal for which a batch out of order counts as following a refused one."""


class CommitWaiter(Protocol):
    """Called when an append is committed, or will not be."""

    def committed(self, error: KlogError | None) -> None: ...


class DataWaiter(Protocol):
    """Called when there is more to read."""

    def more(self, partition: LedPartition) -> None: ...


class _Waiting(NamedTuple):
    address: int
    """The end of the append: committed when the high watermark has reached it."""
    waiter: CommitWaiter


_NO_READERS: Final[frozenset[DataWaiter]] = frozenset()
_NO_OTHERS: Final[Mapping[int, int]] = MappingProxyType({})
"""Shared by all partitions without followers: a broker may lead tens of thousands of idle ones."""


class LedPartition:
    """The leader's side of one partition, in one epoch. Event loop only."""

    __slots__ = (
        "_counted",
        "_incarnations",
        "_marked_s",
        "_marks",
        "_others",
        "_positions",
        "_readers",
        "_refusal",
        "_replica_readers",
        "_resigned",
        "_settled_at",
        "_unheard_since",
        "_waiting",
        "_want_flush",
        "_want_isr",
        "broker_id",
        "change",
        "epoch_start_address",
        "high_watermark",
        "incarnation",
        "isr_size",
        "leader_epoch",
        "log",
        "refused_until_s",
        "replicas",
        "sources",
        "state",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        *,
        want_flush: Callable[[Log], None],
        broker_id: int,
        incarnation: int,
        replicas: tuple[int, ...],
        state: PartitionState,
        high_watermark: LogEnd | None = None,
        want_isr: Callable[[LedPartition], None],
    ) -> None:
        """Lead from the log end on. ``high_watermark``: the last known one, as a follower or from a checkpoint.

        ``want_isr(partition)`` is called when a follower may have caught up.
        """
        self.topic_partition = topic_partition
        self.log = log
        self.leader_epoch = state.leader_epoch
        self.broker_id = broker_id
        self.incarnation = incarnation
        self.epoch_start_address = log.end.address
        """The start of this leader's epoch; until the high watermark reaches it, the visible end may be stale (rule
        R8)."""
        known = LogEnd(log.start_address, log.start_offset) if high_watermark is None else high_watermark
        self.high_watermark: LogEnd = known if known.address <= log.end.address else log.end
        self.change: IsrChange | None = None
        """The change of the ISR under way, until its outcome is known (rule R2)."""
        self.refused_until_s = 0.0
        """By the loop's clock; until then batches may arrive whose predecessors were refused and will be sent again."""
        self.sources: object = None
        """State that a handler keeps per partition and epoch (ProduceAt)."""
        self._want_flush = want_flush
        self._want_isr = want_isr
        self._positions: dict[int, ReplicaPosition] = {}
        self._marks = LagMarks()
        self._marked_s: float | None = None
        """When the last mark was made; None before the first, and while none are made (`settle`)."""
        self._settled_at = -1
        """The log end at the last look that found nothing to do; see `settle`."""
        self._unheard_since: dict[int, float | None] = {}
        """Follower -> the last mark before its last report; None until the next mark if there was no recent one."""
        self._waiting: list[_Waiting] = []  # not a deque: an empty one takes 760 bytes
        self._readers: set[DataWaiter] | frozenset[DataWaiter] = _NO_READERS
        self._replica_readers: set[DataWaiter] | frozenset[DataWaiter] = _NO_READERS
        self._refusal: KlogError | None = None
        self._resigned = False
        self._take(replicas, state)
        self.flushed(log.flushed_end)

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(
        self, records: memoryview, headers: list[BatchHeader] | None = None, *, repeats_expected: bool = False
    ) -> AppendResult:
        """Append a record set as the leader, and ask for the flush that will commit it.

        See `Log.append` for the arguments, and for what it raises for bad batches, sequences and disks; NotLeader after
        `resign`.
        """
        if self._refusal is not None:
            raise self._refusal.bare()
        result = self.log.append(records, self.leader_epoch, headers, repeats_expected=repeats_expected)
        self._want_flush(self.log)
        if self.log.flushed_end.address > self.high_watermark.address:  # where the rule is never to flush
            self.flushed(self.log.flushed_end)
        if self._replica_readers:
            for reader in list(self._replica_readers):
                reader.more(self)
        return result

    def check_in_sync(self) -> None:
        """Raise NotEnoughReplicas below ``min.insync.replicas``, before an append with acks=all."""
        if self.isr_size < self.log.config.min_insync_replicas and self.isr_size < self.min_isr:
            raise NotEnoughReplicas(
                f"{self.topic_partition} has {self.isr_size} in-sync replicas; min.insync.replicas is {self.min_isr}"
            )

    def when_committed(self, address: int, waiter: CommitWaiter) -> bool:
        """Whether everything below ``address`` is committed; if not, calls ``waiter`` when it is, or with the error if
        it will not be."""
        if address <= self.high_watermark.address:
            return True
        self._waiting.append(_Waiting(address, waiter))
        return False

    def flushed(self, end: LogEnd) -> None:
        """The leader's log is flushed up to ``end``: advance the high watermark to the lowest flushed end of all that
        count, and wake what waits."""
        if self._resigned:
            return
        lowest = end
        for broker_id in self._counted:
            position = self._positions.get(broker_id)
            if position is None:
                return  # no report under this epoch: it may lack anything (rule R8)
            if position.flushed.address < lowest.address:
                lowest = position.flushed
        if lowest.address <= self.high_watermark.address:
            return
        self.high_watermark = lowest
        waiting = self._waiting
        if waiting:
            error = None
            if self.isr_size < self.min_isr:
                error = NotEnoughReplicasAfterAppend(
                    f"{self.topic_partition} was committed with {self.isr_size} in-sync replicas; "
                    f"min.insync.replicas is {self.min_isr}"
                )
            committed = 0
            while committed < len(waiting) and waiting[committed].address <= lowest.address:
                committed += 1
            done = waiting[:committed]
            del waiting[:committed]
            for one in done:
                one.waiter.committed(error)
        if self._readers:
            for reader in list(self._readers):
                reader.more(self)

    def failed(self, error: KlogError) -> None:
        """Fail all waiting appends: the disk has failed, or the epoch is over."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.waiter.committed(error)

    def finish(self) -> None:
        """Refuse further appends; those that wait may still be committed by the last flush."""
        self._refusal = self._refusal or NotLeader(f"{self.topic_partition} is led by another broker")

    def suspend(self, error: KlogError) -> None:
        """The ZooKeeper session is lost: refuse and acknowledge no appends. Committed messages can still be read."""
        self._refusal = error
        self.failed(error)

    def resign(self, error: KlogError) -> None:
        """Stop leading: refuse appends and fail the waiting ones (rule R2)."""
        self._resigned = True
        self._refusal = NotLeader(f"{self.topic_partition} is led by another broker")
        self.failed(error)
        for reader in [*self._readers, *self._replica_readers]:
            reader.more(self)

    # --- replicas -----------------------------------------------------------------------------------------------------

    @property
    def min_isr(self) -> int:
        """In-sync replicas that an append with acks=all needs."""
        return effective_min_isr(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR as it is written, without a change that is under way."""
        return self.state.isr

    @property
    def state_version(self) -> int:
        return self.state.version

    def position(self, broker_id: int) -> ReplicaPosition | None:
        """A follower's last report under this epoch; None without one."""
        return self._positions.get(broker_id)

    def check_replica(self, leader_epoch: int, broker_id: int, incarnation: int) -> None:
        """Check that a replica's fetch is for this leader in this epoch, and from the replica's last incarnation.

        Raises NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch, ReplicaNotAvailable, StaleBrokerEpoch.
        """
        if self._resigned:
            raise NotLeader(f"{self.topic_partition} is led by another broker")
        if leader_epoch != self.leader_epoch:
            self.check_epoch(max(leader_epoch, 0))
        if broker_id not in self.replicas or broker_id == self.broker_id:
            raise ReplicaNotAvailable(f"broker {broker_id} has no replica of {self.topic_partition}")
        known = self._positions.get(broker_id)
        if known is not None and incarnation < known.incarnation:
            raise StaleBrokerEpoch(
                f"broker {broker_id} has fetched {self.topic_partition} as incarnation {known.incarnation} already, "
                f"not {incarnation}"
            )

    def replica_fetched(
        self, broker_id: int, incarnation: int, end_address: int, flushed: LogEnd, now_s: float
    ) -> None:
        """Take a replica's report: its log ends at ``end_address`` and is flushed up to ``flushed``.

        Only after `check_replica`, and for a log that agrees with the leader's (`klog.replication.divergence`). A new
        incarnation's position replaces the old one's, even if it is lower (rule R3). ``now_s``: any monotonic clock.
        """
        self._positions[broker_id] = ReplicaPosition(incarnation, end_address, flushed)
        self._settled_at = -1
        if self._unheard_since:
            self._unheard_since[broker_id] = self._marked_s
        if broker_id in self._counted:
            self.flushed(self.log.flushed_end)
        if self.change is None and self._might_join(broker_id):
            self._want_isr(self)

    def _might_join(self, broker_id: int) -> bool:
        position = self._positions[broker_id]
        if broker_id in self.state.isr:
            return self._is_another(broker_id, position)
        return has_caught_up(position, self.high_watermark.address, self.epoch_start_address)

    def _is_another(self, broker_id: int, position: ReplicaPosition) -> bool:
        """Whether a member of the ISR has registered again since the state was written."""
        return self._incarnations.get(broker_id, position.incarnation) not in (position.incarnation, -1)

    def mark(self, now_s: float, lag_s: float) -> None:
        """Note the log end, to measure lag by. Call a few times per ``lag_s``."""
        self._marks.note(now_s, self.log.end.address, 2 * lag_s + (due_after_s(self.log.config) or 0.0))
        if not self._unheard_since:
            self._unheard_since = dict.fromkeys(self.replicas, now_s)
        elif self._marked_s is None:
            self._unheard_since = {one: now_s if at is None else at for one, at in self._unheard_since.items()}
        self._marked_s = now_s

    @property
    def needs_look(self) -> bool:
        """Whether a heartbeat may have something to do here: `mark`, `propose_isr`, and the checks after it."""
        return len(self.replicas) > 1 and self._settled_at != self.log.end.address

    def settle(self) -> None:
        """After a look: skip further ones until an append, a follower's report, or a change of the ISR.

        Only where every replica is in sync and has flushed everything, the leader too: a look would make the same mark
        again.
        """
        end = self.log.end.address
        if self.change is not None or set(self.state.isr) != set(self.replicas) or self.log.flushed_end.address < end:
            return
        for broker_id in self._others:
            position = self._positions.get(broker_id)
            if position is None or position.flushed.address < end or self._is_another(broker_id, position):
                return
        self._settled_at = end
        self._marked_s = None

    def propose_isr(
        self, now_s: float, alive: Mapping[int, int], lag_s: float, lag_messages: int | None = None
    ) -> IsrChange | None:
        """The change of the ISR that is due, from here on under way (rule R2); None without one, or while one is under
        way.

        ``alive``: broker id -> incarnation. A replica that has been behind for more than ``lag_s`` since its flush fell
        due leaves (rule R4); with ``lag_messages`` also one that is behind by more messages.
        """
        if self.change is not None or self._resigned or self._refusal is not None:
            return None
        lagging = {}
        for broker_id in self._others:
            how = self._lag(broker_id, now_s, lag_s, lag_messages)
            if how:
                lagging[broker_id] = how
        change = decide_isr(
            Sync(
                self.broker_id,
                self.incarnation,
                self.replicas,
                self.state,
                self._positions,
                alive,
                self.high_watermark.address,
                self.epoch_start_address,
                lagging,
            )
        )
        if change is not None:
            self.change = change
            self._count()
        return change

    def _lag(self, broker_id: int, now_s: float, lag_s: float, lag_messages: int | None) -> str:
        """How a member of the ISR is too far behind; empty if it is not."""
        since = self.behind_since(broker_id)
        if since is not None and now_s - since > lag_s + (due_after_s(self.log.config) or 0.0):
            position = self._positions.get(broker_id)
            where = "it has not fetched" if position is None else f"flushed up to {position.flushed.address}"
            return f"behind for {now_s - since:.1f} s, {where}"
        if lag_messages is not None:
            position = self._positions.get(broker_id)
            behind = None if position is None else self.log.count(position.end_address, self.log.end.address)
            if behind is not None and behind > lag_messages:
                return f"behind by {behind} messages"
        return ""

    def behind_since(self, broker_id: int) -> float | None:
        """Since when a replica is known to be behind in flushes that are due; None if it is not."""
        position = self._positions.get(broker_id)
        if position is None:
            return self._marks.behind_since(None)
        by_flush = due_after_s(self.log.config) is not None
        return self._marks.behind_since(position.flushed.address if by_flush else position.end_address)

    def own_flush_is_overdue(self, now_s: float, lag_s: float) -> bool:
        """Whether the leader's own disk is overdue for longer than a follower may be (rule R4)."""
        due = due_after_s(self.log.config)
        since = None if due is None else self._marks.behind_since(self.log.flushed_end.address)
        return since is not None and due is not None and now_s - since > lag_s + due

    def is_deserted(self, now_s: float, patience_s: float) -> bool:
        """Whether there are other members of the ISR, and none of them has fetched for that long (rule R6)."""
        since = [self.behind_since(broker_id) for broker_id in self._others]
        patience_s += due_after_s(self.log.config) or 0.0
        return bool(since) and all(one is not None and now_s - one > patience_s for one in since)

    def is_cut_off(self, now_s: float, alive: Mapping[int, int], lag_s: float) -> bool:
        """Whether to hand leadership over: no follower reaches this leader, and they could go on without it, but not it
        alone.

        That is: a member is too far behind, none has reported on this partition for half that time, they are registered
        as before, and are as many as ``min.insync.replicas`` asks for. A broker that is only slow still reports. After
        the change of leader this broker is out of the ISR; each such change shrinks the ISR, so they end when too few
        members are left.
        """
        least = self.min_isr
        if self.change is not None or self._resigned or self._refusal is not None or least < 2:
            return False
        if sum(alive.get(one) == self._incarnations.get(one) for one in self._others) < least:
            return False
        since = [self.behind_since(one) for one in self._others]
        behind = [one for one in since if one is not None]
        unheard = [self._unheard_since.get(one) for one in self._others]
        return (
            len(behind) == len(since)
            and now_s - min(behind) > lag_s + (due_after_s(self.log.config) or 0.0)
            and all(one is not None and now_s - one > lag_s / 2 for one in unheard)
        )

    def isr_written(self, change: IsrChange, state_version: int) -> None:
        """``change`` is in ZooKeeper, at ``state_version``. Ignored unless it is the one under way."""
        if self.change is change and state_version > self.state.version:
            self._take(self.replicas, replace(self.changed(change), version=state_version))
            self.flushed(self.log.flushed_end)

    def changed(self, change: IsrChange) -> PartitionState:
        """The state to write for a change, at the version that it replaces."""
        return replace(
            self.state, isr=change.isr, incarnations=change.incarnations, version=change.state_version, new=False
        )

    def adopt(self, replicas: tuple[int, ...], state: PartitionState) -> bool:
        """Adopt a state that another broker has written under this epoch, if it is newer; returns whether it is.

        A write of this leader that names an earlier version can no longer succeed, so nothing is under way afterwards.
        A replica removed from the ISR by the controller starts without a position: earlier reports do not bring it back
        (KIP-841).
        """
        if state.version <= self.state.version:
            if replicas != self.replicas:  # not in the state: the controller's last request decides
                self._take(replicas, self.state, self.change)
                return True
            return False
        for broker_id in set(self.state.isr) - set(state.isr):
            self._positions.pop(broker_id, None)
        self._take(replicas, state)
        self.flushed(self.log.flushed_end)
        return True

    def _take(self, replicas: tuple[int, ...], state: PartitionState, change: IsrChange | None = None) -> None:
        self.replicas = replicas
        self.state = state
        self.change = change
        self.isr_size = len(state.isr)
        self._others = tuple(one for one in state.isr if one != self.broker_id)
        self._incarnations: Mapping[int, int] = _NO_OTHERS
        if self._others:
            self._incarnations = dict(zip(state.isr, state.incarnations, strict=False))
        for broker_id in self._positions.keys() - set(replicas):
            del self._positions[broker_id]
        self._count()

    def _count(self) -> None:
        """Find the members whose flushed ends count: the others in the old and the proposed ISR (rule R2)."""
        self._settled_at = -1
        proposed = () if self.change is None else self.change.isr
        self._counted = tuple(dict.fromkeys((*self._others, *(one for one in proposed if one != self.broker_id))))

    # --- reading ------------------------------------------------------------------------------------------------------

    def check_epoch(self, asked: int) -> None:
        """KIP-320: raise for a client with another leader epoch, which must refresh its metadata; -1: unknown."""
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
        """Call a consumer's reader when the high watermark moves."""
        self._readers = _with(self._readers, reader)

    def unwatch(self, reader: DataWaiter) -> None:
        _remove(self._readers, reader)

    def watch_appends(self, reader: DataWaiter) -> None:
        """Call a replica's reader after an append, or when the leader resigns."""
        self._replica_readers = _with(self._replica_readers, reader)

    def unwatch_appends(self, reader: DataWaiter) -> None:
        _remove(self._replica_readers, reader)


def _with(readers: set[DataWaiter] | frozenset[DataWaiter], reader: DataWaiter) -> set[DataWaiter]:
    if isinstance(readers, frozenset):
        return {reader}
    readers.add(reader)
    return readers


def _remove(readers: set[DataWaiter] | frozenset[DataWaiter], reader: DataWaiter) -> None:
    if not isinstance(readers, frozenset):
        readers.discard(reader)
