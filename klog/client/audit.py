"""What a producer publishes for the audit (paper, section 4): a stamp on each message, and counts per topic and window.

The stamp is a header, ``klog.audit``, of four words::

    1771930800123 17 9f2c41d07ab3 web-1        time in ms, number, producer, host

The time is the message's own timestamp. Numbers count a producer's messages of one topic, so that a copy of a message
is recognized as one. A publication is a message of the topic ``klog.audit``, with the producer as its key::

    {"version": 1, "kind": "produced", "producer": "9f2c41d07ab3", "host": "web-1", "sequence": 3, "sent_ms": ...,
     "window_ms": 600000, "closed": false, "counts": [
       {"topic": "t", "start_ms": ..., "part": 0, "messages": 812, "unknown": 0, "first_ms": ..., "last_ms": ...,
        "final": true}]}

Counts are totals, not differences. Of the counts that a producer publishes for a topic, window and part, the one with
the highest sequence holds, so a repeated publication counts once. ``messages`` were acknowledged. ``unknown`` ones may
be in the log: no answer came. ``final``: the window is over and none of its messages is under way, or the producer has
closed. A producer that sends in a window that it had forgotten begins a new part; parts add up.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from klog.client.producer_settings import AuditSettings
from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import MalformedRequest
from klog.names import AUDIT_TOPIC

HEADER: Final = "klog.audit"
TOPIC: Final = AUDIT_TOPIC
VERSION: Final = 1
PRODUCED: Final = "produced"

COUNTS_MAX: Final = 1000
"""Counts in one publication: about 150 KB of JSON, well below any broker's limit for a message."""
KEPT_WINDOWS: Final = 3
"""A finished window is remembered for this many windows after its end: late messages with old timestamps are rare."""

TOPIC_SETTINGS: Final = {"retention.ms": str(30 * 24 * 3_600_000)}


class Stamp(NamedTuple):
    """A message's origin."""

    time_ms: int
    number: int
    producer: str
    host: str


def read_stamp(value: bytes | None) -> Stamp | None:
    """The stamp in a header's bytes; None if they are not a stamp."""
    if value is None:
        return None
    try:
        time_ms, number, producer, host = value.decode("utf-8").split(" ")
        return Stamp(int(time_ms), int(number), producer, host)
    except ValueError:
        return None


@dataclass(slots=True)
class Count:
    """One topic and window of one producer."""

    topic: str
    start_ms: int
    part: int
    messages: int = 0
    unknown: int = 0
    first_ms: int = 0
    last_ms: int = 0
    final: bool = False


@dataclass(frozen=True, slots=True)
class Publication:
    """One message of the audit topic, of one producer."""

    producer: str
    host: str
    sequence: int
    sent_ms: int
    window_ms: int
    closed: bool
    counts: tuple[Count, ...]

    def to_json(self) -> bytes:
        return json.dumps({"version": VERSION, "kind": PRODUCED, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Publication:
        """MalformedRequest if it is not of this kind."""
        try:
            return cls(
                str(value["producer"]),
                str(value["host"]),
                int(value["sequence"]),
                int(value["sent_ms"]),
                int(value["window_ms"]),
                bool(value["closed"]),
                tuple(Count(**{name: one[name] for name in Count.__slots__}) for one in value["counts"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedRequest(f"no publication of a producer: {error!r}") from None


@dataclass(slots=True)
class _Window:
    count: Count
    under_way: int = 0
    told: tuple[int, int, bool] = (0, 0, False)
    """The state in the last publication; `known` is that in the last acknowledged one."""
    known: tuple[int, int, bool] = (0, 0, False)

    @property
    def state(self) -> tuple[int, int, bool]:
        return self.count.messages, self.count.unknown, self.count.final


class Auditor:
    """Counts the messages of one producer. Any thread."""

    def __init__(self, settings: AuditSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.settings = settings
        self._now_ms = clock.now_ms
        self.producer = secrets.token_hex(6)
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._windows: dict[tuple[str, int], _Window] = {}
        self._sequence = 0
        self._published_ms = self._now_ms()
        self._tail = f" {self.producer} {settings.host}"

    @property
    def is_used(self) -> bool:
        """Whether anything was stamped."""
        return bool(self._numbers)

    @property
    def has_unpublished(self) -> bool:
        """Whether some counts are in no publication that was acknowledged."""
        with self._lock:
            return any(window.state != window.known for window in self._windows.values())

    def stamp(self, topic: str, time_ms: int | None) -> tuple[int, bytes, _Window]:
        """The message's time, the header's value, and the window in which it counts; `settle` must follow."""
        when = self._now_ms() if time_ms is None else time_ms
        start_ms = when - when % self.settings.window_ms
        with self._lock:
            number = self._numbers.get(topic, 0)
            self._numbers[topic] = number + 1
            window = self._windows.get((topic, start_ms))
            if window is None:
                count = Count(topic, start_ms, self._sequence, first_ms=when, last_ms=when)
                window = self._windows[topic, start_ms] = _Window(count)
            window.under_way += 1
            count = window.count
            count.first_ms, count.last_ms = min(count.first_ms, when), max(count.last_ms, when)
        return when, f"{when} {number}{self._tail}".encode(), window

    def settle(self, window: _Window, error: object, *, maybe: bool = False) -> None:
        """A message was acknowledged, or failed with an ``error``; ``maybe``: it failed but may be in the log."""
        with self._lock:
            window.under_way -= 1
            if error is None:
                window.count.messages += 1
            elif maybe:
                window.count.unknown += 1

    def due(self, *, closing: bool = False) -> list[Publication]:
        """The publications that are due now; `published` must follow for each. Cheap if there are none."""
        now_ms = self._now_ms()
        settings = self.settings
        is_time = closing or now_ms - self._published_ms >= settings.publish_ms or now_ms < self._published_ms
        with self._lock:
            changed = []
            for window in self._windows.values():
                is_over = closing or window.count.start_ms + settings.window_ms <= now_ms
                window.count.final = is_over and window.under_way == 0
                if window.state != window.told and (is_time or window.count.final):
                    changed.append(window)
            if not changed:
                self._forget(now_ms)
                return []
            self._published_ms = now_ms
            publications = []
            for at in range(0, len(changed), COUNTS_MAX):
                self._sequence += 1
                counts = tuple(replace(one.count) for one in changed[at : at + COUNTS_MAX])
                host, window_ms = settings.host, settings.window_ms
                publications.append(
                    Publication(self.producer, host, self._sequence, now_ms, window_ms, closing, counts)
                )
                for one in changed[at : at + COUNTS_MAX]:
                    one.told = one.state
            return publications

    def published(self, publication: Publication, *, failed: bool = False) -> None:
        """A publication was acknowledged, or failed for good: then its counts go into the next one."""
        with self._lock:
            for count in publication.counts:
                window = self._windows.get((count.topic, count.start_ms))
                if window is None or window.count.part != count.part:
                    continue
                if failed:
                    window.told = (-1, -1, False)
                else:
                    window.known = count.messages, count.unknown, count.final

    def _forget(self, now_ms: int) -> None:
        """Drop old windows whose last counts were acknowledged; called with the lock held."""
        oldest_ms = now_ms - (KEPT_WINDOWS + 1) * self.settings.window_ms
        for key in [one for one in self._windows if one[1] < oldest_ms]:
            window = self._windows[key]
            if window.under_way == 0 and window.state == window.known:
                del self._windows[key]


def with_stamp(headers: Iterable[tuple[str, bytes | None]], stamp: bytes) -> list[tuple[str, bytes | None]]:
    """A message's headers with this stamp, which replaces an earlier one (of a copy)."""
    return [*(one for one in headers if one[0] != HEADER), (HEADER, stamp)]
