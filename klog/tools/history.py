"""What has happened, folded by cause. Pure: events in, stories out.

A topic's creation is one story with its act, its settings and its first leaders. A broker's absence is one: who asked
for it, the leaders and in-sync sets that changed for it, its return, and what came back with it. Absences that begin
together are one death, restarts that follow one another are a rolling restart.

Rules
    * An event is in one story, and none is left out: `StoryRow.events` counts them.
    * Stories are in the order of their first events.
    * What fits no rule is a story of its own; like events of one cause within `TOGETHER` are one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from klog.admin.undo import CANNOT_BE_UNDONE
from klog.event_kinds import Fate
from klog.names import counted, first_few
from klog.render.value_texts import duration_text
from klog.tools.events import Event, EventRow, brokers_of, row

TOGETHER: Final = timedelta(seconds=10)
"""What happens within this time is one thing, if it has one cause."""
AFTER: Final = timedelta(hours=1)
"""For so long after its return a broker gets back what it had."""
RESTARTS_WITHIN: Final = timedelta(minutes=5)
"""Between the restarts of one rolling restart."""
NAMED_MAX: Final = 4

STOPS: Final = ("broker-stop", "broker-restart")
LOST: Final = {
    "leader-elected": "{} with another leader",
    "unclean-election": "{} led by a replica that was not in sync",
    "partition-offline": "{} without a leader",
    "isr-changed": "{} with fewer in sync",
    "isr-shrunk": "{} with fewer in sync",
}
"""Events that the absence of a broker causes, and how they are counted."""
REPEATED: Final = ("rebalance", "group-empty", "throttled", "denied", "commit-refused")
CHANGES: Final = ("topic-created", "partitions-added", "settings-changed", "topic-deleted", "topic-restored")
"""Events that come with the act that made them."""
_NAMED: Final = re.compile(rf"\bbroker (\d{{1,9}}) (?:{'|'.join(Fate)})")
_ORDERLY: Final = re.compile(rf"\b(?:{'|'.join(one for one in Fate if one.is_orderly)})")


@dataclass(frozen=True, slots=True)
class StoryRow:
    """``undo``: the act that `klog undo` takes back. ``events``: how many were folded."""

    time: datetime | None
    what: str
    cause: str | None
    undo: str | None
    events: int = field(default=1, metadata={"wide": True})


@dataclass
class Story:
    """Events of one cause. ``shown``: the first as a row. ``brokers``: whose absence it is; ``back``: when the last of
    them was back."""

    first: Event
    shown: EventRow
    ended: datetime | None
    events: int = 0
    names: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    act: Event | None = None
    brokers: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    back: datetime | None = None
    is_orderly: bool = False
    is_wanted: bool = False
    restarts: int = 0

    def is_near(self, time: datetime | None) -> bool:
        return time is not None and self.ended is not None and abs(time - self.ended) <= TOGETHER

    def is_over(self, time: datetime | None) -> bool:
        """Whether its brokers have been back for so long that what they get is another story."""
        return self.back is not None and (time is None or time - self.back > AFTER)

    def add_cause(self, reason: str) -> None:
        plain = reason.removeprefix("it ")
        if plain and plain not in self.causes:
            self.causes.append(plain)
            self.is_orderly = self.is_orderly or bool(_ORDERLY.search(plain))


def fold(events: Iterable[Event], wanted: Callable[[Event], bool] = lambda event: True) -> list[StoryRow]:
    """The stories of these events, which are in the order of their time: those that have a ``wanted`` one, whole."""
    stories = _Stories()
    for event in events:
        shown = row(event)
        story = stories.of(event, shown)
        story.events += 1
        story.ended = shown.time or story.ended
        story.is_wanted = story.is_wanted or wanted(event)
    return [_told(one) for one in _together(stories.every) if one.is_wanted]


# --- to which story an event belongs ----------------------------------------------------------------------------------


class _Stories:
    """In the order of their first events."""

    def __init__(self) -> None:
        self.every: list[Story] = []
        self._near: list[Story] = []
        """What can still go on, of those that are not absences."""
        self._absences: dict[int, Story] = {}

    def of(self, event: Event, shown: EventRow) -> Story:
        """The one that goes on with an event, or begins."""
        if shown.time is not None:
            self._near = [one for one in self._near if one.is_near(shown.time)]
        near = self._near[::-1] if shown.time is not None else []
        story = self._absence(event, shown) or _of_a_topic(near, event) or _of_one_sort(near, event, shown)
        if story is None:
            story = Story(event, shown, shown.time, names=[shown.subject])
            if shown.reason:
                story.causes.append(shown.reason.removeprefix("it "))
            if shown.kind == "act":
                story.act = event
            self.every.append(story)
            self._near.append(story)
        return story

    def _absence(self, event: Event, shown: EventRow) -> Story | None:
        """The absence of a broker that an event begins, causes, ends or belongs to; the event noted there."""
        kind, reason, time = shown.kind, shown.reason or "", shown.time
        broker = event.get("id")
        is_stop = kind == "act" and event.get("what") in STOPS
        if (is_stop or kind == "broker-down") and type(broker) is int:
            story = self._of_broker(broker, event, shown)
            if is_stop:
                story.act, story.is_orderly = event, True
            else:
                story.add_cause(reason)
            return story
        if kind == "broker-up" and type(broker) is int:
            there = self._absences.get(broker)
            if there is None or there.back is not None:
                return None
            there.back = time
            return there
        if kind in LOST:
            named = [int(one) for one in _NAMED.findall(reason)]
            for one in named:
                story = self._of_broker(one, event, shown)
                story.is_orderly = story.is_orderly or bool(_ORDERLY.search(reason))
            away = (one for one in brokers_of(event) if one in self._absences and self._absences[one].back is None)
            gone = next(iter(named or away), None)
            if gone is not None and "preferred" not in reason:
                return self._counted(gone, LOST[kind])
            leader = event.get("leader")
            return self._counted(leader, "{} led by it again", time) if type(leader) is int else None
        if kind == "isr-expanded":
            came = (self._counted(one, "{} in sync again", time) for one in brokers_of(event))
            return next(filter(None, came), None)
        if kind == "controller-elected":
            near = next((one for one in reversed(self.every) if one.brokers and one.is_near(time)), None)
            if near is not None:
                near.add_cause(f"broker {event.get('controller')} is the controller then")
            return near
        return None

    def _of_broker(self, broker: int, event: Event, shown: EventRow) -> Story:
        """The broker's absence that goes on, or a new one."""
        there = self._absences.get(broker)
        if there is None or there.back is not None:
            there = self._absences[broker] = Story(event, shown, shown.time, brokers=[broker])
            self.every.append(there)
        return there

    def _counted(self, broker: int, what: str, time: datetime | None = None) -> Story | None:
        """The broker's absence, with one more of what it has caused, or what came back; None where it is over."""
        there = self._absences.get(broker)
        if there is None or there.is_over(time):
            return None
        there.counts[what] += 1
        return there


def _of_a_topic(near: Sequence[Story], event: Event) -> Story | None:
    """The change of a topic that an act, its settings or the first leaders of its partitions belong to."""
    kind, topic = str(event["kind"]), event.get("topic")

    def recent(*kinds: str) -> Iterator[Story]:
        return (one for one in near if one.shown.kind in kinds and one.first.get("topic") == topic)

    if kind == "leader-elected" and event.get("old_leader") == -1:
        return next(recent("topic-created", "partitions-added", "topic-restored"), None)
    if kind == "act" and topic is not None:
        story = next((one for one in recent(*CHANGES) if one.act is None), None)
        if story is not None:
            story.act = event
        return story
    if kind in CHANGES:
        for one in recent("topic-created", "act"):
            if one.shown.kind != "act" or str(one.first.get("what")).startswith("topic-"):
                return one
    return None


def _of_one_sort(near: Sequence[Story], event: Event, shown: EventRow) -> Story | None:
    """Like events of one cause, such as rebalances of a group."""
    if shown.kind in ("act", "?", *CHANGES):
        return None
    group = event.get("group")
    for story in near:
        like = story.shown.kind == shown.kind and story.first.get("group") == group
        if like and (group is not None or story.shown.reason == shown.reason):
            if shown.subject not in story.names:
                story.names.append(shown.subject)
            return story
    return None


# --- stories that are one ---------------------------------------------------------------------------------------------


def _together(stories: Sequence[Story]) -> list[Story]:
    """Deaths that begin together, and restarts that follow one another, as one story each."""
    found: list[Story] = []
    before: Story | None = None
    for story in stories:
        if story.brokers and story.is_orderly and story.back is not None:
            story.restarts = 1
        if before is None or not story.brokers or not _is_one(before, story):
            before = story if story.brokers else before
            found.append(story)
            continue
        before.brokers += [one for one in story.brokers if one not in before.brokers]
        before.events += story.events
        before.counts += story.counts
        before.restarts += story.restarts
        before.is_wanted = before.is_wanted or story.is_wanted
        before.back = None if story.back is None or before.back is None else max(story.back, before.back)
        for one in story.causes:
            before.add_cause(one)
    return found


def _is_one(before: Story, story: Story) -> bool:
    begun, first = story.shown.time, before.shown.time
    if begun is None or first is None:
        return False
    if story.restarts:
        return bool(before.restarts and before.back and begun - before.back <= RESTARTS_WITHIN)
    return not before.restarts and not story.is_orderly and begun - first <= TOGETHER


# --- in words ---------------------------------------------------------------------------------------------------------


def _told(story: Story) -> StoryRow:
    shown, undo = story.shown, None
    cause = "; ".join(story.causes) or None
    if story.act is not None:
        if story.act.get("what") not in CANNOT_BE_UNDONE and isinstance(story.act.get("act"), str):
            undo = str(story.act["act"])
        cause = cause if story.act is story.first and not story.brokers else row(story.act).what
    if story.brokers:
        what = _of_brokers(story)
    elif len(story.names) > 1:
        what = f"{shown.kind}: {first_few(story.names, NAMED_MAX)}"
    else:
        repeats = story.events > 1 and shown.kind in REPEATED
        what = f"{shown.subject}: {shown.what}" + (f" ({story.events} times)" if repeats else "")
    return StoryRow(shown.time, what, cause, undo, story.events)


def _of_brokers(story: Story) -> str:
    shown = ",".join(map(str, story.brokers))
    named = f"brokers {shown}" if len(story.brokers) > 1 else f"broker {shown}"
    begun = story.shown.time
    took = duration_text((story.back - begun).total_seconds() * 1000) if story.back and begun else ""
    if story.restarts:
        return f"rolling restart of {named}, {took}" if story.restarts > 1 else f"{named} restarted, {took}"
    parts = [f"{named} {'stopped' if story.is_orderly else 'went down'}"]
    parts += [form.format(counted(count, "partition")) for form, count in story.counts.items()]
    return "; ".join([*parts, *([f"back after {took}"] if took else [])])
