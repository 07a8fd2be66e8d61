"""Positions in a partition, as people write them, and their offsets.

    start  end          the log's start, and its end
    N                   the offset N
    +N  -N              N messages after the start, N messages before the end
    @2026-02-01T10:00:00Z  the first message at or after that time; without a zone UTC; also a date, or epoch ms
    @-1h                the same, that long before now
    A:B                 a range: from A up to B, exclusive; an empty A is the start, an empty B has no end

Timestamps are read before ``:`` separates: ``@2026-02-01T10:00:30`` is half a minute past ten, not a range.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from klog.clock import SYSTEM_CLOCK
from klog.config.units import parse_duration_ms
from klog.errors import UsageError

EARLIEST = -2
"""The log start offset."""
LATEST = -1
"""The log end offset: of the last message + 1."""
NEWEST = -3
"""The message with the largest timestamp (KIP-734)."""


class Anchor(Enum):
    """The point from which a position counts."""

    START = "start"
    END = "end"
    OFFSET = "offset"
    FORWARD = "messages from the start"
    BACK = "messages before the end"
    TIME = "time"


_SIGNS = {Anchor.OFFSET: "", Anchor.FORWARD: "+", Anchor.BACK: "-", Anchor.TIME: "@"}


class Position(NamedTuple):
    """``value``: the offset, the number of messages, or the time in ms; 0 for the start and the end."""

    anchor: Anchor
    value: int = 0

    def __str__(self) -> str:
        sign = _SIGNS.get(self.anchor)
        return self.anchor.value if sign is None else f"{sign}{self.value}"

    def counted(self, start: int, end: int) -> tuple[int, int]:
        """In a log with these ends: an offset, and how many messages behind it; negative: before it. Not of a time."""
        match self.anchor:
            case Anchor.START | Anchor.FORWARD:
                return start, self.value
            case Anchor.END | Anchor.BACK:
                return end, -self.value
        return self.value, 0


START = Position(Anchor.START)
END = Position(Anchor.END)


class Range(NamedTuple):
    """From ``begin`` up to ``end``, exclusive; None never ends."""

    begin: Position
    end: Position | None

    @property
    def is_backward(self) -> bool:
        """Whether it ends before it begins in every log; for positions of different kinds that depends on the log."""
        if self.end is None:
            return False
        if self.begin.anchor is not self.end.anchor:
            return (self.begin, self.end) == (END, START)
        longer = self.begin.value - self.end.value
        return longer < 0 if self.begin.anchor is Anchor.BACK else longer > 0

    def __str__(self) -> str:
        return f"{self.begin}:{'' if self.end is None else self.end}"


_HINT = "positions: start, end, 1000, +10, -10, @2026-02-01T10:00:00Z, @-1h; a range is A:B"
_POSITION = re.compile(
    r"(?P<word>start|end)"
    r"|(?P<ago>@-(?P<duration>[0-9.]+[a-z]+))"
    r"|@(?P<time>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)?(?:Z|z|[+-]\d\d:?\d\d)?)"
    r"|@(?P<epoch_ms>\d+)"
    r"|(?P<number>[+-]?\d+)",
    re.ASCII,
)
_LARGEST = 2**63 - 1
_OTHER_WORDS = {
    **dict.fromkeys(("earliest", "beginning", "smallest", "begin", "first", "oldest"), "start"),
    **dict.fromkeys(("latest", "largest", "ending", "last", "newest"), "end"),
    "now": "end",
    "yesterday": "@-1d",
}
_TIME_WITHOUT_SIGN = re.compile(r"\d{4}-\d\d-\d\d.*|-\d+(ms|[smhd])", re.ASCII)
_TIME_WITHOUT_DATE = re.compile(r"@\d\d?:\d\d.*", re.ASCII)


def _hint(text: str) -> str:
    """What positions are, and first what this one was probably meant to be."""
    text = text.strip()
    meant = f"@{text}" if _TIME_WITHOUT_SIGN.fullmatch(text) else _OTHER_WORDS.get(text.lower())
    if _TIME_WITHOUT_DATE.fullmatch(text):
        return f"a time begins with its date; {_HINT}"
    return _HINT if meant is None else f"did you mean {meant}? {_HINT}"


def parse_position(text: str, *, now_ms: int | None = None) -> Position:
    """One point; UsageError otherwise, and for a range."""
    position, rest = _take(text.strip(), text, now_ms)
    if rest.startswith(":"):
        raise UsageError(f"{text!r} is a range; one position is wanted here", hint=_hint(text))
    if rest or position is None:
        raise UsageError(f"{text!r} is not a position", hint=_hint(text))
    return position


def parse_range(text: str, *, now_ms: int | None = None) -> Range:
    """A range; one point is the range from there on, without an end. UsageError otherwise, and for a backward one."""
    begin, rest = _take(text.strip(), text, now_ms)
    if not rest:
        if begin is None:
            raise UsageError(f"{text!r} is not a position", hint=_hint(text))
        return Range(begin, None)
    if not rest.startswith(":"):
        raise UsageError(f"{text!r} is not a position or range", hint=_hint(text))
    end, rest = _take(rest[1:], text, now_ms)
    if rest or (begin is None and end is None):
        raise UsageError(f"{text!r} is not a position or range", hint=_hint(text))
    found = Range(START if begin is None else begin, end)
    if found.is_backward:
        raise UsageError(f"{text!r} ends before it begins", hint=_HINT)
    return found


def _take(text: str, whole: str, now_ms: int | None) -> tuple[Position | None, str]:
    """The position that ``text`` begins with, None if there is none, and the text behind it."""
    match = _POSITION.match(text)
    if match is None:
        return None, text
    rest = text[match.end() :]
    if match["word"]:
        return (START if match["word"] == "start" else END), rest
    if match["ago"]:
        now = SYSTEM_CLOCK.now_ms() if now_ms is None else now_ms
        return Position(Anchor.TIME, max(0, now - parse_duration_ms(match["duration"]))), rest
    if match["time"]:
        return Position(Anchor.TIME, _epoch_ms(match["time"], whole)), rest
    digits = match["epoch_ms"] or match["number"]
    value = int(digits)
    if abs(value) > _LARGEST:
        raise UsageError(f"{whole!r}: {digits} is out of range", hint=_HINT)
    if match["epoch_ms"]:
        return Position(Anchor.TIME, value), rest
    anchor = {"+": Anchor.FORWARD, "-": Anchor.BACK}.get(digits[0], Anchor.OFFSET)
    return Position(anchor, abs(value)), rest


def _epoch_ms(text: str, whole: str) -> int:
    try:
        moment = datetime.fromisoformat(text.replace(",", ".").upper())
    except ValueError as error:
        raise UsageError(f"{whole!r}: {text} is not a time ({error})", hint=_HINT) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, (int(moment.timestamp()) * 1000) + moment.microsecond // 1000)
