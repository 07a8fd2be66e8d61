"""What the figures were measured on: told with them, since they mean nothing without it."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import psutil


def describe(folder: Path) -> dict[str, str]:
    """Processor, cores, memory, kernel, versions, and how long a small flush takes on the disk that holds `folder`."""
    return {
        "processor": _field("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "load when it began": load(),
        "python": platform.python_version(),
        "java": _java_version(),
        "fdatasync of 16 KB": f"{_flush_ms(folder):.2f} ms",
    }


def load() -> str:
    """How many processes wanted a core, over the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0"


def _java_version() -> str:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return "none"
    return (done.stderr.splitlines() or ["unknown"])[0]


def _flush_ms(folder: Path) -> float:
    taken = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(50):
            os.write(file.fileno(), b"v" * 16384)
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - start)
    return 1000 * statistics.median(taken)
