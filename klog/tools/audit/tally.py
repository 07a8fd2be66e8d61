"""What was found of topics by reading them: messages a window and producer, and which of a producer's are there twice.

A window is named by its topic and its first ms; a window's length divides time since 1970. What carries no stamp is
counted under the producer ``""``, in the window of its timestamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from klog.client.audit import HEADER, read_stamp
from klog.errors import MalformedRequest

FRESH_MAX = 65_536
"""Runs of numbers that wait to be merged: a few megabytes."""


class NumberSet:
    """A set of numbers as ranges. ``distinct`` counts each once, however often it was added. One thread."""

    __slots__ = ("_first", "_last", "_merge_at", "_ranges")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._first, self._last = 0, -1
        """The run that the next number continues, if it is the next one."""
        self._merge_at = FRESH_MAX

    def add(self, number: int) -> None:
        if number != self._last + 1:
            self._ranges.append((self._first, self._last))
            self._first = number
            if len(self._ranges) >= self._merge_at:
                self._ranges = _merged(self._ranges)
                self._merge_at = len(self._ranges) + FRESH_MAX
        self._last = number

    def update(self, other: NumberSet) -> None:
        self._ranges = _merged([*self._ranges, *other.ranges])

    @property
    def distinct(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """(first, last) of each run of numbers, ascending."""
        return _merged([*self._ranges, (self._first, self._last)])


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ascending, with those joined that overlap or touch, and without empty ones."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        elif first <= last:
            merged.append((first, last))
    return merged


class Window(NamedTuple):
    """``[start_ms, start_ms + the window's length)`` of a topic."""

    topic: str
    start_ms: int


class Origin(NamedTuple):
    """Who sent; ``UNSTAMPED`` where the messages do not say."""

    host: str
    producer: str


UNSTAMPED = Origin("", "")


class Found:
    """Messages of one window and origin. ``counted``: how many different ones earlier runs have counted."""

    __slots__ = ("counted", "messages", "numbers")

    def __init__(self, messages: int = 0) -> None:
        self.messages = messages
        self.numbers = NumberSet()
        self.counted = 0

    @property
    def doubled(self) -> int:
        """Copies of messages that are there already; unknown, so 0, of messages without numbers."""
        return max(self.messages - self.distinct, 0)

    @property
    def distinct(self) -> int:
        return self.numbers.distinct + self.counted or self.messages


class Tally:
    """Found messages by window and origin. One thread."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self.windows: dict[Window, dict[Origin, Found]] = {}
        self._known: dict[tuple[str, int, bytes], Found] = {}

    def add(self, topic: str, timestamp_ms: int, headers: Iterable[tuple[str, bytes | None]] | None) -> None:
        stamp = next((value for name, value in headers if name == HEADER), None) if headers else None
        if stamp is not None:
            # Of the messages of a producer only time and number differ: the rest is looked up as it stands.
            try:
                time_ms, number, origin = stamp.split(b" ", 2)
                found = self._known.get((topic, int(time_ms) // self.window_ms, origin))
                if found is not None:
                    found.messages += 1
                    found.numbers.add(int(number))
                    return
            except ValueError:
                pass
        read = read_stamp(stamp)
        if read is None:
            self._found(topic, timestamp_ms, UNSTAMPED).messages += 1
            return
        found = self._found(topic, read.time_ms, Origin(read.host, read.producer))
        found.messages += 1
        found.numbers.add(read.number)
        assert stamp is not None
        self._known[topic, read.time_ms // self.window_ms, stamp.split(b" ", 2)[2]] = found

    def _found(self, topic: str, time_ms: int, origin: Origin) -> Found:
        window = Window(topic, time_ms - time_ms % self.window_ms)
        return self.windows.setdefault(window, {}).setdefault(origin, Found())

    def update(self, other: Tally) -> None:
        """Add what another found, whose windows are as long, or parts of ours."""
        for window, origins in other.windows.items():
            for origin, found in origins.items():
                mine = self._found(window.topic, window.start_ms, origin)
                mine.messages += found.messages
                mine.numbers.update(found.numbers)
                mine.counted += found.counted

    def __iter__(self) -> Iterator[tuple[Window, Origin, Found]]:
        for window in sorted(self.windows):
            for origin, found in sorted(self.windows[window].items()):
                yield window, origin, found

    def to_json(self, topic: str) -> list[dict[str, Any]]:
        """What was found of one topic; `add_json` reads it."""
        return [
            {"start_ms": window.start_ms, "host": origin.host, "producer": origin.producer, "messages": found.messages}
            | {"distinct": found.distinct}
            for window, origin, found in self
            if window.topic == topic
        ]

    def add_json(self, topic: str, rows: Iterable[dict[str, Any]]) -> None:
        """MalformedRequest where it is none."""
        try:
            for one in rows:
                found = self._found(topic, int(one["start_ms"]), Origin(str(one["host"]), str(one["producer"])))
                found.messages += int(one["messages"])
                found.counted += int(one["distinct"])
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedRequest(f"not the counts of a tier: {error!r}") from None
