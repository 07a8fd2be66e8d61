"""How rows meet the screen: through a pager where they are longer."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from klog.cli.interrupt import left_to_child
from klog.render import Format, Report, render

NOT_FOUND = 127
"""What ``sh`` exits with where there is no such command."""

_COLLECTED = frozenset({Format.TABLE, Format.WIDE, Format.JSON, Format.YAML})
"""Formats that are read as a whole. The others are shown line by line, as their rows come."""


class _Terminal(io.StringIO):
    """Text for a terminal, looked at before it goes there."""

    def isatty(self) -> bool:
        return True


class Screen:
    """The terminal of a shell. Used by the shell's thread."""

    def __init__(self, *, pager: str = "", size: Callable[[], os.terminal_size] = shutil.get_terminal_size) -> None:
        self.pager = pager
        self._size = size

    def takes(self, form: Format) -> bool:
        """Whether a report of this format is shown here."""
        return form in _COLLECTED

    def show(self, report: Report, form: Format, *, header: bool) -> bool:
        """Show a report; whether any of its rows had failed."""
        out = _Terminal()
        failed = render(report, form, out, header=header, terminal=True)
        self.write(out.getvalue())
        return failed

    def write(self, text: str) -> None:
        """Show text, through the pager where it has more lines than the screen."""
        if self.pager and text.count("\n") >= self._size().lines - 1:
            self._page(text)
        else:
            sys.stdout.write(text)
            sys.stdout.flush()

    def _page(self, text: str) -> None:
        sys.stdout.flush()
        with left_to_child():
            secure = {**os.environ, "LESSSECURE": "1"}  # what is shown may come from strangers: nothing runs or writes
            process = subprocess.Popen(["sh", "-c", self.pager], stdin=subprocess.PIPE, env=secure)
            assert process.stdin is not None
            try:
                process.stdin.write(text.encode("utf-8", "backslashreplace"))
                process.stdin.close()
            except BrokenPipeError:
                pass  # left before the end
            process.wait()
        if process.returncode == NOT_FOUND:  # which sh has said
            sys.stdout.write(text)
            sys.stdout.flush()

    @contextmanager
    def without_pages(self) -> Iterator[None]:
        """While inside, everything goes to the screen at once."""
        before, self.pager = self.pager, ""
        try:
            yield
        finally:
            self.pager = before
