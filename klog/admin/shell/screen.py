"""How rows meet the screen: through a pager where they are longer, as blocks where they are wider."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from klog.admin.shell.pipe import interrupts_left_to_child
from klog.render import Format, Report, render
from klog.render.blocks import write_blocks

Expand = Literal["auto", "on", "off"]
"""Whether rows are blocks: where the table is wider than the screen, always, never."""

NOT_FOUND = 127
"""What ``sh`` exits with where there is no such command."""

_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_COLLECTED = frozenset({Format.TABLE, Format.WIDE, Format.JSON, Format.YAML})
"""Formats that are read as a whole. The others are shown line by line, as their rows come."""


class _Terminal(io.StringIO):
    """Text for a terminal, looked at before it goes there."""

    def isatty(self) -> bool:
        return True


class Screen:
    """The terminal of a shell. Used by the shell's thread."""

    def __init__(
        self,
        *,
        pager: str = "",
        expand: Expand = "auto",
        size: Callable[[], os.terminal_size] = shutil.get_terminal_size,
    ) -> None:
        self.pager = pager
        self.expand: Expand = expand
        self._size = size

    def takes(self, form: Format) -> bool:
        """Whether a report of this format is shown here."""
        return form in _COLLECTED

    def show(self, report: Report, form: Format, *, header: bool) -> bool:
        """Show a report; whether any of its rows had failed."""
        report = replace(report, rows=list(report.rows))
        text, failed = self._rendered(report, form, header)
        self.write(text)
        return failed

    def _rendered(self, report: Report, form: Format, header: bool) -> tuple[str, bool]:
        out, is_table = _Terminal(), form in (Format.TABLE, Format.WIDE)
        if not is_table or self.expand != "on":
            failed = render(report, form, out, header=header, terminal=True)
            text = out.getvalue()
            wider = max(map(len, _COLOUR.sub("", text).splitlines()), default=0) > self._size().columns
            if not (is_table and wider and self.expand == "auto"):
                return text, failed
        out = _Terminal()
        failed = write_blocks(report, out, wide=form is Format.WIDE)
        return out.getvalue(), failed

    def write(self, text: str) -> None:
        """Show text, through the pager where it has more lines than the screen."""
        if self.pager and text.count("\n") >= self._size().lines - 1:
            self._page(text)
        else:
            sys.stdout.write(text)
            sys.stdout.flush()

    def _page(self, text: str) -> None:
        sys.stdout.flush()
        with interrupts_left_to_child():
            process = subprocess.Popen(["sh", "-c", self.pager], stdin=subprocess.PIPE)
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
