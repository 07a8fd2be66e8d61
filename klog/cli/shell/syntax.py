r"""What a person writes, as statements: words, ``;``, quotes, ``\``, ``| COMMAND``, ``> FILE``, ``! CMD``.

    topic list; tail orders -e | jq .value > first.txt
    \watch 2s   \c prod                         a word that begins with a backslash is the shell's own

Rules
    * Quotes and backslashes are those of ``sh``. Nothing is replaced: a ``$`` is itself.
    * A statement ends at ``;`` or at the end of the line; an open quote or a ``\`` at the end of a line goes on in the
      next one.
    * Behind ``|`` and ``!`` the rest of the line is ``sh``'s, its ``;`` and ``$NAME`` too.
    * ``#`` begins a comment where a statement would begin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OWN = re.compile(r"\\[A-Za-z?]")
_WATCH = re.compile(r"\\watch(?=\s|;|$)")
_TO_END_OF_WORD = re.compile(r"[^ \t\r\n;|]*")
_PART = re.compile(r"""'([^']*)('?)|"((?:[^"\\]|\\.)*)("?)|\\(.?)|([^ \t\r\n;|'"\\]+)""", re.DOTALL)
"""Of a word: in quotes, which may be open, an escaped character, or plain ones."""
_ESCAPED = re.compile(r'\\(["\\$\n])')
"""Between double quotes; a backslash before another character is itself."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word, without its quotes, and where it is written. ``own``: a word of the shell's, such as ``\\watch``."""

    text: str
    start: int
    end: int
    own: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """One command with what is made of its output.

    ``next`` is where the following statement begins; ``open`` says that the text ends within a quote or behind ``\\``.
    """

    words: tuple[Word, ...]
    next: int
    pipe: str | None = None
    file: str | None = None
    append: bool = False
    system: str | None = None
    open: str = ""
    redirects: bool = False
    """There is a ``>``, maybe without its file yet."""

    @property
    def texts(self) -> list[str]:
        """The words without where they are written."""
        return [word.text for word in self.words]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to run."""
        return not (self.words or self.redirects or self.pipe is not None or self.system is not None)


class _Reader:
    """Reads one statement."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.open = ""
        self.words: list[Word] = []

    def statement(self) -> Statement:
        pipe: str | None = None
        file: str | None = None
        append = redirects = False
        while (character := self._next()) not in ("", ";", "\n"):
            is_first = not self.words and not redirects
            if is_first and character == "#":
                self._rest_of_line(quotes=False)
            elif is_first and character == "!":
                self.at += 1
                command = self._rest_of_line()
                return Statement((), self._past_end(), system=command, open=self.open)
            elif character == "|":
                self.at += 1
                pipe = self._rest_of_line()
            elif character == ">":
                redirects, append = True, self.text.startswith(">>", self.at)
                self.at += 2 if append else 1
                if self._next() not in ("", ";", "\n", "|"):
                    file = self._word().text
            else:
                self.words.append(self._word())
        return Statement(tuple(self.words), self._past_end(), pipe, file, append, open=self.open, redirects=redirects)

    def _next(self) -> str:
        """The next character that is not between words; "" at the end."""
        while self.at < len(self.text):
            if self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text[self.at] in " \t\r":
                self.at += 1
            else:
                return self.text[self.at]
        return ""

    def _past_end(self) -> int:
        return min(self.at + 1, len(self.text)) if self.at < len(self.text) else len(self.text)

    def _word(self) -> Word:
        text, start, parts = self.text, self.at, list[str]()
        if (_WATCH if self.words else _OWN).match(text, start):
            found = _TO_END_OF_WORD.match(text, start)
            assert found is not None
            self.at = found.end()
            return Word(found[0], start, self.at, own=True)
        while (found := _PART.match(text, self.at)) is not None:
            single, single_end, double, double_end, escaped, plain = found.groups()
            self.at = found.end()
            if plain is not None:
                parts.append(plain)
            elif escaped is not None:
                parts.append(escaped.strip("\n"))
                self.open = "" if escaped else "\\"
            else:
                parts.append(single if double is None else _ESCAPED.sub(lambda one: one[1].strip("\n"), double))
                if not (single_end or double_end):
                    self.open, self.at = text[found.start()], len(text)
        return Word("".join(parts), start, self.at)

    def _rest_of_line(self, *, quotes: bool = True) -> str:
        """All up to the end of the line, which a quote or a backslash may carry over."""
        start, quote = self.at, ""
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == "\n" and not quote:
                break
            if quotes and character == "\\" and quote != "'":
                self.at += 1
                if self.at >= len(self.text):
                    self.open = "\\"
            elif quotes and character in "'\"":
                quote = "" if quote == character else quote or character
            self.at += 1
        self.at = min(self.at, len(self.text))
        if quote:
            self.open = quote
        return self.text[start : self.at].strip()


def read(text: str, at: int = 0) -> Statement:
    """The statement that begins at ``at``."""
    return _Reader(text, at).statement()


def statements(text: str) -> list[Statement]:
    """All of a text."""
    found, at = list[Statement](), 0
    while at < len(text):
        found.append(read(text, at))
        at = found[-1].next
    return found


def open_end(text: str) -> str:
    """What a text leaves open: a quote, a backslash, or nothing."""
    found = statements(text)
    return found[-1].open if found else ""
