"""The lines that were typed, in a file of klog's home folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory


class QuietHistory(FileHistory):
    """A history that leaves out lines beginning with a space, for secrets.

    Where the file cannot be read or written the shell works on, and remembers as long as it lives.
    """

    def append_string(self, string: str) -> None:
        if not string.startswith(" "):
            super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        try:
            Path(os.fsdecode(self.filename)).parent.mkdir(parents=True, exist_ok=True)
            super().store_string(string)
        except OSError:
            pass
