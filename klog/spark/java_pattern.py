"""Regular expressions as Java writes them, which ``subscribePattern`` is in Spark's connector, for Python's `re`.

Most of both languages is the same. What Python lacks is rewritten: properties (``\\p{Lower}``), classes within classes
and their intersections (``[a-z&&[^aeiou]]``), quotations (``\\Q...\\E``), Java's way of naming groups, flags in the
middle (``a(?i)b``). All names of topics are made of 65 characters, so a property or a class is written out as those of
the 65 that it has. The few things that Java takes and this does not (a repeated ``^``, a group named before it is
there, classes of classes with ``^`` under ``(?i)``, comments) are errors: a pattern never means something else here.
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
_OF_JAVA: Final = re.compile(r"\[|&&|\\[pPQhHvVxce]|\\[dDwWsS]-[^\]]")
"""What makes a class one that Python has no words for, or other ones."""
_PROPERTY: Final = re.compile(r"\{([^{}]*)\}|([A-Z])")
_CODE: Final = re.compile(r"x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|0([0-7]{1,3})")
_FLAGS_OF_GROUP: Final = re.compile(r"(?P<on>[a-zA-Z]*)(?:-(?P<off>[a-zA-Z]*))?:")
_FLAGS: Final = re.compile(r"\(\?(?P<on>[idmsuxU]*)(?:-(?P<off>[idmsuxU]*))?\)")
_HEAD: Final = re.compile(r"<(?P<name>[A-Za-z][A-Za-z0-9]*)>|<[=!]|[=!>]|[idmsuxU]*(?:-[idmsuxU]*)?:")
_TIMES: Final = re.compile(r"\{\d+(?:,\d*)?\}")
_ANY_CASE: Final = re.compile(r"\(\?[a-zA-Z]*i")
_COMMENTS: Final = re.compile(r"\(\?[a-zA-Z]*x")
_OF_PYTHON: Final = "imsx"
"""Flags that mean something for names of topics: lines end in none of them, and all their characters are ASCII."""
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_NEVER: Final = r"[^\s\S]"
_ANY: Final = r"[\s\S]"
_ESCAPES: Final = {
    "h": _NEVER,
    "H": _ANY,
    "v": _NEVER,
    "V": _ANY,
    "R": _NEVER,
    "X": _ANY,
    "e": _NEVER,
    "G": r"\A",
    "z": r"\Z",
    "Z": r"\Z",
}
"""Of Java alone, or other ones in Python, as they are for names of topics."""


def compiled(text: str) -> re.Pattern[str]:
    """The pattern, to be matched with whole names of topics. `re.error` for what neither language knows."""
    if "#" in text and _COMMENTS.search(text):
        raise re.error("a pattern with (?x) and # in it is not read here", text, text.index("#"))
    return re.compile(_Translation(text).all())


class _Translation:
    """One walk over the text, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def all(self) -> str:
        found = self._body()
        while self._takes(")"):  # one too many, which `re` says best
            found += ")" + self._body()
        return found

    def _body(self) -> str:
        """What a group holds, or the whole text. A flag counts from where it stands to the end of its group.

        Python has flags in a group's head alone: a group of its own begins there, and ends and begins again at each
        ``|``, which would otherwise divide less than it does.
        """
        found: list[str] = []
        heads: list[str] = []
        while self._at < len(self._text) and self._peek() != ")":
            if self._takes("|"):
                found.append(")" * len(heads) + "|" + "".join(heads))
            elif match := _FLAGS.match(self._text, self._at):
                self._at = match.end()
                heads.append(_head(match))
                found.append(heads[-1])
            else:
                found.append(self._next())
        return "".join(found) + ")" * len(heads)

    def _next(self) -> str:
        if self._takes("\\"):
            return self._escaped()
        if self._takes("["):
            began = self._at - 1
            chars = self._class()
            written = self._text[began : self._at]
            # As it stands where Python reads it alike: what (?i) means for a class depends on how it is written.
            if not _OF_JAVA.search(written, 1):
                return written
            if "^" in written and _ANY_CASE.search(self._text):
                raise re.error("(?i) and a class of classes with ^ do not go together here", self._text, began)
            return _written(chars)
        if self._takes("("):
            return self._group()
        if self._peek() == "{":
            match = _TIMES.match(self._text, self._at)
            if match is None:
                raise re.error("not a number of repetitions; a brace itself is \\{", self._text, self._at)
            self._at = match.end()
            return match[0]
        return self._one()

    def _group(self) -> str:
        """A group, behind its first parenthesis, and the walk behind its last."""
        began = self._at - 1
        head = "("
        if self._takes("?"):
            match = _HEAD.match(self._text, self._at)
            if match is None:
                raise re.error("unknown group", self._text, began)
            self._at = match.end()
            flags = _FLAGS_OF_GROUP.fullmatch(match[0])
            head = _head(flags) if flags else "(?" + match[0]
            if match["name"]:
                head = f"(?P<{match['name']}>"
        body = self._body()
        if not self._takes(")"):
            raise re.error("missing ), unterminated group", self._text, began)
        return head + body + ")"

    def _escaped(self) -> str:
        """What follows a backslash, outside of a class."""
        if self._takes("Q"):
            return re.escape(self._quoted())
        if self._peek() in ("p", "P"):
            return _written(self._property())
        for letter, meant in _ESCAPES.items():
            if self._takes(letter):
                return meant
        if self._takes("k<"):
            name, _, _ = self._text[self._at :].partition(">")
            self._at += len(name) + 1
            return f"(?P={name})"
        if self._takes("c"):
            return re.escape(chr(ord(self._one()) ^ 64))
        if self._text.startswith("x{", self._at) or self._peek() == "0":
            return re.escape(self._code())
        return "\\" + self._one()

    def _class(self) -> frozenset[str]:
        """The characters of a class, behind its ``[``, and the walk behind its ``]``."""
        began = self._at - 1
        is_negated = self._takes("^")
        both = TOPIC_CHARS
        found: frozenset[str] = frozenset()
        first = True
        while self._takes("&&"):  # with nothing before it, it means nothing
            pass
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
        if one == "c":
            return chr(ord(self._one()) ^ 64)
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


def _head(flags: re.Match[str]) -> str:
    """The beginning of a group with these flags: a letter that is set and unset is unset, as in Java."""
    off = "".join(one for one in _OF_PYTHON if one in (flags["off"] or ""))
    on = "".join(one for one in _OF_PYTHON if one in flags["on"] and one not in off)
    return f"(?{on}{'-' if off else ''}{off}:"


def _written(chars: frozenset[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(chars)))}]" if chars else _NEVER
