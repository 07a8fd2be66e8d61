"""From messages to the bytes that show them: what is wanted of them, and in which form."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from klog.client.headers import HeadersOf, headers_of
from klog.names import regular_expression
from klog.render.jsonl import LineWriter
from klog.render.visible import visible_bytes, visible_json_bytes
from klog.tools.formats import Watermark, compile_format, guarded, header_lines

if TYPE_CHECKING:
    from klog.tools.options import TailOptions
    from klog.tools.schemas import MessageDecoder

Message = Any
"""confluent-kafka's, which has no types, or what has its methods."""


class MessageFormatter:
    def __init__(
        self,
        options: TailOptions,
        watermark: Watermark = lambda topic, partition: -1,
        headers: HeadersOf = headers_of,
    ) -> None:
        """Raises UsageError for an invalid format or regular expression."""
        self._in_value = compile_search(options.grep, "--grep")
        self._in_key = compile_search(options.grep_key, "--grep-key")
        self._in_header = compile_search(options.grep_header, "--grep-header")
        self._headers = headers
        self.undecodable: Counter[str] = Counter()
        """Why values were shown as they are, and of how many messages."""
        self.show: Callable[[list[Message]], bytes]
        """The bytes for all of them, one after the other."""
        guard = visible_json_bytes
        if (decoder := options.decoder) is not None:
            lines = LineWriter(headers).lines if options.output == "jsonl" else None
            self.show = lambda messages: b"".join(self._decoded(one, decoder, lines) for one in messages)
        elif options.format is not None:
            show = compile_format(options.format, watermark, headers, visible_bytes if options.on_terminal else None)
            self.show = lambda messages: b"".join(map(show, messages))
            return  # what the format itself has is not escaped
        elif options.output == "jsonl":
            self.show = LineWriter(headers).lines
        else:
            self.show, guard = _values, visible_bytes
        if options.on_terminal:
            self.show = guarded(self.show, guard)

    def wanted(self, messages: list[Message]) -> list[Message]:
        """Those in which is found what is searched for; in null there is nothing."""
        if (search := self._in_value) is not None:
            messages = [one for one in messages if search(one.value())]
        if (search := self._in_key) is not None:
            messages = [one for one in messages if search(one.key())]
        if (find := self._in_header) is not None:
            messages = [one for one in messages if find.in_any(header_lines(self._headers(one)))]
        return messages

    def _decoded(
        self, message: Message, decoder: MessageDecoder, lines: Callable[[list[Message]], bytes] | None
    ) -> bytes:
        """A message as a line of JSON, its value decoded; as it is, where that cannot be done."""
        content = message.value()
        found = decoder.of(content)
        error = found.get("value_error")
        if error is not None:
            self.undecodable[str(error)] += 1
        if lines is not None:
            return _json_line({**json.loads(lines([message])), **found})
        return (content or b"") + b"\n" if error is not None else _json_line(found.get("value"))


class Search:
    """A regular expression in bytes, or, behind ``!``, what it is not found in. In null there is nothing."""

    __slots__ = ("_search", "is_negated")

    def __init__(self, search: Callable[[bytes], object], is_negated: bool) -> None:
        self._search = search
        self.is_negated = is_negated

    def __call__(self, content: bytes | None) -> bool:
        return (content is not None and self._search(content) is not None) != self.is_negated

    def in_any(self, contents: Iterable[bytes]) -> bool:
        """Whether one of them has it; negated, whether none has."""
        return any(self._search(one) is not None for one in contents) != self.is_negated


def compile_search(text: str | None, flag: str) -> Search | None:
    """The search for a regular expression that was typed as UTF-8, or for ``!`` and one; UsageError names the flag."""
    if text is None:
        return None
    is_negated = text.startswith("!")
    pattern = text[1:] if is_negated else text
    return Search(regular_expression(pattern.encode("utf-8", "surrogateescape"), flag).search, is_negated)


def compile_names(text: str) -> Callable[[str], bool]:
    """Whether a whole name matches the regular expression of --match, or, behind ``!``, does not. UsageError."""
    is_negated = text.startswith("!")
    match = regular_expression(text[1:] if is_negated else text, "--match").fullmatch
    return lambda name: (match(name) is not None) != is_negated


def _json_line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def _values(messages: list[Message]) -> bytes:
    """A newline after each; null is an empty line."""
    values = [message.value() or b"" for message in messages]
    values.append(b"")
    return b"\n".join(values)
