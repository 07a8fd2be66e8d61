"""Clients of the bench in processes of their own: each tells what happens to it, with the time, and does as it is told.

One line an event, `<seconds> <word> <word>...`, by the machine's monotonic clock, which all processes share. A child
ends when its standard input does: none outlives the run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from bench.klog_system import REPOSITORY

LOOK_S = 0.002
WAIT_S = 60.0


class ChildFailed(Exception):
    """A child ended, or did not tell in time what was waited for; the message has the last lines that it said."""


class Event(NamedTuple):
    """`at`: seconds of the monotonic clock."""

    at: float
    words: tuple[str, ...]


class Child:
    """``python -m MODULE ARGUMENTS``. A context manager: killed at its end."""

    def __init__(self, module: str, *arguments: object, log: Path) -> None:
        self.events: list[Event] = []
        self._name = " ".join(map(str, (module, *arguments)))
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C is the bench's to handle, in order
            )
        self._hearing = threading.Thread(target=self._hear, name=f"hears {module}", daemon=True)
        self._hearing.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at, *words = line.split()
            self.events.append(Event(float(at), tuple(words)))

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def last(self, word: str) -> Event | None:
        """The newest event of that name."""
        return next((one for one in reversed(self.events) if one.words[0] == word), None)

    def wait_for(self, word: str, timeout_s: float = WAIT_S) -> Event:
        """The newest event of that name, once there is one."""
        wait_until(lambda: self.last(word), f"{word!r}", [self], timeout_s)
        found = self.last(word)
        assert found is not None
        return found

    def kill(self) -> float:
        """kill -9; when, by the monotonic clock."""
        at = time.monotonic()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._hearing.join()
        return at

    def check(self) -> None:
        """ChildFailed once it has ended."""
        if (code := self._process.poll()) is not None:
            said = " / ".join(self._log.read_text(errors="replace").splitlines()[-4:])
            raise ChildFailed(f"{self._name} exited with {code}: {said}")


def wait_until(held: Callable[[], object], what: str, children: Sequence[Child], timeout_s: float = WAIT_S) -> None:
    """Until it holds; ChildFailed when one of them ends or the time is over."""
    deadline = time.monotonic() + timeout_s
    while not held():
        for child in children:
            child.check()
        if time.monotonic() > deadline:
            raise ChildFailed(f"not within {timeout_s:g} s: {what}; last told: {[one.events[-2:] for one in children]}")
        time.sleep(LOOK_S)


# --- In the child -----------------------------------------------------------------------------------------------------

_TELLING = threading.Lock()


def tell(*words: object) -> None:
    """An event, now. From any thread."""
    line = f"{time.monotonic():.6f} {' '.join(map(str, words))}\n"
    with _TELLING:
        sys.stdout.write(line)
        sys.stdout.flush()


def told() -> Iterator[list[str]]:
    """The words of each line that is said to this child; at the end of them it is to end."""
    for line in sys.stdin:
        yield line.split()
