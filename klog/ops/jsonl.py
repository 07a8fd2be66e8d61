"""A message as one line of JSON, without loss: what `tail --output jsonl` writes and `produce -i jsonl` reads.

    {"topic": "t", "partition": 0, "offset": 9, "timestamp": "2026-02-01T10:00:00.000Z", "key": null, "value": "text",
     "headers": [{"key": "h", "value": "text", "encoding": "utf-8"}], "key_encoding": null, "value_encoding": "utf-8"}

An encoding says how the text beside it stands for bytes: ``utf-8``, or ``base64`` for what is not UTF-8; null beside
null. Headers are a list, for a name may come twice. Only ``value`` must be there to be read; topic, partition and
offset say where a message was and are not obeyed.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from klog.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Content(NamedTuple):
    """What a message carries; ``timestamp_ms`` None leaves it to the producer."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None


def rfc3339(timestamp_ms: int) -> str:
    """``2026-02-01T10:00:00.000Z``; the number itself beyond the years that Python has."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def to_line(topic: str, partition: int, offset: int, content: Content) -> str:
    """The line, without its end."""
    key, key_encoding = _text(content.key)
    value, value_encoding = _text(content.value)
    headers = []
    for name, header in content.headers:
        text, encoding = _text(header)
        headers.append({"key": name, "value": text, "encoding": encoding})
    row = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": None if content.timestamp_ms is None else rfc3339(content.timestamp_ms),
        "key": key,
        "value": value,
        "headers": headers,
        "key_encoding": key_encoding,
        "value_encoding": value_encoding,
    }
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def from_line(line: bytes) -> Content:
    """The message of a line; UsageError says what is wrong with it."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {error}") from None
    if not isinstance(row, dict):
        raise UsageError(f"{type(row).__name__} where an object is expected")
    if "value" not in row:
        raise UsageError(
            "no value in it", hint='write {"value": "text"}; "key", "headers", "timestamp" may stand beside'
        )
    return Content(
        _bytes(row.get("key"), row.get("key_encoding"), "key"),
        _bytes(row["value"], row.get("value_encoding"), "value"),
        _headers(row.get("headers")),
        _timestamp(row.get("timestamp")),
    )


def _text(content: bytes | None) -> tuple[str | None, str | None]:
    if content is None:
        return None, None
    try:
        return content.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(content).decode(), "base64"


def _bytes(text: Any, encoding: Any, what: str) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise UsageError(f"{what} is {json.dumps(text)[:40]}; a text or null is expected")
    if encoding in (None, "utf-8"):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{what} has half a surrogate pair at character {error.start}") from None
    if encoding == "base64":
        try:
            return b64decode(text, validate=True)
        except ValueError as error:
            raise UsageError(f"{what} is no base64: {error}") from None
    raise UsageError(f"{what}_encoding is {encoding!r}; utf-8 or base64 is expected")


def _headers(rows: Any) -> list[tuple[str, bytes | None]]:
    if rows is None:
        return []
    if isinstance(rows, dict):  # the short way to write them by hand
        return [(name, _bytes(value, None, f"header {name}")) for name, value in rows.items()]
    headers = []
    for row in rows if isinstance(rows, list) else [None]:
        if not isinstance(row, dict) or not isinstance(row.get("key"), str):
            raise UsageError('headers are a list of {"key": "name", "value": "text"}, or one object of names and texts')
        headers.append((row["key"], _bytes(row.get("value"), row.get("encoding"), f"header {row['key']}")))
    return headers


def _timestamp(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise UsageError(f"timestamp is {value!r}; RFC 3339 or milliseconds are expected") from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
