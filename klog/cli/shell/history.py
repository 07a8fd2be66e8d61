"""The lines that were typed, in a file of klog's home folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.history import FileHistory

HIDDEN: Final = "***"
_GIVEN: Final = re.compile(
    r"""(?:password|jaas[._]config|(?:keystore|private)[._]key|key[._]pem|client_?secret|access_?token)["']?\s*[=:](?=\s*[^\s*])""",
    re.IGNORECASE,
)
"""By the names of settings, Kafka's and those of profiles."""


def without_secrets(line: str) -> str:
    """The line up to the first secret that it gives: quotes may be anywhere, and what follows may be a part of it.

    Nothing of klog's takes a secret from a line, but a person may type one all the same.
    """
    found = _GIVEN.search(line)
    return line if found is None else line[: found.end()] + HIDDEN


class QuietHistory(FileHistory):
    """A history that leaves out lines beginning with a space, and secrets that a line gives. Its file is the user's.

    Where the file cannot be read or written the shell works on, and remembers as long as it lives.
    """

    def append_string(self, string: str) -> None:
        if not string.startswith(" "):
            super().append_string(without_secrets(string))

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        try:
            path = Path(os.fsdecode(self.filename))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            path.chmod(0o600)
            super().store_string(string)
        except OSError:
            pass
