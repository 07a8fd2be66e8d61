"""A group in its coordinator's memory, and which of its members joined and left between two generations.

Any client chooses its member's names and its reason to leave, so all of that is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from klog.coordination.group_slots import SlotHolder
from klog.coordination.group_states import MemberState
from klog.groups.group import Group
from klog.groups.members import NEVER_S, Member
from klog.names import counted
from klog.server.event_limits import EventLimit
from klog.server.groups.delayed_heartbeats import DelayedHeartbeats

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
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no write of the group's node is under way."""
    reported_generation: int = -1
    """The last generation whose assignment was recorded as an event."""
    counted_bytes: int = 0
    """The last counted size of its members."""
    changes: MemberChanges = field(default_factory=MemberChanges)
    refusals: EventLimit = field(default_factory=lambda: EventLimit(1))
    """Limits events of refused commits."""
