"""Format strings for messages: kcat's letters, and a few more.

    %t topic      %p partition   %o offset     %T timestamp in ms     %] high watermark of the partition
    %k key        %K its length  %s value      %S its length          %R its length as four bytes, big-endian
    %v the value  %V its length  %e the leader's epoch under which it was written
    %d{strftime[%F %T]}  the time, UTC, by strftime's letters; %d{%F %T} is the same; %d alone is RFC 3339
    %h headers as a=b,c=d        %H how many   %h{%k=%v }  each header by a format of its own
    %%  a %       \\n \\t \\r \\0 \\\\ \\xHH    as in C

``%k``, ``%s`` and ``%v`` take ``{hex}``, ``{base64}`` or ``{unpack[>iq]}`` (Python's struct letters) behind them, also
for headers. Bytes are written as they are. What is null is empty, and its length -1; what is not known is -1 or ``-``.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from klog.client.headers import Headers, HeadersOf, headers_of
from klog.errors import UsageError
from klog.render.jsonl import rfc3339, timestamp_of

Formatter = Callable[[Any], bytes]
"""From confluent-kafka's message to the bytes that show it."""

Watermark = Callable[[str, int], int]
"""The high watermark of a topic's partition, as far as it is known here; -1: not at all."""

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HINT = r"letters: %t %p %o %k %K %s %S %v{hex} %v{base64} %h %T %d{strftime[%H:%M]} %], \n; all: `man klog-tail`"


def compile_format(
    text: str,
    watermark: Watermark = lambda topic, partition: -1,
    headers: HeadersOf = headers_of,
    guard: Callable[[bytes], bytes] | None = None,
) -> Formatter:
    """The function that shows a message; UsageError where the text has no % or an unknown letter.

    ``guard`` is given what comes of the message, and not what the text has itself.
    """
    if "%" not in text:
        raise UsageError(
            f"-f {text!r} has no %, so it shows the same text for every message",
            hint="tail follows by itself, without -f; a format is for example -f '%o %s\\n'",
        )
    verbs: dict[str, Formatter] = {
        **_PLAIN,
        "h": lambda message: b",".join(header_lines(headers(message))),
        "H": lambda message: b"%d" % len(headers(message)),
        "]": lambda message: b"%d" % watermark(message.topic(), message.partition()),
    }
    parts: list[bytes | Formatter] = []
    for token in tokens(text, text):
        if isinstance(token, tuple) and token[0] == "h" and token[1] is not None:
            parts.append(_each_header(token[1], text, headers))
        else:
            parts.append(_part(token, verbs, text))
    if guard is not None:
        parts = [guarded(part, guard) if callable(part) else part for part in parts]
    return _joined(parts)


def guarded(show: Formatter, guard: Callable[[bytes], bytes]) -> Formatter:
    """What it shows as ``guard`` leaves it."""
    return lambda message: guard(show(message))


# --- Reading ---


def tokens(part: str, text: str) -> Iterator[bytes | tuple[str, str | None]]:
    """Bytes that stand for themselves, and letters with the braces behind them."""
    at = 0
    while at < len(part):
        if part[at] == "%":
            if at + 1 == len(part):
                raise UsageError(f"-f {text!r}: the % at its end lacks a letter", hint=_HINT)
            letter, modifier, at = part[at + 1], None, at + 2
            if part[at : at + 1] == "{" and letter.isalpha():
                end = _closing(part, at, letter)
                if end < 0:
                    raise UsageError(f"-f {text!r}: the brace behind %{letter} is not closed", hint=_HINT)
                modifier, at = part[at + 1 : end], end + 1
            yield letter, modifier
        elif part[at] == "\\":
            content, at = _escape(part, at + 1, text)
            yield content
        else:
            ends = [found for found in (part.find("%", at), part.find("\\", at)) if found >= 0]
            end = min(ends, default=len(part))
            yield part[at:end].encode("utf-8", "surrogateescape")
            at = end


def _closing(part: str, opening: int, letter: str) -> int:
    """Where the brace that opens there is closed; -1: nowhere. Brackets may hold braces."""
    if letter != "h":
        bracket, closing = part.find("[", opening), part.find("}", opening)
        if 0 <= bracket < closing:
            end = part.find("]}", bracket)
            return end + 1 if end >= 0 else -1
        return closing
    depth = 0
    for at in range(opening, len(part)):
        depth += {"{": 1, "}": -1}.get(part[at], 0)
        if depth == 0:
            return at
    return -1


def _escape(part: str, at: int, text: str) -> tuple[bytes, int]:
    letter = part[at : at + 1]
    if letter in ESCAPES:
        return ESCAPES[letter], at + 1
    digits = part[at + 1 : at + 3]
    if letter == "x" and len(digits) == 2:
        try:
            return bytes.fromhex(digits), at + 3
        except ValueError:
            pass
    raise UsageError(f"-f {text!r}: \\{letter} is not an escape", hint=_HINT)


# --- Making ---


def _joined(parts: list[bytes | Formatter]) -> Formatter:
    steps = [part if callable(part) else _constant(part) for part in parts]
    return lambda message: b"".join([step(message) for step in steps])


def _constant(content: bytes) -> Formatter:
    return lambda message: content


def _part(token: bytes | tuple[str, str | None], verbs: dict[str, Formatter], text: str) -> bytes | Formatter:
    if isinstance(token, bytes):
        return token
    letter, modifier = token
    if letter == "%":
        return b"%"
    if letter == "d":
        return _time(modifier, text)
    if letter in "ksv":
        show = _bytes_shower(modifier, text)
        if letter == "k":
            return lambda message: show(message.key())
        return lambda message: show(message.value())
    if letter not in verbs:
        raise UsageError(f"-f {text!r}: %{letter} is unknown", hint=_HINT)
    if modifier is not None:
        raise UsageError(f"-f {text!r}: %{letter} takes no {{{modifier}}}", hint=_HINT)
    return verbs[letter]


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
        except (struct.error, UnicodeEncodeError) as error:
            raise UsageError(f"-f {text!r}: {modifier}: {error}", hint=_HINT) from None
        if not layout.size:
            raise UsageError(f"-f {text!r}: {modifier} unpacks nothing", hint=_HINT)
        return lambda content: _unpacked(layout, content)
    raise UsageError(f"-f {text!r}: {{{modifier}}} is unknown", hint=_HINT)


def _unpacked(layout: struct.Struct, content: bytes | None) -> bytes:
    """The numbers separated by blanks; ``?`` where there are too few bytes for them."""
    if content is None or len(content) < layout.size:
        return b"?"
    found = layout.unpack_from(content)
    return b" ".join([one if isinstance(one, bytes) else str(one).encode() for one in found])


def _time(modifier: str | None, text: str) -> Formatter:
    pattern = modifier
    if modifier is not None and modifier.startswith("strftime[") and modifier.endswith("]"):
        pattern = modifier[9:-1]
    if pattern is not None:
        try:
            _EPOCH.strftime(pattern).encode()
        except ValueError as error:  # also what is not text
            raise UsageError(f"-f {text!r}: strftime takes no {pattern!r}: {error}", hint=_HINT) from None

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


class _Header(NamedTuple):
    """As the letters for key and value want it."""

    name: str
    content: bytes | None

    def key(self) -> bytes:
        return self.name.encode()

    def value(self) -> bytes | None:
        return self.content


def _each_header(form: str, text: str, headers: HeadersOf) -> Formatter:
    verbs = {letter: _PLAIN[letter] for letter in "KSVR"}
    found = list(tokens(form, text))
    for token in found:
        if isinstance(token, tuple) and token[0] not in "%ksvKSVR":
            raise UsageError(f"-f {text!r}: of a header there is no %{token[0]}, only %k %K %v %V", hint=_HINT)
    show = _joined([_part(token, verbs, text) for token in found])
    return lambda message: b"".join([show(_Header(*header)) for header in headers(message)])


# --- Showing ---


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def header_lines(headers: Headers) -> list[bytes]:
    """``name=value`` of each."""
    return [name.encode() + b"=" + (value or b"") for name, value in headers]


def _milliseconds(message: Any) -> bytes:
    timestamp_ms = timestamp_of(message)
    return b"-1" if timestamp_ms is None else b"%d" % timestamp_ms


def _leader_epoch(message: Any) -> bytes:
    epoch = message.leader_epoch()
    return b"-1" if epoch is None else b"%d" % epoch


_PLAIN: dict[str, Formatter] = {
    "t": lambda message: message.topic().encode(),
    "p": lambda message: b"%d" % message.partition(),
    "o": lambda message: b"%d" % message.offset(),
    "K": lambda message: b"%d" % _length(message.key()),
    "S": lambda message: b"%d" % _length(message.value()),
    "V": lambda message: b"%d" % _length(message.value()),
    "R": lambda message: struct.pack(">i", _length(message.value())),
    "T": _milliseconds,
    "e": _leader_epoch,
}
