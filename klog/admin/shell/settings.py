"""``shell.toml`` in klog's home folder: how the shell looks, its aliases and its named commands::

    pager = "less -SRXF"      # "" shows everything at once
    complete = true           # offer completions while typing; otherwise with Tab only
    suggest = true            # the rest of the line from the history, in grey
    toolbar = true
    refresh = "5s"            # of the prompt and the toolbar
    editing = "emacs"         # or vi

    [aliases]
    tl = "topic list"

    [named]
    behind = "lag $1 --only-lagging --sort lag"

An unknown key and a value of another type are errors with the line.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from klog.admin.toml_lines import wrong
from klog.config.text_files import read_text
from klog.config.units import parse_duration_ms
from klog.errors import KlogError, UsageError

FILE: Final = "shell.toml"
PAGER: Final = "less -SRXF"
REFRESH_S_MIN: Final = 1.0
"""Below that the toolbar would cost the brokers more than it says."""

ALIASES: Final = "aliases"
NAMED: Final = "named"
_TYPES: Final[Mapping[str, type]] = {
    "pager": str,
    "complete": bool,
    "suggest": bool,
    "toolbar": bool,
    "refresh": str,
    "editing": str,
}
_WORDS: Final = {"editing": ("emacs", "vi")}
_TYPE_WORDS: Final = {str: "a string", bool: "true or false"}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """What the file says. ``aliases`` and ``named`` change while the shell runs, and the file with them."""

    path: Path | None = None
    pager: str = PAGER
    complete: bool = True
    suggest: bool = True
    toolbar: bool = True
    refresh_s: float = 5.0
    editing: Literal["emacs", "vi"] = "emacs"
    aliases: dict[str, str] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)

    def save(self, section: Literal["aliases", "named"], name: str, text: str | None) -> None:
        """Keep a name's text, in the file too; None removes it. UsageError for what cannot be a name."""
        if _NAME.fullmatch(name) is None:
            raise UsageError(f"{name!r} cannot be a name here: letters, digits, '_' and '-'")
        known = self.aliases if section == ALIASES else self.named
        if text is None:
            known.pop(name, None)
        else:
            known[name] = text
        if self.path is not None:
            _write(self.path, section, name, text)


def load(path: Path) -> ShellSettings:
    """The file's settings; the defaults where it does not exist. UsageError with its line."""
    try:
        text = read_text(path)
        document = tomllib.loads(text)
    except FileNotFoundError:
        return ShellSettings(path)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: brackets are nested too deep") from None
    aliases, named = (_texts(path, text, section, document.pop(section, {})) for section in (ALIASES, NAMED))
    for key, value in document.items():
        wanted = _TYPES.get(key)
        if wanted is None:
            raise wrong(path, text, None, key, f"is not a known key; known: {', '.join(_TYPES)}, [aliases], [named]")
        if not isinstance(value, wanted):
            raise wrong(path, text, None, key, f"must be {_TYPE_WORDS[wanted]}, got {value!r}")
        if key in _WORDS and value not in _WORDS[key]:
            raise wrong(path, text, None, key, f"must be one of {', '.join(_WORDS[key])}, got {value!r}")
    refresh_s = _refresh(path, text, document.pop("refresh", "5s"))
    return ShellSettings(path, refresh_s=refresh_s, aliases=aliases, named=named, **document)


def _refresh(path: Path, text: str, word: str) -> float:
    try:
        found = parse_duration_ms(word) / 1000
    except KlogError as error:
        raise wrong(path, text, None, "refresh", f"must be a duration: {error.message}") from None
    if found < REFRESH_S_MIN:
        raise wrong(path, text, None, "refresh", f"must be at least {REFRESH_S_MIN:g}s, got {word!r}")
    return found


def _texts(path: Path, text: str, section: str, values: Any) -> dict[str, str]:
    if not isinstance(values, dict):
        raise wrong(path, text, None, section, f"must be a section [{section}], got {values!r}")
    for name, value in values.items():
        if not isinstance(value, str):
            raise wrong(path, text, section, name, f"must be a string, got {value!r}")
        if _NAME.fullmatch(name) is None:
            raise wrong(path, text, section, name, "must have letters, digits, '_' and '-' only")
    return dict(values)


def _write(path: Path, section: str, name: str, text: str | None) -> None:
    """Change one line of the file, whose comments stay. Whole or not at all."""
    import tomlkit

    document = tomlkit.parse(read_text(path) if path.exists() else "")
    if section not in document:
        document[section] = {}
    inside: Any = document[section]
    if text is None:
        inside.pop(name, None)
    else:
        inside[name] = text
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(tomlkit.dumps(document), "utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
