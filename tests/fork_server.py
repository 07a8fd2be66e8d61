"""Real ``klog`` processes without the second that Python takes to import klog: forked from one that has done so.

Run as ``python -m tests.fork_server DESCRIPTOR PADDING`` by `tests/processes.py`. Each request on the socket gives a
command line, a folder, an environment and descriptors; the answer is the child's process id. The child is a process
like any other: it has its own descriptors, signals, session and command line (as ``ps`` shows it), runs
``klog.__main__.main`` and ends as the interpreter ends. How it ended is written to a pipe of its own, for whoever
started it is not its parent.

The server has one thread, opens nothing that a child needs, and ends when the socket closes.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import selectors
import signal
import socket
import struct
import sys
import termios
import threading
from pathlib import Path
from typing import Any

NUMBER = struct.Struct("=i")
"""A child's process id."""

END = struct.Struct("=id")
"""How a child ended, as `os.wait4` tells it: status, and seconds of processor time."""

HEAD = struct.Struct("=I")
"""The length of the JSON that follows; the descriptors come with these bytes."""

DESCRIPTORS_MAX = 32
ASIDE = 500
"""Received descriptors are moved above this before they get their final numbers, so that none overwrites another."""

NAMES = ("<stdin>", "<stdout>", "<stderr>")

_PR_SET_MM, _PR_SET_MM_ARG_END = 35, 9


PACKAGES = ("admin", "cli", "client", "coordination", "export", "server", "tools")
NOT_BEFORE_A_FORK = ("pyarrow", "pyspark", "numpy", "matplotlib", "prompt_toolkit")
"""They start threads when they are imported, or are large and seldom needed."""


def import_klog() -> None:
    """All that brokers and most commands import; nothing of it starts a thread."""
    for package in PACKAGES:
        found = importlib.import_module(f"klog.{package}")
        for module in pkgutil.walk_packages(found.__path__, f"klog.{package}."):
            if module.name.rpartition(".")[2] != "__main__":
                _import_unless_heavy(module.name)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()


class _Refused(ImportError):
    pass


class _Gate:
    """A finder that refuses what is not to be imported here."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in NOT_BEFORE_A_FORK:
            raise _Refused(name)


def _import_unless_heavy(name: str) -> None:
    gate = _Gate()
    sys.meta_path.insert(0, gate)  # type: ignore[arg-type]
    try:
        importlib.import_module(name)
    except _Refused:
        pass
    finally:
        sys.meta_path.remove(gate)  # type: ignore[arg-type]


def serve(control: socket.socket) -> bool:
    """Fork until the socket closes (False). In a child: True, once it is what its request wants."""
    statuses: dict[int, int] = {}
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    _tell_the_dead(statuses)
                    continue
                request = _receive(control)
                if request is None:
                    return False
                fields, descriptors = request
                status = descriptors.pop()
                child = os.fork()
                if child == 0:
                    signal.set_wakeup_fd(-1)
                    answer = os.dup2(control.fileno(), ASIDE - 1, inheritable=False)
                    for open_one in (control, woken, wake, selector):
                        open_one.close()
                    for other in (status, *statuses.values()):
                        os.close(other)
                    become(fields, dict(zip(fields["descriptors"], descriptors, strict=True)))
                    os.write(answer, NUMBER.pack(os.getpid()))
                    os.close(answer)
                    return True
                statuses[child] = status
                for descriptor in descriptors:
                    os.close(descriptor)


def _tell_the_dead(statuses: dict[int, int]) -> None:
    while statuses:
        child, status, used = os.wait4(-1, os.WNOHANG)
        if not child:
            return
        pipe = statuses.pop(child)
        try:
            os.write(pipe, END.pack(status, used.ru_utime + used.ru_stime))
        except BrokenPipeError:
            pass  # nobody waits for it
        os.close(pipe)


def _receive(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    head, ancillary, _, _ = control.recvmsg(HEAD.size, socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize))
    if len(head) < HEAD.size:
        return None
    descriptors = array.array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    text = bytearray()
    (wanted,) = HEAD.unpack(head)
    while len(text) < wanted:
        text += control.recv(wanted - len(text))
    return json.loads(text), list(descriptors)


def become(request: dict[str, Any], descriptors: dict[int, int]) -> None:
    """In the child: take on all that the request gives; ``descriptors`` by the number that each gets."""
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["session"]:
        os.setsid()
    moved = {}
    for number, descriptor in descriptors.items():
        moved[number] = fcntl.fcntl(descriptor, fcntl.F_DUPFD, ASIDE)
        os.close(descriptor)
    for number in range(3):
        if number not in moved:
            os.close(number)
    for number, descriptor in moved.items():
        os.dup2(descriptor, number, inheritable=True)
        os.close(descriptor)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin = _stream(0, "r")
    sys.stdout = sys.__stdout__ = _stream(1, "w")
    sys.stderr = sys.__stderr__ = _stream(2, "w")
    words: list[str] = request["words"]
    command = [sys.executable, "-m", "klog", *words]
    sys.orig_argv[:] = command
    sys.argv[:] = [str(Path(__file__).parent.parent / "klog" / "__main__.py"), *words]
    _show(command)


def _stream(descriptor: int, mode: str) -> Any:
    """As Python opens its own; None where the descriptor is closed."""
    try:
        raw = open(descriptor, mode + "b", buffering=-1, closefd=False)  # noqa: SIM115
    except OSError:
        return None
    raw.raw.name = NAMES[descriptor]
    return io.TextIOWrapper(
        raw,
        encoding="utf-8",
        errors="backslashreplace" if descriptor == 2 else "surrogateescape",
        line_buffering=descriptor == 2 or raw.isatty(),
    )


def _show(command: list[str]) -> None:
    """What ``ps`` and klog itself read of this process in ``/proc/PID/cmdline``, in the place of the server's own."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    text = b"".join(os.fsencode(word) + b"\0" for word in command)
    if len(text) > end - begin:
        return
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, len(text))
    # Without the privilege for it the rest stays as empty words.
    ctypes.CDLL(None).prctl(_PR_SET_MM, _PR_SET_MM_ARG_END, ctypes.c_ulong(begin + len(text)), 0, 0)


def main() -> None:
    import_klog()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        control.sendall(NUMBER.pack(0))
        if not serve(control):
            return
    from klog.__main__ import main as klog

    sys.exit(klog())


if __name__ == "__main__":
    main()
