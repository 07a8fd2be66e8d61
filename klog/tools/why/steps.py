"""The steps from a symptom to its cause, and what they are found in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from klog.names import first_few
from klog.tools.events import Event, EventFilter, row

if TYPE_CHECKING:
    from klog.admin.acts import ActRow
    from klog.admin.health.snapshot import Snapshot
    from klog.client.metadata import Metadata

LEADER_KINDS: Final = ("leader-elected", "unclean-election", "partition-offline")
ISR_KINDS: Final = ("isr-changed", "isr-expanded", "isr-shrunk")
BROKER_KINDS: Final = ("broker-up", "broker-down")
GROUP_KINDS: Final = ("rebalance", "group-empty", "commit-refused")
MOVE_KINDS: Final = ("reassignment-begun", "reassignment-cancelled", "reassignment-done", "reassignment-stalled")
DISK_KINDS: Final = ("log-dir-offline", "replicas-offline")
TOPIC_KINDS: Final = ("topic-created", "topic-deleted")
KINDS: Final = (*LEADER_KINDS, *ISR_KINDS, *BROKER_KINDS, *GROUP_KINDS, *MOVE_KINDS, *DISK_KINDS, *TOPIC_KINDS)
"""The events that causes are found in."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step from the symptom to the cause. ``do`` is what helps; only a cause has it."""

    step: int
    time: datetime | None
    what: str
    evidence: str
    do: str | None = field(default=None, metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class Known:
    """What was gathered; ``events`` in the order of their time. ``no_events``: why they could not be read."""

    snapshot: Snapshot
    events: Sequence[Event] = ()
    no_events: str | None = None
    acts: Sequence[ActRow] = ()
    """Those that ZooKeeper has, the oldest first."""

    @property
    def metadata(self) -> Metadata:
        """Of its brokers."""
        return self.snapshot.metadata

    @property
    def now(self) -> datetime:
        """When the facts were gathered."""
        return moment(self.snapshot.now_ms)

    def last(self, chosen: EventFilter) -> Event | None:
        """The last event that is chosen."""
        return next((event for event in reversed(self.events) if chosen.takes(event)), None)

    def acts_on(self, subject: str) -> list[ActRow]:
        """The acts on a subject as their rows name it, the newest first."""
        return [act for act in reversed(self.acts) if act.subject == subject]

    def chosen(self, chosen: EventFilter) -> Iterator[Event]:
        """All that are chosen."""
        return (event for event in self.events if chosen.takes(event))


def step(time: datetime | None, what: str, evidence: str, do: str | None = None) -> Step:
    """A step that has no number yet."""
    return Step(0, time, what, evidence, do)


def numbered(steps: Iterable[Step]) -> list[Step]:
    """The steps with their numbers."""
    return [replace(one, step=number) for number, one in enumerate(steps, 1)]


def told(event: Event) -> Step:
    """An event as a step."""
    shown = row(event)
    return step(shown.time, shown.what, f"event {shown.kind}" + (f": {shown.reason}" if shown.reason else ""))


def time_of(event: Event) -> datetime | None:
    """When it happened, by the broker that reports it."""
    return row(event).time


def moment(timestamp_ms: int) -> datetime:
    """A time in ms."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def listed(names: Iterable[Any], shown_max: int = 12) -> str:
    """``1,2,3``, the first few; ``none``."""
    return first_few(names, shown_max, ",") or "none"
