"""The steps from a symptom to its cause, what they are found in, and acts that are causes: a client stopped a broker,
or shortened what a topic keeps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from klog.admin.acts import SETTINGS, ActRow
from klog.admin.health.snapshot import Snapshot
from klog.client.cluster import Cluster
from klog.client.metadata import Metadata
from klog.client.positions import parse_position
from klog.coordination.acts import RECORDS_ACT
from klog.names import first_few
from klog.tools.events import Event, EventFilter, in_turn, read_events, row

LEADER_KINDS: Final = ("leader-elected", "unclean-election", "partition-offline")
ISR_KINDS: Final = ("isr-changed", "isr-expanded", "isr-shrunk")
BROKER_KINDS: Final = ("broker-up", "broker-down")
MOVE_KINDS: Final = ("reassignment-begun", "reassignment-cancelled", "reassignment-done", "reassignment-stalled")
GROUP_KINDS: Final = ("rebalance", "group-empty", "commit-refused")
OTHER_KINDS: Final = ("log-dir-offline", "replicas-offline", "topic-created", "topic-deleted")
KINDS: Final = (*LEADER_KINDS, *ISR_KINDS, *BROKER_KINDS, *MOVE_KINDS, *GROUP_KINDS, *OTHER_KINDS)
"""The events that causes are found in, those since `SINCE`."""
SINCE: Final = "@-7d"
STOPS: Final = {"broker-stop": "stopped broker {}", "broker-restart": "had broker {} restart"}
CREATION: Final = "topic-create"
RETENTION: Final = ("retention.ms", "retention.bytes")
STOPS_WITHIN: Final = timedelta(minutes=10)
"""A broker hands over what it leads before it goes."""
CLOCKS_WITHIN: Final = timedelta(minutes=1)
"""The act has the time of the broker that was stopped, the event that of the controller."""

EXPECTED: Final = "expected: "
"""What the evidence of a step begins with that is a finding itself, as `klog status` shows it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step from the symptom to the cause. ``do`` is what helps; only a cause has it."""

    step: int = field(default=0, kw_only=True)
    """Its number, which `numbered` gives."""
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

    def step(self, what: str, evidence: str, do: str | None = None) -> Step:
        """What is so at that time."""
        return Step(self.now, what, evidence, do)

    def last(self, chosen: EventFilter) -> Event | None:
        return next((event for event in reversed(self.events) if chosen.takes(event)), None)

    def acts_on(self, subject: str) -> list[ActRow]:
        """The acts on a subject as their rows name it, the newest first."""
        return [act for act in reversed(self.acts) if act.subject == subject]

    def chosen(self, chosen: EventFilter) -> Iterator[Event]:
        return (event for event in self.events if chosen.takes(event))


async def events_of(cluster: Cluster, kinds: tuple[str, ...], is_wanted: Callable[[Event], bool]) -> list[Event]:
    """Those since `SINCE` in the order of their times. NoSuchThing where the cluster keeps no events."""
    found: list[Event] = []
    await read_events(cluster, EventFilter(kinds=kinds), parse_position(SINCE), found.append)
    return in_turn(filter(is_wanted, found))


def numbered(steps: Iterable[Step]) -> list[Step]:
    return [replace(one, step=number) for number, one in enumerate(steps, 1)]


def told(event: Event) -> Step:
    shown = row(event)
    return Step(shown.time, shown.what, f"event {shown.kind}" + (f": {shown.reason}" if shown.reason else ""))


def time_of(event: Event | None) -> datetime | None:
    """When it happened, by the broker that reports it."""
    return None if event is None else row(event).time


def with_act(step: Step, act: Step | None) -> list[Step]:
    """A step, and the act that is behind it, if there is one: that is the cause then."""
    return [step] if act is None else [replace(step, do=None), act]


def moment(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def listed(names: Iterable[Any], shown_max: int = 12) -> str:
    """``1,2,3``, the first few; ``none``."""
    return first_few(names, shown_max, ",") or "none"


# --- acts ---


def stopped_by(known: Known, broker: int, down: Event | None, do: str) -> Step | None:
    """Who had the broker stopped, if that is why it went down. ``down``: the event that tells of it."""
    at = time_of(down)
    if at is None:
        return None
    ups = (time_of(event) for event in known.chosen(EventFilter(broker=broker, kinds=("broker-up",))))
    begun = max((up for up in ups if up is not None and up < at), default=at - STOPS_WITHIN)
    for act in known.acts_on(f"broker {broker}"):
        if act.kind in STOPS and max(begun, at - STOPS_WITHIN) < act.time < at + CLOCKS_WITHIN:
            return Step(act.time, f"{act.principal} {STOPS[act.kind].format(broker)}", f"act {act.act}", do)
    return None


def shortened_by(known: Known, topic: str, do: str) -> Step | None:
    """Who set what the topic keeps, the last time that it became less. None where it is the brokers' default."""
    mine = [act for act in known.acts_on(f"topic {topic}") if act.kind in (SETTINGS, CREATION)]
    for act in mine:
        for name in RETENTION:
            before, after = _value(name, act.before), _value(name, act.after)
            if after is None or after < 0 or (before is not None and 0 <= before <= after):
                continue
            if act is mine[0] and act.kind == SETTINGS and act.undone_by is None:
                do = f"{do}; `klog undo {act.act}` sets what was before"
            was = "" if act.kind == CREATION else f" (before: {'the default' if before is None else before})"
            what = f"{act.principal} set {name} to {after}{was}"
            return Step(act.time, what, f"act {act.act}, {act.kind}", do)
    return None


def deleted_by(known: Known, topic: str, partition: int, offset: int, do: str) -> Step | None:
    """Who had the messages up to this offset deleted. A client that does it again and again has one act an hour."""
    mine = [act for act in known.acts_on(f"topic {topic}") if act.kind == RECORDS_ACT]
    for act in mine:
        below = _value(str(partition), act.after)
        if below is not None and below > offset:
            what = f"{act.principal} had the messages of {topic}-{partition} below {below} deleted"
            return Step(act.time, what, f"act {act.act}, {act.kind}", do)
    for act in mine:
        if _value(str(partition), act.after) is not None:
            what = f"{act.principal} has messages of {topic}-{partition} deleted"
            return Step(act.time, what, f"act {act.act}, {act.kind}: one act an hour", do)
    return None


def _value(name: str, shown: str) -> int | None:
    """A setting in what an act shows: ``NAME=VALUE``, or ``"NAME": "VALUE"`` where it made the topic."""
    found = re.search(rf'(?:^|[ "]){re.escape(name)}(?:=|": ")(-?\d{{1,19}})', shown)
    return None if found is None else int(found[1])
