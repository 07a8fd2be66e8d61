"""Late flushes and a wrong wall clock for a real broker, by a library that is loaded before the C library."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
_PAGE = struct.Struct("=qq")


def compiler() -> str | None:
    """A C compiler's path; without one neither fault can be had."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    """The library, compiled into the folder. CalledProcessError with what the compiler said."""
    library = folder / "faulty_libc.so"
    cc = compiler()
    assert cc is not None, "there is no C compiler"
    subprocess.run([cc, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


class FaultyLibc:
    """What one process is told. `wrapper` goes before its command; the other methods act on it while it runs."""

    def __init__(self, library: Path, page: Path) -> None:
        page.write_bytes(bytes(mmap.PAGESIZE))
        self.wrapper = ["env", f"LD_PRELOAD={library}", f"KLOG_FAULTS_PAGE={page}"]
        with page.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._flush_delay_us = self._clock_ahead_us = 0

    def delay_flushes(self, seconds: float) -> None:
        self._flush_delay_us = int(seconds * 1e6)
        self._write()

    def step_clock(self, seconds: float) -> None:
        """The wall clock is ahead of the machine's by so much, or behind."""
        self._clock_ahead_us = int(seconds * 1e6)
        self._write()

    def close(self) -> None:
        self._page.close()

    def _write(self) -> None:
        self._page[: _PAGE.size] = _PAGE.pack(self._flush_delay_us, self._clock_ahead_us)
