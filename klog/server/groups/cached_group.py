"""A group in its coordinator's memory: which of its members came and went, and its delayed heartbeats.

Any client chooses its member's names and its reason to leave, so all of that is bounded.

Heartbeats are delayed so that members learn at once when their group changes. A member learns of a rebalance from the
answer to its next heartbeat, which it sends every 3 s by default (``heartbeat.interval.ms``), and a new member waits
that long for its share. With the answer delayed until something happens, or until `DELAY_S` have passed, the members
join again within milliseconds. In the first interval after a rebalance no heartbeat has arrived yet, and nothing is
gained.

Limits
    * Only for clients that are known to do other work meanwhile: some (kafkajs) wait for the answer before they read
      on. A client names itself in ApiVersions 3 and later (KIP-511).
    * A connection's answers go out in the order of its requests: any later request, a commit say, releases the
      heartbeat before it.
    * Never for longer than a third of the session time-out: a client counts its session from the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from klog.coordination.group_slots import SlotHolder
from klog.coordination.group_states import MemberState
from klog.errors import KlogError
from klog.groups.group import Group
from klog.groups.members import NEVER_S, Caller, Member
from klog.names import counted
from klog.net.connection import Connection
from klog.server.event_limits import EventLimit

DELAY_S = 2.8
"""A little less than the usual interval: when an answer arrives after the next heartbeat is due, some clients skip that
heartbeat."""
SESSION_SHARE = 3
CAN_WAIT = ("librdkafka", "confluent-kafka", "apache-kafka-java", "kafka-python")
"""Names, or their beginnings, of clients that send heartbeats beside all other work."""


def may_be_delayed(connection: Connection | None) -> bool:
    """Whether the client can wait, and none of its heartbeats is delayed already."""
    if connection is None or connection.software is None or connection.held is not None:
        return False
    return connection.software[0].startswith(CAN_WAIT)


class DelayedHeartbeats:
    """The delayed heartbeats of one group. Event loop only."""

    def __init__(self) -> None:
        self._delayed: dict[asyncio.Future[KlogError | None], Caller] = {}

    def __len__(self) -> int:
        return len(self._delayed)

    def delay(self, caller: Caller, connection: Connection, session_s: float) -> asyncio.Future[KlogError | None]:
        """Wait until the group changes, another request arrives, or the time is over."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[KlogError | None] = loop.create_future()
        release = partial(_release, answer, None)
        timer = loop.call_later(min(DELAY_S, session_s / SESSION_SHARE), release)
        connection.held = release
        self._delayed[answer] = caller

        def over(_: asyncio.Future[KlogError | None]) -> None:
            timer.cancel()
            del self._delayed[answer]
            if connection.held is release:
                connection.held = None

        answer.add_done_callback(over)
        return answer

    def group_has_changed(self, group: Group) -> None:
        """Answer the members that must learn of the change."""
        for answer, caller in self._delayed.items():
            error = group.answer_delayed(caller)
            if error is not None:
                _release(answer, error)

    def release_all(self, error: KlogError) -> None:
        """Another broker coordinates the group now."""
        for answer in self._delayed:
            _release(answer, error)


def _release(answer: asyncio.Future[KlogError | None], error: KlogError | None) -> None:
    """Answer it, unless it has been answered."""
    if not answer.done():
        answer.set_result(error)


LISTED_MAX: Final = 10
"""Members that joined, or left, in one event."""
TOLD_MAX: Final = 3
"""Members named in its sentence."""
REASON_CHARS_MAX: Final = 120
NOTED_MAX: Final = 1_000

REFUSALS_MAX: Final = 30
"""Events of refused commits per broker and minute, at most one per group."""


class MemberChanges:
    """The changes of one group since its last event. Event loop only."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}
        self._joined: dict[str, MemberState] = {}
        self._left: dict[str, MemberState] = {}

    def gone(self, members: Iterable[Member], now_s: float) -> None:
        """The coordinator removed these members, at this time of the group's clock."""
        for one in members:
            if one.deadline_s <= now_s:
                since = datetime.now(UTC) - timedelta(seconds=one.session_timeout_s)
                why = f"stopped answering at {since:%H:%M:%S} (no heartbeat for {one.session_timeout_s:g} s)"
            else:
                why = f"did not join again within {one.rebalance_timeout_s:g} s"
            self._note(one.member_id, why)

    def left(self, member_id: str, reason: str | None) -> None:
        """The member left, or an operator removed it; ``reason``: the client's."""
        self._note(member_id, f"left: {reason[:REASON_CHARS_MAX]}" if reason else "left")

    def _note(self, member_id: str, why: str) -> None:
        if len(self._why) < NOTED_MAX:
            self._why[member_id] = why

    def compare(self, before: Sequence[MemberState], after: Sequence[MemberState]) -> None:
        """A generation with members ``after`` replaces one with members ``before``."""
        old = {one.member_id: one for one in before}
        new = {one.member_id: one for one in after}
        self._joined |= {name: one for name, one in new.items() if name not in old}
        self._left |= {name: one for name, one in old.items() if name not in new}

    def take(self) -> dict[str, Any]:
        """Return the facts for an event, and start again."""
        joined, left, why = self._joined, self._left, self._why
        self._joined, self._left, self._why = {}, {}, {}
        told = [f"{_name(one)} {why.get(name, 'is gone')}" for name, one in left.items()]
        told += [f"{_name(one)} joined" for one in joined.values()]
        more = f"; {counted(len(told) - TOLD_MAX, 'member')} more" if len(told) > TOLD_MAX else ""
        return {
            "joined": [_facts(one) for one in list(joined.values())[:LISTED_MAX]],
            "left": [{**_facts(one), "why": why.get(name, "is gone")} for name, one in list(left.items())[:LISTED_MAX]],
            **({"reason": "; ".join(told[:TOLD_MAX]) + more} if told else {}),
        }


def _facts(one: MemberState) -> Mapping[str, str]:
    return {"member": one.member_id, "client": one.client_id, "host": one.host}


def _name(one: MemberState) -> str:
    return one.member_id[:REASON_CHARS_MAX]


@dataclass(slots=True, eq=False)
class CachedGroup:
    """A group, the slot under which it was read, and the timer of its next deadline."""

    group: Group
    holder: SlotHolder
    node_bytes: int = 0
    """The largest size of its node so far, so that members that come back have room."""
    timer: asyncio.TimerHandle | None = None
    armed_s: float = NEVER_S
    used_s: float = 0.0
    """When it was last used."""
    delayed: DelayedHeartbeats = field(default_factory=DelayedHeartbeats)
    looking: asyncio.Future[KlogError | None] | None = None
    """The look for consumers that coordinate through ZooKeeper, of the members that join the empty group now."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no write of the group's node is under way."""
    reported_generation: int = -1
    """The last generation whose assignment was recorded as an event."""
    counted_bytes: int = 0
    """The last counted size of its members."""
    changes: MemberChanges = field(default_factory=MemberChanges)
    refusals: EventLimit = field(default_factory=lambda: EventLimit(1))
    """Limits events of refused commits."""
