"""From messages to the bytes that show them: what is wanted of them, and in which form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from klog.client.headers import HeadersOf, headers_of
from klog.errors import UsageError
from klog.render.jsonl import LineWriter
from klog.render.visible import visible_bytes, visible_json_bytes
from klog.tools.formats import Watermark, compile_format

if TYPE_CHECKING:
    from klog.tools.tail_options import TailOptions

Message = Any
"""confluent-kafka's, which has no types, or what has its methods."""

Search = Callable[[bytes], object]


class MessageFormatter:
    """Shows messages as the options say."""

    def __init__(
        self,
        options: TailOptions,
        watermark: Watermark = lambda topic, partition: -1,
        headers: HeadersOf = headers_of,
    ) -> None:
        """Raises UsageError for an invalid format or regular expression."""
        self._in_value = compile_search(options.grep, "--grep") if options.grep is not None else None
        self._in_key = compile_search(options.grep_key, "--grep-key") if options.grep_key is not None else None
        if options.format is not None:
            guard = visible_bytes if options.on_terminal else None
            self._show: Callable[[list[Message]], bytes] = _formatted(
                compile_format(options.format, watermark, headers, guard)
            )
        elif options.output == "jsonl":
            self._show = LineWriter(headers).lines
            if options.on_terminal:
                self._show = _guarded(self._show, visible_json_bytes)
        else:
            self._show = _guarded(_values, visible_bytes) if options.on_terminal else _values

    def wanted(self, messages: list[Message]) -> list[Message]:
        """Those in which is found what is searched for; in null there is nothing."""
        if (search := self._in_value) is not None:
            messages = [one for one in messages if (value := one.value()) is not None and search(value)]
        if (search := self._in_key) is not None:
            messages = [one for one in messages if (key := one.key()) is not None and search(key)]
        return messages

    def show(self, messages: list[Message]) -> bytes:
        """The bytes for all of them, one after the other."""
        return self._show(messages)


def compile_search(text: str, flag: str) -> Search:
    """The search for a regular expression in bytes, which were typed as UTF-8; UsageError names the flag."""
    try:
        return re.compile(text.encode("utf-8", "surrogateescape")).search
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"{flag} {text!r} is not a regular expression: {error}") from None


def _values(messages: list[Message]) -> bytes:
    """A newline after each; null is an empty line."""
    values = [message.value() or b"" for message in messages]
    values.append(b"")
    return b"\n".join(values)


def _guarded(
    show: Callable[[list[Message]], bytes], guard: Callable[[bytes], bytes]
) -> Callable[[list[Message]], bytes]:
    return lambda messages: guard(show(messages))


def _formatted(show: Callable[[Message], bytes]) -> Callable[[list[Message]], bytes]:
    return lambda messages: b"".join(map(show, messages))
