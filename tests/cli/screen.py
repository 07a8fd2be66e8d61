"""``klog`` on a terminal whose screen can be looked at: what a person sees of a program that draws all of it."""

from __future__ import annotations

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

import pyte

from tests.cli.process import started, take_terminal

WAIT_S = 20.0


class ScreenOf:
    """The screen of a process, drawn by pyte as a terminal would."""

    def __init__(self, descriptor: int, columns: int, rows: int) -> None:
        self._descriptor = descriptor
        self.raw = b""
        self._screen = pyte.Screen(columns, rows)
        self._screen.write_process_input = lambda text: os.write(descriptor, text.encode())
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """As a person does to the window; the process gets SIGWINCH."""
        self._screen.resize(rows, columns)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, wanted: str | Callable[[str], object], timeout_s: float = WAIT_S) -> str:
        """The screen, once it has this text, or the condition holds."""
        holds = (lambda text: wanted in text) if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + timeout_s
        while not holds(self.text):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._descriptor], [], [], left_s)[0]:
                raise AssertionError(f"{wanted!r} did not appear; the screen shows:\n{self.text}")
            self._read(f"{wanted!r} did not appear; the process has ended. The screen shows:\n{self.text}")
        return self.text

    def read_to_end(self, process: subprocess.Popen[bytes]) -> int:
        """Until the process has let go of the terminal; its exit code."""
        try:
            while True:
                self._read("end")
        except AssertionError:
            return process.wait(WAIT_S)

    def _read(self, trouble: str) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # EIO: the other end is closed
            data = b""
        if not data:
            raise AssertionError(trouble)
        self.raw += data
        self._stream.feed(data)


@contextmanager
def on_screen(
    *words: str, columns: int = 80, rows: int = 24, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], ScreenOf]]:
    """``klog WORDS`` on a terminal of this size, as its controlling one."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    with started(
        *words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_terminal,
        env={**os.environ, "TERM": "xterm-256color", **environment},
    ) as process:
        os.close(theirs)
        try:
            yield process, ScreenOf(ours, columns, rows)
        finally:
            os.close(ours)
