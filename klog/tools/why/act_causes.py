"""Acts that are causes: a client stopped a broker, or shortened what a topic keeps. Nothing here asks the cluster."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from klog.admin.acts import SETTINGS
from klog.coordination.acts import RECORDS_ACT
from klog.tools.events import EventFilter
from klog.tools.why.steps import Known, Step, time_of

if TYPE_CHECKING:
    from klog.tools.events import Event

STOPS: Final = {"broker-stop": "stopped broker {}", "broker-restart": "had broker {} restart"}
CREATION: Final = "topic-create"
RETENTION: Final = ("retention.ms", "retention.bytes")
STOPS_WITHIN: Final = timedelta(minutes=10)
"""A broker hands over what it leads before it goes."""
CLOCKS_WITHIN: Final = timedelta(minutes=1)
"""The act has the time of the broker that was stopped, the event that of the controller."""


def stopped_by(known: Known, broker: int, down: Event | None, do: str) -> Step | None:
    """Who had the broker stopped, if that is why it went down. ``down``: the event that tells of it."""
    at = time_of(down) if down is not None else None
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
