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
CHANGES: Final = ("topic-created", "partitions-added", "settings-changed", "topic-deleted", "topic-restored")
"""Events that come with the act that made them."""
_NAMED: Final = re.compile(r"\bbroker (\d{1,9}) (?:is shutting down|stopped answering|shut down)")
_ORDERLY: Final = re.compile(r"\bshut(?:ting)? down")


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
    begun: datetime | None
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

    def take(self, time: datetime | None) -> None:
        self.events += 1
        self.ended = time or self.ended

    @property
    def kind(self) -> str:
        return self.shown.kind

    @property
    def topic(self) -> object:
        return self.first.get("topic")

    def is_near(self, time: datetime | None) -> bool:
        return time is not None and self.ended is not None and abs(time - self.ended) <= TOGETHER


def fold(events: Iterable[Event], wanted: Callable[[Event], bool] = lambda event: True) -> list[StoryRow]:
    """The stories of these events, which are in the order of their time: those that have a ``wanted`` one, whole."""
    stories: list[Story] = []
    near: list[Story] = []  # what can still go on, of those that are not absences
    absences: dict[int, Story] = {}
    for event in events:
        shown = row(event)
        if shown.time is not None:
            near = [one for one in near if one.is_near(shown.time)]
        going_on = near if shown.time is not None else []
        story = (
            _absence(stories, absences, event, shown)
            or _of_a_topic(going_on, event)
            or _of_one_sort(going_on, event, shown)
        )
        if story is None:
            story = _begun(event, shown)
            stories.append(story)
            near.append(story)
        story.take(shown.time)
        story.is_wanted = story.is_wanted or wanted(event)
    return [_told(one) for one in _together(stories) if one.is_wanted]


def _begun(event: Event, shown: EventRow) -> Story:
    story = Story(event, shown, shown.time, shown.time, names=[shown.subject])
    if shown.reason:
        story.causes.append(shown.reason.removeprefix("it "))
    if shown.kind == "act":
        story.act = event
    return story


# --- to which story an event belongs ----------------------------------------------------------------------------------


def _absence(stories: list[Story], absences: dict[int, Story], event: Event, shown: EventRow) -> Story | None:
    """The absence of a broker that an event begins, causes, ends or belongs to; the event noted there."""
    kind, reason, time = shown.kind, shown.reason or "", shown.time
    broker = event.get("id")
    is_stop = kind == "act" and event.get("what") in STOPS
    if (is_stop or kind == "broker-down") and type(broker) is int:
        story = _of_broker(stories, absences, broker, event, shown)
        if is_stop:
            story.act, story.is_orderly = event, True
        else:
            _add_cause(story, reason)
        return story
    if kind == "broker-up" and type(broker) is int:
        there = absences.get(broker)
        if there is not None and there.back is None:
            there.back = time
            return there
        return None
    if kind in LOST:
        named = [int(one) for one in _NAMED.findall(reason)]
        for one in named:
            story = _of_broker(stories, absences, one, event, shown)
            story.is_orderly = story.is_orderly or bool(_ORDERLY.search(reason))
        gone = named or [one for one in brokers_of(event) if one in absences and absences[one].back is None]
        if gone and "preferred" not in reason:
            absences[gone[0]].counts[LOST[kind]] += 1
            return absences[gone[0]]
        leader = event.get("leader")
        if type(leader) is int and _is_after(absences.get(leader), time):
            absences[leader].counts["{} led by it again"] += 1
            return absences[leader]
    if kind == "isr-expanded":
        came = brokers_of(event)
        story_of = next((absences[one] for one in came if _is_after(absences.get(one), time)), None)
        if story_of is not None:
            story_of.counts["{} in sync again"] += 1
        return story_of
    if kind == "controller-elected":
        near = next((one for one in reversed(stories) if one.brokers and one.is_near(time)), None)
        if near is not None:
            _add_cause(near, f"broker {event.get('controller')} is the controller then")
        return near
    return None


def _of_broker(stories: list[Story], absences: dict[int, Story], broker: int, event: Event, shown: EventRow) -> Story:
    """The broker's absence that goes on, or a new one."""
    there = absences.get(broker)
    if there is not None and there.back is None:
        return there
    story = Story(event, shown, shown.time, shown.time, brokers=[broker])
    stories.append(story)
    absences[broker] = story
    return story


def _is_after(story: Story | None, time: datetime | None) -> bool:
    return story is not None and (story.back is None or (time is not None and time - story.back <= AFTER))


def _add_cause(story: Story, reason: str) -> None:
    plain = reason.removeprefix("it ")
    if plain and plain not in story.causes:
        story.causes.append(plain)
        story.is_orderly = story.is_orderly or bool(_ORDERLY.search(plain))


def _of_a_topic(near: Sequence[Story], event: Event) -> Story | None:
    """The change of a topic that an act, its settings or the first leaders of its partitions belong to."""
    kind, topic = str(event["kind"]), event.get("topic")

    def recent(*kinds: str) -> Iterator[Story]:
        return (one for one in reversed(near) if one.kind in kinds and one.topic == topic)

    if kind == "leader-elected" and event.get("old_leader") == -1:
        return next(recent("topic-created", "partitions-added", "topic-restored"), None)
    if kind == "act" and topic is not None:
        story = next((one for one in recent(*CHANGES) if one.act is None), None)
        if story is not None:
            story.act = event
        return story
    if kind in CHANGES:
        made = recent("topic-created", "act")
        return next((one for one in made if one.kind != "act" or str(one.first.get("what")).startswith("topic-")), None)
    return None


def _of_one_sort(near: Sequence[Story], event: Event, shown: EventRow) -> Story | None:
    """Like events of one cause, such as rebalances of a group."""
    if shown.kind in ("act", "?", *CHANGES):
        return None
    group = event.get("group")
    for story in reversed(near):
        like = story.kind == shown.kind and story.first.get("group") == group
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
            _add_cause(before, one)
    return found


def _is_one(before: Story, story: Story) -> bool:
    if story.begun is None or before.begun is None:
        return False
    if story.restarts:
        return bool(before.restarts and before.back and story.begun - before.back <= RESTARTS_WITHIN)
    return not before.restarts and not story.is_orderly and story.begun - before.begun <= TOGETHER


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
        what = f"{shown.subject}: {shown.what}" + (f" ({story.events} times)" if _repeats(story) else "")
    return StoryRow(story.begun, what, cause, undo, story.events)


def _repeats(story: Story) -> bool:
    return story.events > 1 and story.kind in ("rebalance", "group-empty", "throttled", "denied", "commit-refused")


def _of_brokers(story: Story) -> str:
    shown = ",".join(map(str, story.brokers))
    named = f"brokers {shown}" if len(story.brokers) > 1 else f"broker {shown}"
    took = duration_text((story.back - story.begun).total_seconds() * 1000) if story.back and story.begun else ""
    if story.restarts:
        return f"rolling restart of {named}, {took}" if story.restarts > 1 else f"{named} restarted, {took}"
    parts = [f"{named} {'stopped' if story.is_orderly else 'went down'}"]
    parts += [form.format(counted(count, "partition")) for form, count in story.counts.items()]
    return "; ".join([*parts, *([f"back after {took}"] if took else [])])
