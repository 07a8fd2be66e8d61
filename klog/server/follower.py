"""One partition as its follower sees it: what it has, from whom it fetches, and how that stands.

::

    WAITING    no connection to the leader, or resting after an error
    NAMED      the leader was asked, and has not said whether the logs agree
    FETCHING   they agree up to our end
    CUTTING    they do not: a thread is cutting our log, or beginning it anew
    FENCED     we cannot follow under this epoch: only the controller's word changes that
    FAILED     our disk does not serve

The transitions are in `NEXT`; an unknown one is our error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from klog.names import TopicPartition
from klog.storage.log import Log, LogEnd

if TYPE_CHECKING:
    from klog.server.leader_link import LeaderLink


class FollowerState(Enum):
    WAITING = "waiting"
    NAMED = "named"
    FETCHING = "fetching"
    CUTTING = "cutting"
    FENCED = "fenced"
    FAILED = "failed"


_ANY_WAIT: Final = frozenset({FollowerState.WAITING, FollowerState.FENCED, FollowerState.FAILED})

NEXT: Final[Mapping[FollowerState, frozenset[FollowerState]]] = {
    FollowerState.WAITING: _ANY_WAIT | {FollowerState.NAMED},
    FollowerState.NAMED: _ANY_WAIT | {FollowerState.NAMED, FollowerState.FETCHING, FollowerState.CUTTING},
    FollowerState.FETCHING: _ANY_WAIT | {FollowerState.CUTTING},
    FollowerState.CUTTING: _ANY_WAIT,
    FollowerState.FENCED: _ANY_WAIT,
    FollowerState.FAILED: frozenset({FollowerState.FAILED}),
}


class Missing(NamedTuple):
    """Addresses from ``place`` to ``end`` that are lost here."""

    place: LogEnd
    end: int


class Follower:
    """Event loop only. Changed by `Fetchers` and the `LeaderLink` it belongs to."""

    __slots__ = (
        "alone",
        "high_watermark",
        "is_in_sync",
        "keep_cut",
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
        keep_cut: bool = False,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.state_version = state_version
        self.high_watermark = high_watermark
        """What is known to be committed and is flushed here: the lower of the leader's and our flushed end."""
        self.keep_cut = keep_cut
        """Whether what is cut stays beside the log whatever it was: after an unclean election."""
        self.alone = asyncio.Lock()
        """For a thread that changes the log but for appending: one at a time."""
        self.state = FollowerState.WAITING
        self.is_in_sync = False
        """Whether our end had reached the leader's high watermark when it last answered."""
        self.link: LeaderLink | None = None
        self.slot = -1
        self.leader_high = LogEnd(-1, -1)
        self.retry_s = 0.0
        """How long the next rest after an error is."""
        self.missing: list[Missing] = []
        """What our disk has lost and the leader may have, lowest first: see `klog.server.refills`."""
        self.raising_start = False
        self.reserved_bytes = 0
        """What the throttle has set aside for the answer that is due."""

    def __repr__(self) -> str:
        return f"Follower({self.topic_partition} of {self.leader} in epoch {self.leader_epoch}, {self.state.value})"

    def become(self, state: FollowerState) -> None:
        assert state in NEXT[self.state], f"{self} cannot become {state.value}"
        self.state = state

    @property
    def whole_end(self) -> LogEnd:
        """What is flushed here without a gap: more is not said to the leader, and we are not in sync without it."""
        flushed = self.log.flushed_end
        if self.missing and self.missing[0].place.address < flushed.address:
            return self.missing[0].place
        return flushed

    def know(self, leader_high: LogEnd) -> None:
        """The leader's high watermark, as its answer says."""
        self.leader_high = leader_high
        self.is_in_sync = self.log.end.address >= leader_high.address
        self.advance()

    def advance(self) -> None:
        """The high watermark follows the leader's as far as we have flushed."""
        flushed, leader_high = self.whole_end, self.leader_high
        known = leader_high if leader_high.address <= flushed.address else flushed
        if known.address > self.high_watermark.address:
            self.high_watermark = known

    def was_cut(self) -> None:
        """The log ends lower, or elsewhere: nothing behind its end is committed here."""
        if self.high_watermark.address > self.log.end.address:
            self.high_watermark = self.log.end
