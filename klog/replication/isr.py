"""Which replicas are in sync, and what is committed: the leader's decisions, as functions. Pure.

Lag is measured with *marks*: now and then the leader notes its log end. A replica that has not reached a mark has been
behind at least since the mark was made; one that has reached it can be behind only since a later one. Nothing is
counted on the path of a message, and an idle partition costs nothing, however rarely its followers report.

Rules
* R2: while a change of the ISR is under way the high watermark counts every member of the old and the new one.
* R4: lag is that of *flushed* positions, from the moment when a flush falls due.
* R5, R1: a position belongs to one incarnation. A new one starts without; a member under another incarnation than the
  state names has either caught up by itself, and is named again, or leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klog.config.topic import LogConfig
from klog.coordination.partition_states import UNKNOWN_INCARNATION, PartitionState
from klog.errors import InvalidConfig
from klog.storage.log import NEVER
from klog.storage.log_end import LogEnd

MARKS_MAX = 16


class ReplicaPosition(NamedTuple):
    """A follower's position, as it reported it under the leader's epoch."""

    incarnation: int
    end_address: int
    flushed: LogEnd


def incarnation_of(state: PartitionState, broker_id: int) -> int:
    """The incarnation of a member of the ISR, as the state has it."""
    return dict(zip(state.isr, state.incarnations, strict=False)).get(broker_id, UNKNOWN_INCARNATION)


class IsrChange(NamedTuple):
    """The ISR that the leader wants; ``state_version``: version of the state that it replaces."""

    isr: tuple[int, ...]
    incarnations: tuple[int, ...]
    state_version: int
    reason: str


class LagMarks:
    """Log ends at some moments, oldest first."""

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: list[tuple[float, int]] = []  # not a deque: an empty one takes 760 bytes, for each partition

    def note(self, now_s: float, end_address: int, keep_s: float) -> None:
        """Note the log end now; drops marks older than ``keep_s`` but for one."""
        marks = self._marks
        if marks and marks[-1][1] > end_address:  # the log was truncated: no replica is measured by what is gone
            marks[:] = [(at, min(address, end_address)) for at, address in marks]
        marks.append((now_s, end_address))
        while len(marks) > MARKS_MAX or (len(marks) > 1 and marks[1][0] <= now_s - keep_s):
            del marks[0]

    def behind_since(self, address: int | None) -> float | None:
        """Since when a replica at ``address`` (None: unknown) is known to be behind; None if it is not."""
        for at, end_address in self._marks:
            if address is None or address < end_address:
                return at
        return None


def due_after_s(config: LogConfig) -> float | None:
    """Seconds from an append to its flush; None without a time limit, when lag cannot be measured."""
    if config.flush_messages == 1 or (config.flush_messages >= NEVER and config.flush_ms >= NEVER):
        return 0.0
    return config.flush_ms / 1000 if config.flush_ms < NEVER else None


def check_flush_rule(config: LogConfig, lag_ms: int) -> None:
    """Raise InvalidConfig for a replicated topic whose flushes may fall due too late to measure lag (rule R4)."""
    due_s = due_after_s(config)
    if due_s is None or due_s * 1000 > lag_ms:
        due = "never by time" if due_s is None else f"after {config.flush_ms} ms"
        raise InvalidConfig(
            f"flushes that fall due {due} are too rare for a topic with replicas: "
            f"replica.lag.time.max.ms is {lag_ms}, and flush.ms may be that much",
            hint="set flush.ms, or flush.messages=1 to flush every append; one replica alone may flush as it likes",
        )


class Sync(NamedTuple):
    """The input of `decide_isr`. ``alive``: broker id -> incarnation, from the controller's last request."""

    leader: int
    incarnation: int
    """The leader's own."""
    replicas: tuple[int, ...]
    state: PartitionState
    positions: Mapping[int, ReplicaPosition]
    alive: Mapping[int, int]
    high_watermark: int
    epoch_start: int
    """A follower that has not flushed up to this address has not followed this leader yet (rule R8)."""
    lagging: Mapping[int, str]
    """Members that are too far behind, and how."""


def has_caught_up(position: ReplicaPosition, high_watermark: int, epoch_start: int) -> bool:
    """Whether a follower has flushed all that is committed, and all that its leader had when it was elected."""
    return position.flushed.address >= max(high_watermark, epoch_start)


def decide_isr(sync: Sync) -> IsrChange | None:
    """The change of the ISR that is due; None without one."""
    isr: list[int] = []
    incarnations: list[int] = []
    reasons: list[str] = []
    old = sync.state
    for broker_id in old.isr:
        written = incarnation_of(old, broker_id)
        position = sync.positions.get(broker_id)
        if broker_id == sync.leader:
            now = sync.incarnation
        elif broker_id in sync.lagging:
            reasons.append(f"{broker_id} leaves: {sync.lagging[broker_id]}")
            continue
        elif position is None or written in (position.incarnation, UNKNOWN_INCARNATION):
            now = written if position is None else position.incarnation
        elif _may_join(sync, broker_id, position):
            now = position.incarnation
            reasons.append(f"{broker_id} has caught up since it registered again")
        else:
            reasons.append(f"{broker_id} leaves: it has registered again and has yet to catch up")
            continue
        isr.append(broker_id)
        incarnations.append(now)
    for broker_id in sync.replicas:
        position = sync.positions.get(broker_id)
        if broker_id not in old.isr and position is not None and _may_join(sync, broker_id, position):
            isr.append(broker_id)
            incarnations.append(position.incarnation)
            reasons.append(f"{broker_id} has caught up")
    if not reasons:
        return None
    return IsrChange(tuple(isr), tuple(incarnations), old.version, ", ".join(reasons))


def _may_join(sync: Sync, broker_id: int, position: ReplicaPosition) -> bool:
    return (
        broker_id not in sync.lagging
        and sync.alive.get(broker_id) == position.incarnation
        and has_caught_up(position, sync.high_watermark, sync.epoch_start)
    )
