"""Processes of ``klog`` for tests: forked by this worker's `tests.fork_server`, or started cold, with the same result.

`klog_process` is `subprocess.Popen` of ``python -m klog WORDS``. It forks where that is the same to the process: what
gives its own ``preexec_fn`` or another Python environment, and what asks for a cold start, is started by Python.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fork_server import END, HEAD, NUMBER

ROOT = Path(__file__).resolve().parent.parent
KLOG = [sys.executable, "-m", "klog"]
"""The command, started cold."""
PADDING = "-" * 1_000
"""The room for the command lines of children: they are shown where the server's own is."""

ENVIRONMENT = dict(os.environ)
"""As no test has changed it: the server is started by whichever needs a process first."""

COLD = "KLOG_TEST_COLD"
"""In the environment: every process is started cold (coverage follows no fork)."""

READ_AT_START = (
    *(
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONIOENCODING",
        "PYTHONUTF8",
        "PYTHONOPTIMIZE",
        "PYTHONWARNINGS",
        "PYTHONDEVMODE",
    ),
    *("PYTHONUNBUFFERED", "LC_", "LANG", "LD_", "COVERAGE", "MALLOC_"),
)
"""Variables that Python, the C library or the linker read once: where they differ, only a cold start heeds them."""


class ForkServer:
    """The server of this process. Thread-safe: one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        self.environment = ENVIRONMENT
        command = [sys.executable, "-m", "tests.fork_server", str(theirs.fileno()), PADDING]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), env=ENVIRONMENT
        )
        theirs.close()
        if not self._control.recv(NUMBER.size):
            raise AssertionError("the fork server did not start; its error is on stderr")

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        """The process id of a child with this request."""
        text = json.dumps(request).encode()
        sent = array.array("i", descriptors)
        with self._lock:
            self._control.sendmsg([HEAD.pack(len(text))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
            self._control.sendall(text)
            answer = self._control.recv(NUMBER.size, socket.MSG_WAITALL)
        child: int = NUMBER.unpack(answer)[0]
        return child

    def close(self) -> None:
        self._control.close()
        self._process.wait()


_server: list[ForkServer] = []
_starting = threading.Lock()


def fork_server() -> ForkServer:
    """This process's own, started at the first call."""
    with _starting:
        if not _server:
            _server.append(ForkServer())
            atexit.register(_server[0].close)
        return _server[0]


_used_s: list[float] = []


def cpu_s() -> float:
    """Processor time of all forked processes that have been waited for."""
    return sum(_used_s)


class ForkedProcess(subprocess.Popen[Any]):
    """`subprocess.Popen` of a child of the fork server, which is waited for by its status pipe.

    Of the class's inner methods those are replaced that start, poll and wait (CPython 3.11 to 3.14 have them alike).
    """

    _status: int = -1

    def __init__(self, words: Sequence[str], *, terminal: bool = False, **options: Any) -> None:
        self._terminal = terminal
        super().__init__([sys.executable, "-m", "klog", *words], **options)

    def _execute_child(  # type: ignore[override]
        self,
        args: Sequence[str],
        executable: object,
        preexec_fn: object,
        close_fds: bool,
        pass_fds: Sequence[int],
        cwd: str | Path | None,
        env: Mapping[str, str] | None,
        startupinfo: object,
        creationflags: int,
        shell: bool,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        restore_signals: bool,
        gid: object,
        gids: object,
        uid: object,
        umask: int,
        start_new_session: bool,
        process_group: int = -1,
    ) -> None:
        given = {0: p2cread, 1: c2pwrite, 2: errwrite}
        numbers = {number: descriptor if descriptor >= 0 else number for number, descriptor in given.items()}
        numbers |= {descriptor: descriptor for descriptor in pass_fds}
        self._status, theirs = os.pipe()
        request = {
            "words": list(args[3:]),
            "folder": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "session": start_new_session,
            "terminal": self._terminal,
            "descriptors": list(numbers),
        }
        self.pid = fork_server().fork(request, [*numbers.values(), theirs])
        self._child_created = True
        os.close(theirs)
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: object, **__: object) -> int | None:  # type: ignore[override]
        if self._child_created and self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:  # another thread has waited
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags == os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        data = os.read(self._status, END.size)
        os.close(self._status)
        self._status = -1
        # Nothing: the server is gone, and has taken the status with it.
        status, used_s = END.unpack(data) if data else (int(signal.SIGKILL), 0.0)
        _used_s.append(used_s)
        return self.pid, status


def klog_process(
    words: Sequence[str],
    *,
    cold: bool = False,
    env: Mapping[str, str] | None = None,
    preexec_fn: Callable[[], None] | None = None,
    terminal: bool = False,
    **options: Any,
) -> subprocess.Popen[Any]:
    """``klog WORDS`` as a process. ``terminal``: stdin becomes its controlling terminal; with ``start_new_session``."""
    environment = dict(os.environ if env is None else env)
    if cold or preexec_fn is not None or COLD in os.environ or _is_another_python(environment):
        if terminal:
            preexec_fn = take_terminal
        command = [sys.executable, "-m", "klog", *words]
        return subprocess.Popen(command, env=environment, preexec_fn=preexec_fn, **options)  # noqa: PLW1509
    return ForkedProcess(words, terminal=terminal, env=environment, **options)


def _is_another_python(environment: Mapping[str, str]) -> bool:
    def read_at_start(of: Mapping[str, str]) -> dict[str, str]:
        found = {name: value for name, value in of.items() if name.startswith(READ_AT_START)}
        # Where klog is imported from; a Spark session adds it for its workers, to all that is started afterwards.
        paths = found.pop("PYTHONPATH", "").split(os.pathsep)
        return {**found, "PYTHONPATH": os.pathsep.join(path for path in paths if path not in ("", str(ROOT)))}

    return read_at_start(environment) != read_at_start(fork_server().environment)


def take_terminal() -> None:
    """In the child: stdin becomes the terminal whose Ctrl-C it gets."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
