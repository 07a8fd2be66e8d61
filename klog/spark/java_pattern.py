"""Regular expressions as Java writes them, which ``subscribePattern`` is in Spark's connector, for Python's `re`.

Most of both languages is the same. What Python lacks is rewritten: properties (``\\p{Lower}``), classes within classes
and their intersections (``[a-z&&[^aeiou]]``), quotations (``\\Q...\\E``), Java's way of naming groups. All names of
topics are made of 65 characters, so a property or a class is written out as those of the 65 that it has.
"""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Final

TOPIC_CHARS: Final = frozenset(string.ascii_letters + string.digits + "._-")

_POSIX: Final = {
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "ascii": "".join(TOPIC_CHARS),
    "alpha": string.ascii_letters,
    "digit": string.digits,
    "alnum": string.ascii_letters + string.digits,
    "punct": "._-",
    "graph": "".join(TOPIC_CHARS),
    "print": "".join(TOPIC_CHARS),
    "blank": "",
    "cntrl": "",
    "xdigit": string.hexdigits,
    "space": "",
}
_OTHER_NAMES: Final = {
    "javalowercase": "lower",
    "javauppercase": "upper",
    "javaalphabetic": "alpha",
    "javaletter": "alpha",
    "javadigit": "digit",
    "javaletterordigit": "alnum",
    "javawhitespace": "space",
    "javaspacechar": "space",
    "isalphabetic": "alpha",
    "isletter": "alpha",
    "isdigit": "digit",
    "islowercase": "lower",
    "isuppercase": "upper",
    "ispunctuation": "punct",
    "iswhite_space": "space",
    "iswhitespace": "space",
    "iscontrol": "cntrl",
    "ishex_digit": "xdigit",
    "ishexdigit": "xdigit",
    "islatin": "alpha",
    "inbasiclatin": "ascii",
    "inbasic_latin": "ascii",
}
_CATEGORY: Final = re.compile(r"L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfson]?")
_SHORT: Final = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset[str](),
    "h": frozenset[str](),
    "v": frozenset[str](),
}
"""``\\d`` and its like, within classes."""
_OF_JAVA: Final = re.compile(r"\[|&&|\\[pPQhHvVx]")
"""What makes a class one that Python has no words for, or other ones."""
_PROPERTY: Final = re.compile(r"\{([^{}]*)\}|([A-Z])")
_CODE: Final = re.compile(r"x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|0([0-7]{1,3})")
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_NEVER: Final = r"[^\s\S]"


def compiled(text: str) -> re.Pattern[str]:
    """The pattern, to be matched with whole names of topics. `re.error` for what neither language knows."""
    return re.compile(_Translation(text).all())


class _Translation:
    """One walk over the text, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def all(self) -> str:
        found = []
        while self._at < len(self._text):
            found.append(self._next())
        return "".join(found)

    def _next(self) -> str:
        if self._takes("\\"):
            return self._escaped()
        if self._takes("["):
            began = self._at - 1
            chars = self._class()
            written = self._text[began : self._at]
            # As it stands where Python reads it alike: what (?i) means for a class depends on how it is written.
            return _written(chars) if _OF_JAVA.search(written, 1) else written
        if self._text.startswith("(?<", self._at) and self._text[self._at + 3 : self._at + 4] not in ("=", "!"):
            self._at += 3
            return "(?P<"
        return self._one()

    def _escaped(self) -> str:
        """What follows a backslash, outside of a class."""
        if self._takes("Q"):
            return re.escape(self._quoted())
        if self._peek() in ("p", "P"):
            return _written(self._property())
        if self._takes("h"):
            return "[ \\t]"
        if self._takes("z") or self._takes("Z"):
            return "\\Z"
        if self._takes("k<"):
            name, _, _ = self._text[self._at :].partition(">")
            self._at += len(name) + 1
            return f"(?P={name})"
        if self._text.startswith("x{", self._at):
            return re.escape(self._code())
        return "\\" + self._one()

    def _class(self) -> frozenset[str]:
        """The characters of a class, behind its ``[``, and the walk behind its ``]``."""
        began = self._at - 1
        is_negated = self._takes("^")
        both = TOPIC_CHARS
        found: frozenset[str] = frozenset()
        first = True
        while first or not self._takes("]"):
            if self._at >= len(self._text):
                raise re.error("unterminated character set", self._text, began)
            if self._takes("&&"):
                both, found = both & found, frozenset()
                if self._peek() == "]" or self._text.startswith("&&", self._at):
                    raise re.error("nothing to intersect", self._text, self._at)
                first = False
                continue
            found |= self._item()
            first = False
        found &= both
        return TOPIC_CHARS - found if is_negated else found

    def _item(self) -> frozenset[str]:
        if self._takes("["):
            return self._class()
        if self._takes("\\"):
            if self._takes("Q"):
                return frozenset(self._quoted())
            if self._peek() in ("p", "P"):
                return self._property()
            kind = self._peek()
            if kind.lower() in _SHORT:
                self._at += 1
                return _SHORT[kind] if kind in _SHORT else TOPIC_CHARS - _SHORT[kind.lower()]
            low = self._code()
        else:
            low = self._one()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", "[", ""):
            return frozenset(low)
        self._at += 1
        high = self._code() if self._takes("\\") else self._one()
        if high < low:
            raise re.error(f"bad character range {low}-{high}", self._text, self._at)
        return frozenset(one for one in TOPIC_CHARS if low <= one <= high)

    def _code(self) -> str:
        """The character that an escape within a class stands for."""
        if match := _CODE.match(self._text, self._at):
            self._at = match.end()
            digits = next(filter(None, match.groups()))
            return self._char(digits, 8 if match[4] else 16)
        one = self._one()
        if one in _CONTROLS:
            return _CONTROLS[one]
        if one.isascii() and one.isalpha():
            raise re.error(f"bad escape \\{one}", self._text, self._at - 2)
        return one

    def _char(self, digits: str, base: int) -> str:
        value = int(digits, base)
        if value > 0x10FFFF:
            raise re.error(f"there is no character {digits}", self._text, self._at)
        return chr(value)

    def _property(self) -> frozenset[str]:
        is_negated = self._one() == "P"
        match = _PROPERTY.match(self._text, self._at)
        if match is None:
            raise re.error("a property is written \\p{Name}", self._text, self._at)
        self._at = match.end()
        found = _having(match[1] or match[2] or "")
        if found is None:
            raise re.error(f"unknown property {match[0]}", self._text, match.start())
        return TOPIC_CHARS - found if is_negated else found

    def _quoted(self) -> str:
        quoted, _, _ = self._text[self._at :].partition("\\E")
        self._at += len(quoted) + 2
        return quoted

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _takes(self, what: str) -> bool:
        if not self._text.startswith(what, self._at):
            return False
        self._at += len(what)
        return True

    def _one(self) -> str:
        if self._at >= len(self._text):
            raise re.error("the pattern ends too early", self._text, len(self._text))
        self._at += 1
        return self._text[self._at - 1]


def _having(name: str) -> frozenset[str] | None:
    """Of the 65 those with a property; None if unknown."""
    name = re.sub(r"^(?:general_category|gc|script|sc|block|blk)=", "", name, flags=re.IGNORECASE)
    category = name.removeprefix("Is")
    if _CATEGORY.fullmatch(category):
        return frozenset(one for one in TOPIC_CHARS if unicodedata.category(one).startswith(category))
    small = name.lower()
    small = _OTHER_NAMES.get(small) or _OTHER_NAMES.get(f"is{small}") or _OTHER_NAMES.get(f"in{small}") or small
    return frozenset(_POSIX[small]) if small in _POSIX else None


def _written(chars: frozenset[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(chars)))}]" if chars else _NEVER
