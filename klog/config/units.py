"""Durations, sizes and rates as users write them.

500ms 10s 5m 2h 7d      a number (decimals allowed) and a unit; a unit is required
10 64KB 1GiB            bytes; KB MB GB TB are powers of 1000, KiB MiB GiB TiB of 1024
500/s 20MB/s            messages, or bytes, per second
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from klog.errors import UsageError

_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_OTHER_UNITS = {
    "ms": ("msec", "msecs", "millis", "millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "d": ("day", "days"),
}
_SIZE_BYTES = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]*)", re.ASCII)
_LARGEST = 2**63 - 1


class Rate(NamedTuple):
    """``per_second`` of ``what``."""

    per_second: float
    what: Literal["messages", "bytes"]


def parse_duration_ms(text: str) -> int:
    """Milliseconds. Raises UsageError."""
    value = _scaled(text, _DURATION_MS)
    if value is None:
        raise UsageError(
            f"{text!r} is not a duration", hint=_meant_duration(text) + "examples: 500ms, 10s, 5m, 2h or 7d"
        )
    return value


def worded_duration_ms(text: str) -> int | None:
    """Milliseconds, also of units as words (``2 minutes``), as Spark writes them; a number alone is of milliseconds
    there. None for another text."""
    words = {word: _DURATION_MS[unit] for unit, others in _OTHER_UNITS.items() for word in others}
    return _scaled(text, {"": 1, **_DURATION_MS, **words})


def parse_size(text: str) -> int:
    """Bytes. Raises UsageError."""
    value = _scaled(text, _SIZE_BYTES)
    if value is None:
        meant = _did_you_mean(f"{text.strip()}B", _scaled(f"{text}B", _SIZE_BYTES))
        raise UsageError(f"{text!r} is not a size", hint=meant + "examples: 1000, 64KB, 1GiB")
    return value


def parse_rate(text: str) -> Rate:
    """Messages (``500/s``) or bytes (``20MB/s``) per second, above 0. Raises UsageError."""
    amount, slash, second = text.strip().rpartition("/")
    match = _NUMBER_AND_UNIT.fullmatch(amount.strip())
    if slash and second == "s" and match:
        if not match[2] and 0 < float(match[1]) <= _LARGEST:
            return Rate(float(match[1]), "messages")
        size = _scaled(amount, _SIZE_BYTES) if match[2] else None
        if size:
            return Rate(float(size), "bytes")
    meant = "" if slash else _did_you_mean(f"{text.strip()}/s", _scaled(text, _SIZE_BYTES))
    raise UsageError(f"{text!r} is not a rate", hint=meant + "examples: 500/s (messages), 20MB/s (bytes)")


def _meant_duration(text: str) -> str:
    """A suggestion: with a unit added, or klog's instead of a word (``10 seconds``)."""
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    if match is None:
        return ""
    word = match[2].lower()
    unit = next((unit for unit, others in _OTHER_UNITS.items() if word in others), None if word else "s")
    meant = f"{match[1]}{unit}"
    return _did_you_mean(meant, _scaled(meant, _DURATION_MS))


def _did_you_mean(meant: str, value: object) -> str:
    return f"did you mean {meant}? " if value else ""


def _scaled(text: str, units: dict[str, int]) -> int | None:
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        return None
    value = int(match[1]) * factor if match[1].isdigit() else round(float(match[1]) * factor)
    return value if value <= _LARGEST else None
