"""How much memory Spark's Python workers take at their most: they are forked by daemons of pyspark's."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.processes import children, peak_resident_bytes

RESET_PEAK = "5"
"""Written to ``clear_refs``: VmHWM becomes what is resident now (proc_pid_clear_refs(5))."""


def python_workers(pid: int) -> list[int]:
    """The workers, and the daemons that fork them, of the Spark driver with this process id."""
    return [one for one in children(pid) if "pyspark.daemon" in _command(one)]


def _command(pid: int) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).cmdline()
    return []


def forget_peaks(pids: Sequence[int]) -> None:
    """Peaks count from here; nothing happens to those of other users, and where the kernel has no such file."""
    for pid in pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)


def highest_peak_mb(pids: Sequence[int]) -> float:
    """Of all of them the one that had most."""
    return max((peak_resident_bytes([pid]) for pid in pids), default=0) / 1e6
