"""Where in a TOML file something is written, for errors that name the line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from klog.errors import UsageError

_SECTION: Final = re.compile(r"""\s*\[\s*["']?([^\]"']*)["']?\s*\]""")


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
