"""Format strings for messages: kcat's letters, and a few more.

    %t topic      %p partition   %o offset     %T timestamp in ms     %d{strftime} the time, UTC (%d: RFC 3339)
    %k key        %K its length  %s value      %S its length          %v the value, %h headers as a=b,c=d
    %%  a %       \\n \\t \\r \\0 \\\\ \\xHH    as in C

``%k``, ``%s`` and ``%v`` take ``{hex}``, ``{base64}`` or ``{unpack[>iq]}`` (Python's struct letters) behind them. What
is null is empty, and its length -1.
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from klog.errors import UsageError
from klog.ops.jsonl import rfc3339

Formatter = Callable[[Any], bytes]
"""From confluent-kafka's message to the bytes that show it."""

_TOKEN = re.compile(r"%([a-zA-Z%])(?:\{((?:[^{}\[\]]|\[[^\]]*\])*)\})?|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+)|(.)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HINT = r"letters: %t %p %o %k %K %s %S %v{hex} %v{base64} %h %T %d{%H:%M}, \n"


def compile_format(text: str) -> Formatter:
    """The function that shows a message; UsageError where the text has no % or an unknown letter."""
    if "%" not in text:
        raise UsageError(
            f"-f {text!r} has no % in it, so it would show the same for every message",
            hint="tail follows by itself, without -f; a format is for example -f '%o %s\\n'",
        )
    parts: list[bytes | Formatter] = []
    for match in _TOKEN.finditer(text):
        letter, modifier, escape, plain, stray = match.groups()
        if letter == "%":
            parts.append(b"%")
        elif letter is not None:
            parts.append(_verb(letter, modifier, text))
        elif escape is not None:
            parts.append(bytes([int(escape[1:], 16)]) if len(escape) == 3 else _escape(escape, text))
        elif plain is not None:
            parts.append(plain.encode())
        else:
            raise UsageError(f"-f {text!r}: {stray!r} at {match.start()} has nothing behind it", hint=_HINT)
    steps = [part if callable(part) else _constant(part) for part in parts]
    return lambda message: b"".join([step(message) for step in steps])


def headers_of(message: Any) -> list[tuple[str, bytes | None]]:
    """A message's headers, an empty list where it has none."""
    return message.headers() or []


def timestamp_of(message: Any) -> int | None:
    """A message's timestamp in ms; None where it has none."""
    kind, timestamp_ms = message.timestamp()
    return int(timestamp_ms) if kind else None


def _constant(content: bytes) -> Formatter:
    return lambda message: content


def _escape(letter: str, text: str) -> bytes:
    if letter not in _ESCAPES:
        raise UsageError(f"-f {text!r}: \\{letter} is no escape", hint=_HINT)
    return _ESCAPES[letter]


def _verb(letter: str, modifier: str | None, text: str) -> Formatter:
    if letter == "d":
        return _time(modifier)
    if letter in "ksv":
        show = _bytes_shower(modifier, text)
        if letter == "k":
            return lambda message: show(message.key())
        return lambda message: show(message.value())
    if modifier is not None:
        raise UsageError(f"-f {text!r}: %{letter} takes no {{{modifier}}}", hint=_HINT)
    verb = _PLAIN.get(letter)
    if verb is None:
        raise UsageError(f"-f {text!r}: %{letter} is unknown", hint=_HINT)
    return verb


def _bytes_shower(modifier: str | None, text: str) -> Callable[[bytes | None], bytes]:
    if modifier is None:
        return lambda content: content or b""
    if modifier == "hex":
        return lambda content: (content or b"").hex().encode()
    if modifier == "base64":
        return lambda content: b64encode(content or b"")
    if modifier.startswith("unpack[") and modifier.endswith("]"):
        try:
            layout = struct.Struct(modifier[7:-1])
        except struct.error as error:
            raise UsageError(f"-f {text!r}: {modifier}: {error}", hint=_HINT) from None
        return lambda content: _unpacked(layout, content)
    raise UsageError(f"-f {text!r}: {{{modifier}}} is unknown", hint=_HINT)


def _unpacked(layout: struct.Struct, content: bytes | None) -> bytes:
    """The numbers separated by blanks; ``?`` where there are too few bytes for them."""
    if content is None or len(content) < layout.size:
        return b"?"
    return " ".join(map(str, layout.unpack_from(content))).encode()


def _time(pattern: str | None) -> Formatter:
    def show(message: Any) -> bytes:
        timestamp_ms = timestamp_of(message)
        if timestamp_ms is None:
            return b"-"
        if pattern is None:
            return rfc3339(timestamp_ms).encode()
        try:
            return (_EPOCH + timedelta(milliseconds=timestamp_ms)).strftime(pattern).encode()
        except (OverflowError, ValueError):
            return str(timestamp_ms).encode()

    return show


def _length(content: bytes | None) -> bytes:
    return b"-1" if content is None else str(len(content)).encode()


def _headers(message: Any) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in headers_of(message))


def _milliseconds(message: Any) -> bytes:
    timestamp_ms = timestamp_of(message)
    return b"-1" if timestamp_ms is None else str(timestamp_ms).encode()


_PLAIN: dict[str, Formatter] = {
    "t": lambda message: message.topic().encode(),
    "p": lambda message: str(message.partition()).encode(),
    "o": lambda message: str(message.offset()).encode(),
    "K": lambda message: _length(message.key()),
    "S": lambda message: _length(message.value()),
    "h": _headers,
    "T": _milliseconds,
}
