"""The processes that the demo keeps running: each a klog command with a log file, started again where it ends.

What runs is noted in ``DIR/parts.json``, so that the guard (`bench.figure3.guard`) can end it after a kill -9 of
the demo itself. Clusters are not parts: `klog.admin.local_cluster` knows what it has started.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from klog.coordination.process import ProcessId, python_command

AGAIN_S: Final = 1.0
"""Between the end of a part and its next start."""
STOP_S: Final = 30.0
"""A batch of Spark's may be in hand."""
LINE_BYTES_MAX: Final = 1 << 16

Lines = Callable[[bytes], None]
"""Is given what a part writes to stdout, in the part's own thread, as it comes: not whole lines."""


class Notes:
    """``parts.json``: which processes run now. Any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._running: dict[str, ProcessId] = {}

    def enter(self, name: str, identity: ProcessId | None) -> None:
        """None: it has ended."""
        with self._lock:
            if identity is None:
                self._running.pop(name, None)
            else:
                self._running[name] = identity
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps({one: [it.pid, it.started] for one, it in self._running.items()}))
            part.replace(self._path)


def noted(path: Path) -> list[ProcessId]:
    """What `Notes` has written; [] where it is not there or cut off."""
    try:
        return [ProcessId(int(pid), str(started)) for pid, started in json.loads(path.read_text("utf-8")).values()]
    except (OSError, ValueError, TypeError, AttributeError):
        return []


class Part:
    """One command. `start` and `stop` by one thread; the rest by any."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        folder: Path,
        notes: Notes,
        *,
        stdin: int = subprocess.DEVNULL,
        output: Lines | None = None,
        again: bool = True,
    ) -> None:
        """``words`` behind ``klog``. ``output``: takes stdout, else it is in the log. ``again``: start it again."""
        self.name = name
        self.words = tuple(words)
        self.log_file = folder / f"{name}.log"
        self.starts = 0
        self.code: int | None = None
        """Of the last end."""
        self._notes = notes
        self._stdin = stdin
        self._output = output
        self._again = again
        self._folder = folder
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._orphans: list[psutil.Process] = []

    def start(self) -> Part:
        self._spawn()
        self._keeper = threading.Thread(target=self._keep, name=f"klog-{self.name}", daemon=True)
        self._keeper.start()
        return self

    def _spawn(self) -> subprocess.Popen[bytes]:
        command, environment = python_command("klog", *self.words)
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=self._stdin,
                stdout=log if self._output is None else subprocess.PIPE,
                stderr=log,
                cwd=self._folder,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the demo alone, which stops its parts in order
            )
        self._process = process
        self.starts += 1
        self._notes.enter(self.name, ProcessId.of(process.pid))
        return process

    def _keep(self) -> None:
        """Until it is stopped: read what it writes, and start it again where it has ended."""
        while True:
            process = self._process
            assert process is not None
            if self._output is not None and process.stdout is not None:
                while chunk := process.stdout.read1(LINE_BYTES_MAX):  # type: ignore[attr-defined]
                    self._output(chunk)
                process.stdout.close()
            self.code = process.wait()
            self._notes.enter(self.name, None)
            if not self._again or self._stopping.wait(AGAIN_S):
                return
            with self._lock:
                if self._stopping.is_set():
                    return
                self._spawn()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def is_ended(self) -> bool:
        """It was stopped, and does not run for that reason."""
        return self._stopping.is_set()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended for good; of a part that is not started again."""
        assert self._keeper is not None
        self._keeper.join(timeout_s)
        return not self._keeper.is_alive()

    def below(self) -> list[psutil.Process]:
        """Its JVM, and Spark's Python workers."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def send(self, number: signal.Signals) -> bool:
        """False where it does not run now."""
        if not self.is_running:
            return False
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
            return True
        return False

    def kill(self) -> bool:
        """-9, as `send`. What is below it ends by itself a little later; `stop` makes sure."""
        self._orphans += self.below()
        return self.send(signal.SIGKILL)

    def ask_to_stop(self) -> None:
        """SIGTERM; `stop` waits. It is not started again from now on."""
        with self._lock:
            self._stopping.set()
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Ended in order, or killed after that time; with everything below it."""
        if self._keeper is None:
            return
        below = [*self.below(), *self._orphans]
        self.ask_to_stop()
        if not self.wait(timeout_s):
            self.send(signal.SIGKILL)
            self._keeper.join(timeout_s)
        end_all(below, 2.0)


def end_all(processes: Sequence[psutil.Process], timeout_s: float) -> None:
    """Those that have not ended by themselves within that time are killed."""
    _, left = psutil.wait_procs(processes, timeout_s)
    for one in left:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(left, timeout_s)


def is_paused(pid: int) -> bool:
    """By SIGSTOP."""
    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def write_all(descriptor: int, data: bytes, until_s: float) -> bytes:
    """Write to a non-blocking pipe; what could not be written until a moment of the monotonic clock.

    BrokenPipeError where its reader has ended.
    """
    left = data
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            wait_s = until_s - time.monotonic()
            if wait_s <= 0 or not select.select((), (descriptor,), (), wait_s)[1]:
                return left
    return left
