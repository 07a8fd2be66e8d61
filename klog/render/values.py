"""One value in a cell, in JSON, in TSV.

Unknown is ``-`` in tables and TSV and ``null`` in JSON. Times are RFC 3339 in UTC with milliseconds. A cell never
holds a tab or a line's end: in TSV they are written as ``\\t``, ``\\n``, ``\\r``, a backslash as ``\\\\``, and text
that is a lone ``-`` as ``\\-``, so that what was there can be read back.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping, Set
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

UNKNOWN = "-"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TSV_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def rfc3339(moment: datetime) -> str:
    """``2026-02-01T10:00:00.123Z``: UTC, milliseconds (cut, not rounded: a time never moves into the future)."""
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone: {moment!r}; rows hold aware UTC times")
    utc = moment.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z".rjust(24, "0")


def moment(timestamp_ms: int) -> datetime | str:
    """A message's time in UTC; beyond the years that Python has, which a producer may give, its ms as text."""
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)


def to_json(value: Any) -> Any:
    """The value as what JSON and YAML know: numbers stay numbers, lists arrays, unknown ``None``."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Enum):
        return to_json(value.value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return text_of(bytes(value))[0]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, Set):
        return [to_json(item) for item in sorted(value)]
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"no way to show a {type(value).__name__} in a row")


def to_text(value: Any) -> str:
    """The value as words, before anything is escaped; unknown is ``-``."""
    if value is None:
        return UNKNOWN
    plain = to_json(value)
    if plain is None:
        return UNKNOWN
    if isinstance(plain, bool):
        return "yes" if plain else "no"
    if isinstance(plain, float):
        return f"{plain:.3f}".rstrip("0").rstrip(".") if abs(plain) < 1e15 else repr(plain)
    if isinstance(plain, dict):
        return ",".join(f"{key}={to_text(item)}" for key, item in plain.items())
    if isinstance(plain, list):
        return ",".join(to_text(item) for item in plain)
    return str(plain)


def to_cell(value: Any) -> str:
    """A table's cell: one line, no control characters (a value must not move the cursor), never empty."""
    text = to_text(value)
    if not text:
        return UNKNOWN if isinstance(value, list | tuple | Mapping | Set) else '""'
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def to_tsv(value: Any) -> str:
    """A TSV field."""
    text = to_text(value)
    if text == UNKNOWN and isinstance(value, str):
        return "\\-"
    if not any(character in text for character in _TSV_ESCAPES):
        return text
    return "".join(_TSV_ESCAPES.get(character, character) for character in text)


def text_of(content: bytes | None) -> tuple[str | None, str | None]:
    """The text that stands for bytes, and how it does: ``utf-8``, or ``base64`` for what is not UTF-8."""
    if content is None:
        return None, None
    try:
        return content.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"
