"""What became of each line of the input: not answered yet, acknowledged, or given up, and then which line it was.

librdkafka says of a message only that it is settled; which line it was is known here. Lines that are values and nothing
else are kept in chunks, so that nothing is done for a line that goes well: in which place of its chunk a message stood
is looked up only where it is given up. What has parts (a key, headers) has an entry of its own.

One thread, the one that polls librdkafka; `Deliveries.stalled_since` and the counters may be read from another.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from klog.errors import UsageError
from klog.render.jsonl import Content, to_line

STALL_S = 1.0
"""So long without an answer to what was sent first is worth a word: an election takes a fraction of it."""


class Line(NamedTuple):
    """A line of an input, from 1 on; of what is taken whole, the input itself is line 1."""

    source: str
    number: int


class LineRange(NamedTuple):
    source: str
    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"line {self.first} of {self.source}"
        return f"lines {self.first} to {self.last} of {self.source}"


def ranges(lines: Sequence[Line]) -> list[LineRange]:
    """Lines that follow one another as one, in order."""
    found: list[LineRange] = []
    for source, number in sorted(set(lines)):
        if found and found[-1].source == source and found[-1].last == number - 1:
            found[-1] = found[-1]._replace(last=number)
        else:
            found.append(LineRange(source, number, number))
    return found


@dataclass(slots=True)
class PartitionReceipt:
    """What one partition acknowledged; ``bytes`` of keys and values. Offsets are None with acks=0: no answer."""

    topic: str
    partition: int
    messages: int = 0
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    flushed_by: tuple[int, ...] | None = None
    """The brokers that have it on disk (acks=all and a flush for every append: those in sync); None: not known."""


Settled = Callable[[Any, Any], bool]
"""Gets librdkafka's error (None: acknowledged) and message; False: it is given up, and its line is wanted."""

GivenUp = Callable[[Line, Content, Any], None]
"""Gets the line, what was in it, and librdkafka's error."""


class Several:
    """Lines of one input that are handed over together; ``left`` of them are neither answered nor dropped."""

    __slots__ = ("_deliveries", "_numbers", "_source", "left")

    def __init__(self, deliveries: Deliveries, source: str, numbers: Sequence[int]) -> None:
        self.left = len(numbers)
        self._deliveries = deliveries
        self._source = source
        self._numbers = numbers

    def drop(self) -> None:
        """One of the lines was answered, or was not handed over."""
        self.left -= 1
        if not self.left:
            self._deliveries.close(self)

    def open_lines(self) -> list[Line]:
        """All of its lines while not all are answered: which of them are not is not known."""
        return [Line(self._source, number) for number in self._numbers]


class Chunk(Several):
    """Lines that are handed over one right after the other, each the value of a message."""

    __slots__ = ("_lines", "_named")

    def __init__(self, deliveries: Deliveries, source: str, first: int, lines: Sequence[bytes]) -> None:
        super().__init__(deliveries, source, range(first, first + len(lines)))
        self._lines = lines
        self._named: dict[bytes, int] | None = None
        """Value -> behind its last line that was given up: lines that are alike are each named once."""

    def answered(self, error: Any, message: Any) -> None:
        """librdkafka's callback."""
        if not self._deliveries.settled(error, message):
            value = message.value() or b""
            self._named = self._named or {}
            place = self._lines.index(value, self._named.get(value, 0))
            self._named[value] = place + 1
            self._deliveries.given_up(Line(self._source, self._numbers[place]), plain(value), error)
        self.left -= 1  # as `drop` does: the call would add two thirds to what a line costs here
        if not self.left:
            self._deliveries.close(self)


class Contents(Several):
    """As `Chunk`, of messages with parts: each callback gets the place of its row."""

    __slots__ = ("_rows",)

    def __init__(self, deliveries: Deliveries, source: str, rows: Sequence[tuple[int, Content]]) -> None:
        super().__init__(deliveries, source, [number for number, _ in rows])
        self._rows = rows

    def answered(self, place: int, error: Any, message: Any) -> None:
        """librdkafka's callback, behind the place among the rows."""
        if not self._deliveries.settled(error, message):
            number, content = self._rows[place]
            self._deliveries.given_up(Line(self._source, number), content, error)
        self.drop()


def plain(value: bytes) -> Content:
    """A line that is a value."""
    return Content(None, value, [], None)


class Deliveries:
    """All that was handed over and is not answered, oldest first."""

    def __init__(self, settled: Settled, given_up: GivenUp) -> None:
        self.settled = settled
        self.given_up = given_up
        self.stalled_since: float | None = None
        """By the monotonic clock: since when what was handed over first waits for an answer; None while all is well."""
        self._open: dict[Several, None] = {}
        self._head: tuple[int, int] | None = None
        self._head_since = 0.0

    def chunk(self, source: str, first: int, lines: Sequence[bytes]) -> Chunk:
        """Lines from ``first`` on; each is handed over, or dropped."""
        chunk = Chunk(self, source, first, lines)
        self._open[chunk] = None
        return chunk

    def contents(self, source: str, rows: Sequence[tuple[int, Content]]) -> Contents:
        """As `chunk`, of messages with parts, each behind the number of its line."""
        chunk = Contents(self, source, rows)
        if rows:
            self._open[chunk] = None
        return chunk

    def close(self, one: Several) -> None:
        self._open.pop(one, None)

    def look(self) -> bool:
        """Whether it has stalled; to be called often."""
        head = next(iter(self._open), None)
        state = None if head is None else (id(head), head.left)
        now = time.monotonic()
        if state is None or state != self._head:
            self._head, self._head_since = state, now
            self.stalled_since = None
        elif self.stalled_since is None and now - self._head_since > STALL_S:
            self.stalled_since = self._head_since
        return self.stalled_since is not None

    def open_lines(self) -> list[Line]:
        """Lines of which some, or all, are not answered."""
        return [line for one in list(self._open) for line in one.open_lines()]


class Rejects:
    """The file of messages that were given up: JSON lines as `klog produce -i jsonl` takes them in again. One that was
    not there and got nothing is gone at the end."""

    def __init__(self, path: Path, sources: Iterable[BinaryIO] = ()) -> None:
        """Opens the file. UsageError where it is one of the inputs, OSError where it cannot be written."""
        self.path = path
        self.count = 0
        self._was_there = path.exists()
        self._file = path.open("ab", buffering=0)
        mine = os.fstat(self._file.fileno())
        for source in sources:
            try:
                other = os.fstat(source.fileno())
            except (OSError, AttributeError):
                continue
            if (other.st_dev, other.st_ino) == (mine.st_dev, mine.st_ino):
                self.close()
                raise UsageError(f"{path} is an input, so rejected messages cannot be written to it")

    def write(self, topic: str, line: Line, content: Content, reason: str) -> None:
        """One message, with where it was and why it was given up; klog does not read it again."""
        where = {"source": line.source, "line": line.number, "error": reason}
        beside = json.dumps(where, ensure_ascii=False, separators=(",", ":"))
        self._file.write(
            f"{to_line(topic, content.partition, None, content)[:-1]},{beside[1:]}\n".encode(errors="replace")
        )
        self.count += 1

    def close(self) -> None:
        self._file.close()
        if not self.count and not self._was_there:
            self.path.unlink(missing_ok=True)
