"""The lines that were typed, in a file of klog's home folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory

from klog.admin.shell.secrets import without_secrets


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
