"""Heartbeats whose answer is held back, so that members hear at once when their group changes.

Why: a member learns of a rebalance from the answer to its next heartbeat, which it sends every 3 s by default
(``heartbeat.interval.ms``): so long a new member waits for its share. With the answer held back until something
happens, or `HOLD_S` have passed, the members join again within milliseconds. In the first interval after a rebalance
no heartbeat has come yet; then it is as without.

Limits
    * Only of clients that are known to go on with other things meanwhile: some (kafkajs) wait for the answer before
      they read on. A client says what it is in ApiVersions 3 and later (KIP-511).
    * Answers go out in the order of the requests: whatever else comes on the connection, a commit say, lets it go.
    * Never for longer than a third of the session: a client counts its session from the answers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from klog.errors import KlogError

if TYPE_CHECKING:
    from klog.net.connection import Connection
    from klog.server.groups.group import Group

HOLD_S = 2.8
"""A little less than the usual interval: an answer that comes after the next heartbeat is due makes some clients skip
that one."""
SESSION_PART = 3
HEARS_LATE = ("librdkafka", "confluent-kafka", "apache-kafka-java", "kafka-python")
"""What clients call themselves, or begin with, that send heartbeats beside everything else they do."""


@dataclass(slots=True, eq=False)
class Held:
    """One heartbeat that waits for its answer."""

    member_id: str
    instance_id: str | None
    generation: int
    answer: asyncio.Future[KlogError | None] = field(default_factory=asyncio.Future)

    def tell(self, error: KlogError | None = None) -> None:
        """Its answer; nothing if it has one."""
        if not self.answer.done():
            self.answer.set_result(error)


def may_be_held(connection: Connection | None) -> bool:
    """Whether the client can wait, and nothing of it waits already."""
    if connection is None or connection.software is None or connection.held is not None:
        return False
    return connection.software[0].startswith(HEARS_LATE)


class HeldHeartbeats:
    """Those of one group. Event loop only."""

    def __init__(self) -> None:
        self._held: set[Held] = set()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, held: Held, connection: Connection, session_s: float) -> asyncio.Future[KlogError | None]:
        """Until the group changes, another request comes, or the time is over."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(min(HOLD_S, session_s / SESSION_PART), held.tell)
        connection.held = held.tell
        self._held.add(held)

        def over(_: asyncio.Future[KlogError | None]) -> None:
            timer.cancel()
            self._held.discard(held)
            if connection.held == held.tell:
                connection.held = None

        held.answer.add_done_callback(over)
        return held.answer

    def group_has_changed(self, group: Group) -> None:
        """Tell those that have something to hear."""
        for held in list(self._held):
            error = group.answer_held(held.member_id, held.instance_id, held.generation)
            if error is not None:
                held.tell(error)

    def tell_all(self, error: KlogError) -> None:
        """The group is another's now."""
        for held in list(self._held):
            held.tell(error)
