"""``shell.toml`` in klog's home folder: how the shell looks::

    pager = "less -SRXF"      # "" shows everything at once
    complete = true           # offer completions while typing; otherwise with Tab only
    suggest = true            # the rest of the line from the history, in grey
    toolbar = true
    refresh = "5s"            # of the prompt and the toolbar
    editing = "emacs"         # or vi

An unknown key and a value of another type are errors with the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from klog.admin import toml_lines
from klog.admin.toml_lines import wrong
from klog.config.units import parse_duration_ms
from klog.errors import KlogError

FILE: Final = "shell.toml"
PAGER: Final = "less -SRXF"
REFRESH_S_MIN: Final = 1.0
"""Below that the toolbar would cost the brokers more than it says."""

_TYPES: Final[Mapping[str, type]] = {
    "pager": str,
    "complete": bool,
    "suggest": bool,
    "toolbar": bool,
    "refresh": str,
    "editing": str,
}
_WORDS: Final = {"editing": ("emacs", "vi")}


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """What the file says."""

    pager: str = PAGER
    complete: bool = True
    suggest: bool = True
    toolbar: bool = True
    refresh_s: float = 5.0
    editing: Literal["emacs", "vi"] = "emacs"


def load(path: Path) -> ShellSettings:
    """The file's settings; the defaults where it does not exist. UsageError with its line."""
    text, document = toml_lines.read(path)
    toml_lines.check(path, text, None, document, _TYPES, _WORDS)
    refresh_s = _refresh(path, text, document.pop("refresh", "5s"))
    return ShellSettings(refresh_s=refresh_s, **document)


def _refresh(path: Path, text: str, word: str) -> float:
    try:
        found = parse_duration_ms(word) / 1000
    except KlogError as error:
        raise wrong(path, text, None, "refresh", f"must be a duration: {error.message}") from None
    if found < REFRESH_S_MIN:
        raise wrong(path, text, None, "refresh", f"must be at least {REFRESH_S_MIN:g}s, got {word!r}")
    return found
