"""A group in its coordinator's memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from klog.coordination.group_slots import SlotHolder
from klog.groups.group import Group
from klog.groups.members import NEVER_S
from klog.server.event_limits import EventLimit
from klog.server.groups.changes import MemberChanges
from klog.server.groups.delayed_heartbeats import DelayedHeartbeats


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
