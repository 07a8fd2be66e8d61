"""Files of properties, as Kafka's server.properties is written.

Rules (those of Java's Properties, without its escapes for other alphabets, for the files are UTF-8):

* a line whose first visible character is ``#`` or ``!`` is a comment, an empty one is nothing;
* the key ends at the first ``=`` or ``:``, or at white space; white space around key and separator does not
  count, and neither does white space at the end of a value (Java keeps it, always by accident);
* a line that ends in an odd number of backslashes goes on in the next one, whose leading white space is dropped;
* a backslash takes the next character as it is; ``t n r f`` behind it are tab, line feed, return and form feed, and
  ``uXXXX`` is a character by its number.
"""

from __future__ import annotations

import io
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from pathlib import Path

from klog.errors import InvalidConfig, NoSuchThing

_KEY = re.compile(r"((?:\\.|[^\\=:\s])+)\s*(?:[=:]\s*)?(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str, *, source: str = "the properties") -> dict[str, str]:
    """key -> value; the last of equal keys wins, as in Java. Raises InvalidConfig with ``source`` and the line."""
    properties = {}
    for number, line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        if match is None:
            # The line is not shown: it may have a secret.
            raise InvalidConfig(f"{source}, line {number} has no key; expected key=value")
        key, value = match.groups()
        properties[_unescape(key)] = _unescape(value.rstrip())
    return properties


def read_properties(path: str | Path) -> dict[str, str]:
    """The properties of a file. Raises NoSuchThing if it cannot be read."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise NoSuchThing(f"cannot read the settings in {path}: {reason}") from None
    return parse_properties(text, source=str(path))


def read_text(path: str | Path, errors: str = "strict") -> str:
    """The text of a file, with or without a byte order mark. Raises OSError, UnicodeDecodeError."""
    return decoded(Path(path).read_bytes(), errors)


def decoded(content: bytes, errors: str = "strict") -> str:
    """UTF-8 with or without a byte order mark, or UTF-16 with one; ends of lines become newlines. Raises
    UnicodeDecodeError."""
    encoding = "utf-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig"
    return io.StringIO(content.decode(encoding, errors), newline=None).getvalue()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of its first line, joined line) of each line that is not empty or a comment."""
    joined, began = "", 0
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        stripped = line.lstrip()
        if not joined:
            if not stripped or stripped[0] in "#!":
                continue
            began = number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            joined += stripped[:-1]
            continue
        joined += stripped
        if joined:
            yield began, joined
        joined = ""
    if joined:
        yield began, joined


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    letter = match[1]
    if len(letter) == 5:
        return chr(int(letter[1:], 16))
    return _LETTERS.get(letter, letter)
