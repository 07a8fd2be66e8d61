"""A message as one line of JSON, without loss: what `tail --output jsonl` writes and `produce -i jsonl` reads.

    {"topic": "t", "partition": 0, "offset": 9, "timestamp": "2026-02-01T10:00:00.000Z", "key": null, "value": "text",
     "headers": [{"key": "h", "value": "text", "encoding": "utf-8"}], "key_encoding": null, "value_encoding": "utf-8"}

An encoding says how the text beside it stands for bytes: ``utf-8``, or ``base64`` for what is not UTF-8; null beside
null. Headers are a list, for a name may come twice. Only ``value`` must be there to be read; topic and offset say where
a message was and are not obeyed, nor is the partition, unless it is to be kept.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from klog.client.headers import HeadersOf, headers_of
from klog.errors import UsageError
from klog.render.values import moment, text_of

EPOCH_DIGITS = 15
"""Milliseconds beyond the years that Python has are written as a number of at least so many digits."""

INT64_DIGITS = 19
PARTITION_MAX = 2**31 - 1

TIMES_KEPT = 10_000
"""Times whose text a `LineWriter` remembers: of what is read in order, more than are met at once."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Content(NamedTuple):
    """What a message carries; None for ``timestamp_ms`` leaves it to the producer, for ``partition`` likewise."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None
    partition: int | None = None


def rfc3339(timestamp_ms: int) -> str:
    """``2026-02-01T10:00:00.000Z``; the number itself beyond the years that Python has."""
    when = moment(timestamp_ms)
    return when if isinstance(when, str) else f"{when:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def to_line(topic: str, partition: int | None, offset: int | None, content: Content) -> str:
    """The line, without its end; partition and offset are None for a message that is not in a log."""
    key, key_encoding = text_of(content.key)
    value, value_encoding = text_of(content.value)
    headers = []
    for name, header in content.headers:
        text, encoding = text_of(header)
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


class LineWriter:
    """Many messages as lines, the same ones that `to_line` gives, in a quarter of the time.

    What a tail costs is what it does for each message. So nothing is made of a message but the texts of its parts,
    which go into a template; those of its partition and of its time are remembered.
    """

    def __init__(self, headers: HeadersOf = headers_of) -> None:
        self._headers = headers
        self._heads: dict[tuple[str, int], str] = {}
        self._times: dict[int | None, str] = {}
        self._seconds: dict[int, str] = {}

    def lines(self, messages: Iterable[Any]) -> bytes:
        """The lines of confluent-kafka's messages, a newline behind each."""
        heads, times, lines = self._heads, self._times, list[str]()
        for message in messages:
            key, value, headers = message.key(), message.value(), self._headers(message)
            place = message.topic(), message.partition()
            timestamp_ms = timestamp_of(message)
            key_text, key_encoding = ("null", "null") if key is None else json_of(key)
            text, encoding = ("null", "null") if value is None else json_of(value)
            lines.append(
                f"{heads.get(place) or self._head(*place)}{message.offset()},"
                f'"timestamp":{times.get(timestamp_ms) or self._time(timestamp_ms)},'
                f'"key":{key_text},"value":{text},"headers":{json_of_headers(headers) if headers else "[]"},'
                f'"key_encoding":{key_encoding},"value_encoding":{encoding}}}'
            )
        lines.append("")
        return "\n".join(lines).encode()

    def _head(self, topic: str, partition: int) -> str:
        head = f'{{"topic":{encode_basestring(topic)},"partition":{partition},"offset":'
        self._heads[topic, partition] = head
        return head

    def _time(self, timestamp_ms: int | None) -> str:
        if timestamp_ms is None:
            return "null"
        second, ms = divmod(timestamp_ms, 1000)
        begun = self._seconds.get(second)
        if begun is None:
            text = rfc3339(timestamp_ms)
            if not text.endswith("Z"):
                return f'"{text}"'
            if len(self._seconds) >= TIMES_KEPT:
                self._seconds.clear()
            begun = self._seconds[second] = text[:-4]
        if len(self._times) >= TIMES_KEPT:
            self._times.clear()
        shown = self._times[timestamp_ms] = f'"{begun}{ms:03d}Z"'
        return shown


def from_line(
    line: bytes, keep_partition: bool = False, value_of: Callable[[dict[str, Any]], bytes | None] | None = None
) -> Content:
    """The message of a line, with its partition if that is to be kept; UsageError names the error in it.

    ``value_of`` makes the value of the line's object, if it is not a text; numbers with a fraction are decimals there.
    """
    try:
        row = json.loads(line, parse_float=Decimal if value_of is not None else None)
    except UnicodeDecodeError:
        raise UsageError("not JSON: the line is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"not JSON, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise UsageError(f"{type(row).__name__} instead of an object")
    if "value" not in row:
        raise UsageError("no value", hint='form: {"value": "text"}, optionally with "key", "headers", "timestamp"')
    return Content(
        _bytes(row.get("key"), row.get("key_encoding"), "key"),
        _bytes(row["value"], row.get("value_encoding"), "value") if value_of is None else value_of(row),
        _headers(row.get("headers")),
        parse_timestamp(row.get("timestamp")),
        parse_partition(row.get("partition")) if keep_partition else None,
    )


def timestamp_of(message: Any) -> int | None:
    """The timestamp of confluent-kafka's message in ms; None where it has none."""
    kind, timestamp_ms = message.timestamp()
    return timestamp_ms if kind and timestamp_ms >= 0 else None


def json_of(content: bytes) -> tuple[str, str]:
    """Text and encoding of what is not null, as JSON."""
    try:
        return encode_basestring(content.decode()), '"utf-8"'
    except UnicodeDecodeError:
        return f'"{b64encode(content).decode()}"', '"base64"'


def json_of_headers(headers: Iterable[tuple[str, bytes | None]]) -> str:
    rows = []
    for name, content in headers:
        text, encoding = ("null", "null") if content is None else json_of(content)
        rows.append(f'{{"key":{encode_basestring(name)},"value":{text},"encoding":{encoding}}}')
    return f"[{','.join(rows)}]"


def _bytes(text: Any, encoding: Any, what: str) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise UsageError(f"{what} is {json.dumps(text)[:40]}; expected a string or null")
    if encoding in (None, "utf-8"):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{what} has half a surrogate pair at character {error.start}") from None
    if encoding == "base64":
        try:
            return b64decode(text, validate=True)
        except ValueError as error:
            raise UsageError(f"{what} is not base64: {error}") from None
    raise UsageError(f"{what}_encoding is {encoding!r}; expected utf-8 or base64")


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


def parse_partition(value: Any) -> int:
    """Raises UsageError where it cannot be the number of a partition."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= PARTITION_MAX:
        raise UsageError(f"partition is {json.dumps(value)[:40]}; expected a number from 0 on")
    return value


def parse_timestamp(value: Any) -> int | None:
    """Milliseconds of a time in RFC 3339, or of a number of them; None for null. Raises UsageError."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    if isinstance(value, str) and EPOCH_DIGITS <= len(value) <= INT64_DIGITS and value.isascii() and value.isdigit():
        return parse_timestamp(int(value))
    try:
        when = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise UsageError(f"timestamp is {repr(value)[:40]}; expected RFC 3339 or milliseconds") from None
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
