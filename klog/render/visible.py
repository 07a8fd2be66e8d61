"""What others have written, as a terminal may be given it: characters that would command it are shown escaped.

Messages, keys, headers, ids and names are anybody's. A terminal takes C0 and C1 controls and DEL for commands (they can
rewrite the screen, its title, or what is typed), and shows text behind a change of direction in another order than it
has. Tabs and line ends are left. Into pipes and files everything goes as it is, but for lines of a log (`one_line`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TextIO

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_IN_A_LINE = re.compile(f"[\n\t\u2028\u2029]|{_COMMANDS.pattern}")
_PLAIN = re.compile(rb"[\t\n\x20-\x7e]*")


def visible(text: str) -> str:
    """With ``\\x1b`` and ``\\u202e`` in place of such characters; what was an undecodable byte is ``\\x9b``, too."""
    return _COMMANDS.sub(lambda found: _escape(ord(found[0])), text)


def one_line(text: str) -> str:
    """As `visible`, and line ends and tabs escaped as well: who writes a text does not write the line after it."""
    return text if text.isprintable() else _NOT_IN_A_LINE.sub(lambda found: _escape(ord(found[0])), text)


def visible_json(text: str) -> str:
    """JSON that means the same: only its strings can have such characters, and there ``\\u009b`` is the same."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible_bytes(content: bytes) -> bytes:
    """As `visible`, of bytes that may be no UTF-8."""
    if _PLAIN.fullmatch(content):
        return content
    return visible(content.decode("utf-8", "surrogateescape")).encode()


def visible_json_bytes(content: bytes) -> bytes:
    """As `visible_json`."""
    if _PLAIN.fullmatch(content):
        return content
    return visible_json(content.decode("utf-8", "surrogateescape")).encode()


def is_terminal(stream: Any) -> bool:
    """Whether a person is at the other end."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # nothing there, or closed
        return False


def for_stream(text: str, stream: Any) -> str:
    """The text as this stream may be given it: escaped on a terminal."""
    return visible(text) if is_terminal(stream) else text


class VisibleText:
    """A text stream in front of a terminal's."""

    def __init__(self, out: TextIO, *, json: bool = False) -> None:
        """``json``: what is written is JSON."""
        self._out = out
        self._visible = visible_json if json else visible

    def write(self, text: str) -> int:
        return self._out.write(self._visible(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


def _escape(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
