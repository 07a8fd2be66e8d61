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
_ENDS_WORD = frozenset(" \t\r\n;|")


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
        own = _WATCH if self.words else _OWN
        if own.match(text, self.at):
            while self.at < len(text) and text[self.at] not in _ENDS_WORD:
                self.at += 1
            return Word(text[start : self.at], start, self.at, own=True)
        while self.at < len(text) and text[self.at] not in _ENDS_WORD:
            character = text[self.at]
            if character == "'":
                parts.append(self._single())
            elif character == '"':
                parts.append(self._double())
            elif character == "\\":
                parts.append(self._escaped(any_character=True))
            else:
                parts.append(self._plain())
        return Word("".join(parts), start, self.at)

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self.open, end = "'", len(self.text)
        found = self.text[self.at + 1 : end]
        self.at = min(end + 1, len(self.text))
        return found

    def _double(self) -> str:
        parts: list[str] = []
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            character = self.text[self.at]
            parts.append(self._escaped(any_character=False) if character == "\\" else self._plain())
        if self.at >= len(self.text):
            self.open = '"'
        self.at = min(self.at + 1, len(self.text))
        return "".join(parts)

    def _escaped(self, *, any_character: bool) -> str:
        following = self.text[self.at + 1 : self.at + 2]
        self.at = min(self.at + 2, len(self.text))
        if not following:
            self.open = "\\"
            return ""
        if following == "\n":
            return ""
        return following if any_character or following in '"\\$' else "\\" + following

    def _plain(self) -> str:
        self.at += 1
        return self.text[self.at - 1]

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
