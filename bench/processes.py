"""Processes of the systems under measurement: started in a session of their own, weighed by psutil, ended by id."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

STOP_TIMEOUT_S = 20.0


class StartFailed(Exception):
    """A system did not answer in time, or ended; the message has the last lines of its log."""


class Process:
    """One child whose output goes to a file. Not thread-safe; `stop` and `kill` may be called twice."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,  # Ctrl-C is the bench's to handle, in order
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def stop(self) -> None:
        """Asks it to end, and kills it if it has not after STOP_TIMEOUT_S."""
        if self.running:
            self._child.terminate()
            try:
                self._child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        if self.running:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()

    def log_tail(self, lines: int = 8) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return "(no log)"


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time of the processes, children not counted; a process that is gone counts nothing."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
    return total


def resident_bytes(pids: Sequence[int]) -> int:
    """Resident memory of the processes, added up."""
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += psutil.Process(pid).memory_info().rss
    return total


def peak_resident_bytes(pids: Sequence[int]) -> int:
    """The most that each process ever had resident, added up: VmHWM, which psutil does not show on Linux."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    total += 1024 * int(line.split()[1])
    return total


def children(pid: int) -> list[int]:
    """Processes that this one started and that still run, their own children with them."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [one.pid for one in psutil.Process(pid).children(recursive=True)]
    return []


def free_port() -> int:
    """One that nobody listens at, and that no connection is given before somebody does."""
    return ports_in_a_row(1)


def ports_in_a_row(count: int) -> int:
    """The first of so many ports in a row that nobody listens at.

    Outside the range that the kernel gives to connections and to listeners at port 0, where there is such a place:
    inside it any of them may be gone before it is listened at. No port is given twice.
    """
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    outside = [*range(10_000, low - count), *range(high + 1, 65_536 - count)] or list(range(1024, 65_536 - count))
    while True:
        first = random.choice(outside)
        ports = range(first, first + count)
        if _given.isdisjoint(ports) and all(map(_is_free, ports)):
            _given.update(ports)
            return int(first)


_given: set[int] = set()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_for_port(port: int, process: Process, timeout_s: float) -> None:
    """Returns when something accepts on the port; StartFailed when the process ended first or the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            pass
        if not process.running:
            raise StartFailed(f"{process.name} ended while starting:\n{process.log_tail()}")
        if time.monotonic() > deadline:
            raise StartFailed(f"{process.name}: nothing on port {port} after {timeout_s} s:\n{process.log_tail()}")
        time.sleep(0.005)
