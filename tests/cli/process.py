"""``klog`` as a process of its own, on pipes or on a terminal; ended by its id whatever the test did."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyte

from tests.processes import ROOT, klog_process


@contextmanager
def started(*words: str, **keywords: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A running ``klog WORDS`` with pipes for all three streams unless told otherwise; ``cold``: not forked."""
    options: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "cwd": ROOT,
        **keywords,
    }
    process = klog_process(words, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass


FULL = "/dev/full"
CLOSED_PIPE = "closed pipe"


@contextmanager
def unwritable(kind: str) -> Iterator[int]:
    """A descriptor that takes nothing."""
    if kind == FULL:
        descriptor = os.open(FULL, os.O_WRONLY)
    else:
        reader, descriptor = os.pipe()
        os.close(reader)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


ROWS, COLUMNS = 40, 200


class Shown:
    """What is on the screen of a terminal, drawn by pyte."""

    def __init__(self, screen: pyte.Screen) -> None:
        self._screen = screen

    @property
    def lines(self) -> list[str]:
        """The text of each row, without what is blank at its end."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def coloured(self, is_wanted: Callable[[str], bool]) -> list[str]:
        """The runs of characters that are shown in such a colour."""
        found = []
        for row in range(self._screen.lines):
            cells = [self._screen.buffer[row][column] for column in range(self._screen.columns)]
            marked = "".join(one.data if is_wanted(one.fg) else "\x00" for one in cells)
            found += [run for run in marked.split("\x00") if run.strip()]
        return found


class Terminal:
    """The person's end of a terminal that a process runs on.

    It answers where the cursor is; without that prompt_toolkit shows no toolbar.
    """

    def __init__(self, descriptor: int, rows: int = ROWS, columns: int = COLUMNS) -> None:
        self._descriptor = descriptor
        self.text = ""
        """Everything that was written to it."""
        self._drawn = pyte.Screen(columns, rows)
        self._drawn.write_process_input = self.type
        self._stream = pyte.Stream(self._drawn)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.screen = Shown(self._drawn)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """As a person does to the window; the process gets SIGWINCH."""
        self._drawn.resize(rows, columns)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, text: str, timeout_s: float = 20.0) -> str:
        """Everything shown so far, once ``text`` is in it."""
        self._read_until(lambda: text in self.text, timeout_s, text)
        return self.text

    def wait_until(self, shows: Callable[[Shown], bool], what: str, timeout_s: float = 20.0) -> Shown:
        """The screen, once it is so."""
        self._read_until(lambda: shows(self.screen), timeout_s, what)
        return self.screen

    def wait_to_show(self, text: str, timeout_s: float = 20.0) -> Shown:
        """The screen, once ``text`` is on it."""
        return self.wait_until(lambda screen: text in screen.text, text, timeout_s)

    def read_to_end(self, timeout_s: float = 20.0) -> str:
        """Everything shown until the process has let go of the terminal."""
        self._read_until(lambda: False, timeout_s, None)
        return self.text

    def _read_until(self, done: Callable[[], bool], timeout_s: float, wanted: str | None) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._descriptor], [], [], left_s)[0]:
                raise AssertionError(f"{wanted!r} did not appear; the terminal shows:\n{self.screen.text}")
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:  # EIO: the other end is closed
                data = b""
            if not data:
                if wanted is not None:
                    raise AssertionError(f"{wanted!r} did not appear; the terminal showed:\n{self.screen.text}")
                return
            text = self._decoder.decode(data)
            self.text += text
            self._stream.feed(text)


@contextmanager
def on_terminal(
    *words: str, rows: int = ROWS, columns: int = COLUMNS, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    """``klog WORDS`` with a terminal for all three streams, as its controlling one, so that Ctrl-C works."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    with started(
        *words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        terminal=True,
        env={**os.environ, "TERM": "xterm", **environment},
    ) as process:
        os.close(theirs)
        try:
            yield process, Terminal(ours, rows, columns)
        finally:
            os.close(ours)
