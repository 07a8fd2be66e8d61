"""A process that may outlive the one that started it: known by its id *and* its start time, as ids are reused.

Signals and waits go through a pidfd where the kernel has them: then the id cannot go to another process between the
check and the signal.

The start time of a known process is read from /proc and not by psutil. Most commands look at one or two processes,
which takes 0.4 ms; the import of psutil alone takes 20 to 50 ms. And psutil's time of creation follows the machine's
clock: after a correction of the clock, an older note would name another process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from klog.clock import SYSTEM_CLOCK, Clock

_PROC = Path("/proc")
_PACKAGES = Path(__file__).resolve().parents[2]
POLL_PAUSE_S = 0.02
"""Between two looks at a process where the kernel has no pidfd to wait on."""
_STOPPING = "klog stopping"
"""The name of a server's process from the moment on that it stops; `ps -o comm` shows it. It ends with the process."""
RESTART_CODE = 75
"""Exit code of a broker process that is to be started again at once."""


def python_command(module: str, *words: object) -> tuple[list[str], dict[str, str]]:
    """The words and the environment that run ``python -m MODULE WORDS`` from this installation.

    klog need not be installed. -P keeps the current folder out of the module search path.
    """
    path = os.pathsep.join(filter(None, (str(_PACKAGES), os.environ.get("PYTHONPATH"))))
    return [sys.executable, "-P", "-m", module, *map(str, words)], {**os.environ, "PYTHONPATH": path}


@dataclass(frozen=True, slots=True)
class ProcessId:
    """`started` is opaque: clock ticks since boot, and the boot's id."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """None if there is no such process, or only a zombie."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    def is_alive(self) -> bool:
        return _started(self.pid) == self.started

    def is_stopping(self) -> bool:
        """Whether it has called `show_stopping`."""
        try:
            return _PROC.joinpath(str(self.pid), "comm").read_text("utf-8", "replace").strip() == _STOPPING
        except OSError:
            return False

    def send(self, number: signal.Signals) -> bool:
        """False if the process is gone."""
        handle = self._open()
        if handle is None:
            return False
        try:
            if handle < 0:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            if handle >= 0:
                os.close(handle)

    def wait(self, timeout_s: float, clock: Clock = SYSTEM_CLOCK) -> bool:
        """True once it is gone, False after `timeout_s`."""
        handle = self._open()
        if handle is None:
            return True
        if handle >= 0:
            try:
                poll = select.poll()
                poll.register(handle, select.POLLIN)
                return bool(poll.poll(max(0.0, timeout_s) * 1000))
            finally:
                os.close(handle)
        deadline = clock.monotonic_s() + timeout_s
        while self.is_alive():
            if clock.monotonic_s() >= deadline:
                return False
            clock.sleep(POLL_PAUSE_S)
        return True

    def end(self, timeout_s: float) -> bool:
        """SIGTERM, wait, SIGKILL. True when it ended by itself within `timeout_s`."""
        self.send(signal.SIGTERM)
        if self.wait(timeout_s):
            return True
        self.send(signal.SIGKILL)
        self.wait(timeout_s)
        return False

    def _open(self) -> int | None:
        """A pidfd of exactly this process; -1 if the kernel has none; None if the process is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, NotImplementedError):
            return -1 if self.is_alive() else None
        except ProcessLookupError:
            return None
        except OSError:
            return -1 if self.is_alive() else None
        if self.is_alive():  # checked after the handle was opened, so the handle is this process's
            return handle
        os.close(handle)
        return None


def _started(pid: int) -> str | None:
    try:
        text = _PROC.joinpath(str(pid), "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # proc(5): the name in parentheses may hold anything, so count from behind it; state is field 3, starttime 22.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] == "X":
        return None
    if fields[0] == "Z" and _threads(pid) <= 1:
        return None
    return f"{fields[19]}@{_boot_id()}"


def _threads(pid: int) -> int:
    """The number of threads. A process is a zombie once its first thread has ended, but holds its files and locks until
    the last one ends; a thread in an fsync may take seconds."""
    try:
        return sum(1 for _ in _PROC.joinpath(str(pid), "task").iterdir())
    except OSError:
        return 0


def _boot_id() -> str:
    try:
        return _PROC.joinpath("sys/kernel/random/boot_id").read_text("ascii").strip()[:8]
    except OSError:
        return "-"


def show_stopping() -> None:
    """Say that this process stops, for `ProcessId.is_stopping`."""
    with contextlib.suppress(OSError):
        _PROC.joinpath("self/comm").write_text(_STOPPING, "ascii")


def record(pid_file: Path, identity: ProcessId) -> None:
    """Write a note of a process, for `recorded`."""
    pid_file.write_text(json.dumps({"pid": identity.pid, "started": identity.started}), encoding="ascii")


def recorded(pid_file: Path, *arguments: str) -> ProcessId | None:
    """The live process of a note, or, if the note is missing, stale or cut off, one with these arguments.

    Does not search if the note's folder does not exist: no process was ever started there.
    """
    try:
        fields = json.loads(pid_file.read_text("ascii"))
        identity = ProcessId(int(fields["pid"]), str(fields["started"]))
        if identity.is_alive():
            return identity
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return next(with_arguments(*arguments), None) if pid_file.parent.is_dir() else None


def with_arguments(*wanted: str) -> Iterator[ProcessId]:
    """Live processes that have each of these among their command-line arguments."""
    import psutil

    for one in psutil.process_iter(["cmdline"]):
        if set(wanted).issubset(one.info["cmdline"] or ()):
            found = ProcessId.of(one.pid)
            if found is not None:
                yield found
