"""A partition on its follower: log, leader, and the state of fetching.

::

    WAITING     no connection to the leader, or a back-off after an error
    NAMED       named to the leader, which has not answered yet whether the logs agree
    FETCHING    the logs agree up to the follower's end
    TRUNCATING  they do not: a thread truncates the follower's log, or restarts it elsewhere
    FENCED      the log has a later epoch than this leader: only the controller can change that
    FAILED      the follower's disk is offline

`NEXT` has the transitions; any other is a bug.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from klog.errors import KlogError
from klog.names import TopicPartition
from klog.storage.log import Log, LogEnd


class FollowerState(Enum):
    WAITING = "waiting"
    NAMED = "named"
    FETCHING = "fetching"
    TRUNCATING = "truncating"
    FENCED = "fenced"
    FAILED = "failed"


_ANY_WAIT: Final = frozenset({FollowerState.WAITING, FollowerState.FENCED, FollowerState.FAILED})

NEXT: Final[Mapping[FollowerState, frozenset[FollowerState]]] = {
    FollowerState.WAITING: _ANY_WAIT | {FollowerState.NAMED},
    FollowerState.NAMED: _ANY_WAIT | {FollowerState.NAMED, FollowerState.FETCHING, FollowerState.TRUNCATING},
    FollowerState.FETCHING: _ANY_WAIT | {FollowerState.TRUNCATING},
    FollowerState.TRUNCATING: _ANY_WAIT,
    FollowerState.FENCED: _ANY_WAIT,
    FollowerState.FAILED: frozenset({FollowerState.FAILED}),
}


class Missing(NamedTuple):
    """Addresses from ``place`` to ``end`` that this replica has lost."""

    place: LogEnd
    end: int


class Link(Protocol):
    """The connection over which a follower fetches: `klog.server.replicas.fetchers.LeaderLink`."""

    followers: set[Follower]

    def connect(self) -> None: ...
    def drop(self, follower: Follower) -> None: ...
    def ask(self, follower: Follower) -> None: ...
    def report(self, follower: Follower) -> None: ...
    def rest(self, follower: Follower, error: KlogError) -> None: ...
    def fail(self, follower: Follower, error: KlogError) -> None: ...


class Follower:
    """Event loop only. Changed by `Fetchers` and by its link."""

    __slots__ = (
        "alone",
        "high_watermark",
        "is_in_sync",
        "keep_truncated",
        "leader",
        "leader_epoch",
        "leader_high",
        "link",
        "log",
        "missing",
        "raising_start",
        "reserved_bytes",
        "retry_s",
        "slot",
        "state",
        "state_version",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        *,
        leader: int,
        leader_epoch: int,
        state_version: int,
        high_watermark: LogEnd,
        keep_truncated: bool = False,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.state_version = state_version
        self.high_watermark = high_watermark
        """The lower of the leader's high watermark and this replica's flushed end."""
        self.keep_truncated = keep_truncated
        """Whether truncated bytes are always kept: after an unclean election."""
        self.alone = asyncio.Lock()
        """A lock for threads that change the log other than by appending."""
        self.state = FollowerState.WAITING
        self.is_in_sync = False
        """Whether the log end had reached the leader's high watermark at its last answer."""
        self.link: Link | None = None
        self.slot = -1
        self.leader_high = LogEnd(-1, -1)
        self.retry_s = 0.0
        """The next back-off after an error."""
        self.missing: list[Missing] = []
        """Ranges that this disk has lost and the leader may have, lowest first: see `klog.server.replicas.repair`."""
        self.raising_start = False
        self.reserved_bytes = 0
        """Bytes reserved by the throttle for the next answer."""

    def __repr__(self) -> str:
        return f"Follower({self.topic_partition} of {self.leader} in epoch {self.leader_epoch}, {self.state.value})"

    def become(self, state: FollowerState) -> None:
        assert state in NEXT[self.state], f"{self} cannot become {state.value}"
        self.state = state

    @property
    def whole_end(self) -> LogEnd:
        """The flushed end of the log before any gap: what the follower reports, and by which it counts as in sync."""
        flushed = self.log.flushed_end
        if self.missing and self.missing[0].place.address < flushed.address:
            return self.missing[0].place
        return flushed

    def know(self, leader_high: LogEnd) -> None:
        """Take the leader's high watermark from its answer."""
        self.leader_high = leader_high
        self.is_in_sync = self.log.end.address >= leader_high.address
        self.advance()

    def advance(self) -> None:
        """Raise the high watermark to the leader's, as far as this log is flushed."""
        flushed, leader_high = self.whole_end, self.leader_high
        known = leader_high if leader_high.address <= flushed.address else flushed
        if known.address > self.high_watermark.address:
            self.high_watermark = known

    def was_truncated(self) -> None:
        """The log was truncated or restarted: lower the high watermark to its end."""
        if self.high_watermark.address > self.log.end.address:
            self.high_watermark = self.log.end
