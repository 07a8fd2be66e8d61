"""TOML files that people write: read, checked against the keys that they may have, with errors that name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from klog.config.properties import read_text
from klog.errors import UsageError

KEY_PARTS_MAX: Final = 64
"""The parser takes memory by the square of a key's parts, 6.9 GB for 60,000."""
_TYPE_WORDS: Final = {str: "a string", bool: "true or false"}
_SECTION: Final = re.compile(r"""\s*\[\s*["']?([^\]"']*)["']?\s*\]""")


def read(path: Path) -> tuple[str, dict[str, Any]]:
    """A file's text, and what it says; empty where it does not exist. UsageError with its line."""
    try:
        text = read_text(path)
    except FileNotFoundError:
        return "", {}
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {error}") from None
    return text, parse(path, text)


def parse(path: Path, text: str) -> dict[str, Any]:
    """What the text of the file says."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.partition("=")[0].count(".") > KEY_PARTS_MAX:
            raise UsageError(f"{path}, line {number}: a key has more than {KEY_PARTS_MAX} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: brackets are nested too deep") from None


def check(
    path: Path,
    text: str,
    section: str | None,
    values: Mapping[str, Any],
    types: Mapping[str, type],
    words: Mapping[str, Sequence[str]],
) -> None:
    """UsageError for a key that is not among ``types``, and for a value of another type, or none of its ``words``."""
    for key, value in values.items():
        wanted = types.get(key)
        if wanted is None:
            raise wrong(path, text, section, key, f"is not a known key; known: {', '.join(types)}")
        if not isinstance(value, wanted):
            raise wrong(path, text, section, key, f"must be {_TYPE_WORDS[wanted]}, got {value!r}")
        if key in words and value not in words[key]:
            raise wrong(path, text, section, key, f"must be one of {', '.join(words[key])}, got {value!r}")


def wrong(path: Path, text: str, section: str | None, key: str | None, what: str) -> UsageError:
    """The error of a section or a key, with its line."""
    line = line_of(text, section, key)
    where = f"{path}, line {line}" if line else str(path)
    subject = " ".join(part for part in (f"[{section}]" if section else "", key or "") if part)
    return UsageError(f"{where}: {subject} {what}")


def line_of(text: str, section: str | None, key: str | None) -> int | None:
    """The line of a section's head, or of a key in it; None where TOML writes it in a way that is not looked for."""
    inside: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        head = _SECTION.match(line)
        if head is not None:
            inside = head[1].strip()
            if key is None and inside == section:
                return number
        elif key is not None and inside == section and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", line):
            return number
    return None
