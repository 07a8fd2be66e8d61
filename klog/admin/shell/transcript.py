r"""``\o FILE``: commands, and all that they show, in a file as well.

What a command writes passes through a terminal of the shell's own, so that it looks as it does without a transcript;
into pipes and files it passes through pipes. Colours are left out of the transcript, and secrets that a command gives.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from klog.admin.shell.secrets import without_secrets

CHUNK_BYTES = 65536
DRAIN_S = 1.0
"""How long the end of the output is waited for: a process that a command has left behind may hold it open."""

_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


class Transcript:
    """A file of what was done. Used by the shell's thread."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self._file: IO[bytes] | None = None

    def start(self, path: Path) -> None:
        """Go on at the end of this file. OSError where it cannot be written."""
        self.stop()
        self._file = path.expanduser().open("ab", buffering=0)
        self.path = path

    def stop(self) -> None:
        """Write no more."""
        if self._file is not None:
            self._file.close()
        self._file = self.path = None

    @contextmanager
    def recording(self, cluster: str, command: str) -> Iterator[None]:
        """While inside, stdout and stderr go into the file, too, if there is one."""
        if self._file is None:
            yield
            return
        when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._file.write(f"# {when} {cluster}\n> {without_secrets(command)}\n".encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
        sys.stderr.flush()
        copies = _on_terminal(self._file) if os.isatty(1) else _on_pipes(self._file)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for copy in copies:
                copy.end()


class _Copy:
    """Takes descriptors away, and copies what is written to them to where they led and to a file."""

    def __init__(self, taken: tuple[int, ...], ours: int, theirs: int, file: IO[bytes]) -> None:
        self._kept = [(descriptor, os.dup(descriptor)) for descriptor in taken]
        self._ours = ours
        self._file = file
        for descriptor in taken:
            os.dup2(theirs, descriptor)
        os.close(theirs)
        self._thread = threading.Thread(target=self._run, name="shell-transcript", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Give the descriptors back, once all that was written has been copied."""
        for descriptor, kept in self._kept:
            os.dup2(kept, descriptor)
        self._thread.join(DRAIN_S)
        if not self._thread.is_alive():
            for _, kept in self._kept:
                os.close(kept)

    def _run(self) -> None:
        rest = b""
        while True:
            try:
                data = os.read(self._ours, CHUNK_BYTES)
                os.write(self._kept[0][1], data)
            except OSError:  # the last writer has closed the terminal, or the reader its end: then writing fails
                data = b""
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            self._keep(b"".join(line + b"\n" for line in lines))
        os.close(self._ours)
        self._keep(rest)

    def _keep(self, data: bytes) -> None:
        try:
            self._file.write(_ESCAPES.sub(b"", data))
        except (OSError, ValueError):
            pass  # a full disk, or a transcript that has ended: the command goes on


def _on_terminal(file: IO[bytes]) -> list[_Copy]:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8)))
    return [_Copy((1, 2), ours, theirs, file)]


def _on_pipes(file: IO[bytes]) -> list[_Copy]:
    return [_Copy((descriptor,), *os.pipe(), file) for descriptor in (1, 2)]
