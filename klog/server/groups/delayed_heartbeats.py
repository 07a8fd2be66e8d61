"""Heartbeats whose answers are delayed, so that members learn at once when their group changes.

Why: a member learns of a rebalance from the answer to its next heartbeat, which it sends every 3 s by default
(``heartbeat.interval.ms``). A new member waits that long for its share. With the answer delayed until something
happens, or until `DELAY_S` have passed, the members join again within milliseconds. In the first interval after a
rebalance no heartbeat has arrived yet, and nothing is gained.

Limits
    * Only for clients that are known to do other work meanwhile: some (kafkajs) wait for the answer before they read
      on. A client names itself in ApiVersions 3 and later (KIP-511).
    * A connection's answers go out in the order of its requests: any later request, a commit say, releases the
      heartbeat before it.
    * Never for longer than a third of the session time-out: a client counts its session from the answers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from klog.errors import KlogError

if TYPE_CHECKING:
    from klog.groups.group import Group
    from klog.net.connection import Connection

DELAY_S = 2.8
"""A little less than the usual interval: when an answer arrives after the next heartbeat is due, some clients skip that
heartbeat."""
SESSION_SHARE = 3
CAN_WAIT = ("librdkafka", "confluent-kafka", "apache-kafka-java", "kafka-python")
"""Names, or their beginnings, of clients that send heartbeats beside all other work."""


@dataclass(slots=True, eq=False)
class DelayedHeartbeat:
    """A heartbeat whose answer is delayed."""

    member_id: str
    instance_id: str | None
    generation: int
    answer: asyncio.Future[KlogError | None] = field(default_factory=asyncio.Future)

    def release(self, error: KlogError | None = None) -> None:
        """Answer it, unless it has been answered."""
        if not self.answer.done():
            self.answer.set_result(error)


def may_be_delayed(connection: Connection | None) -> bool:
    """Whether the client can wait, and none of its heartbeats is delayed already."""
    if connection is None or connection.software is None or connection.held is not None:
        return False
    return connection.software[0].startswith(CAN_WAIT)


class DelayedHeartbeats:
    """The delayed heartbeats of one group. Event loop only."""

    def __init__(self) -> None:
        self._delayed: set[DelayedHeartbeat] = set()

    def __len__(self) -> int:
        return len(self._delayed)

    def delay(
        self, heartbeat: DelayedHeartbeat, connection: Connection, session_s: float
    ) -> asyncio.Future[KlogError | None]:
        """Wait until the group changes, another request arrives, or the time is over."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(min(DELAY_S, session_s / SESSION_SHARE), heartbeat.release)
        connection.held = heartbeat.release
        self._delayed.add(heartbeat)

        def over(_: asyncio.Future[KlogError | None]) -> None:
            timer.cancel()
            self._delayed.discard(heartbeat)
            if connection.held == heartbeat.release:
                connection.held = None

        heartbeat.answer.add_done_callback(over)
        return heartbeat.answer

    def group_has_changed(self, group: Group) -> None:
        """Answer the members that must learn of the change."""
        for one in list(self._delayed):
            error = group.answer_delayed(one.member_id, one.instance_id, one.generation)
            if error is not None:
                one.release(error)

    def release_all(self, error: KlogError) -> None:
        """Another broker coordinates the group now."""
        for one in list(self._delayed):
            one.release(error)
