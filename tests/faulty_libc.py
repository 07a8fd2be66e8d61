"""File calls that hang, late flushes and a wrong wall clock for a real broker, by a library that is loaded before the C
library."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
_PAGE = struct.Struct("=qq16s")


def compiler() -> str | None:
    """A C compiler's path; without one no such fault can be had."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    """The library, compiled into the folder. CalledProcessError with what the compiler said."""
    library = folder / "faulty_libc.so"
    cc = compiler()
    assert cc is not None, "there is no C compiler"
    subprocess.run([cc, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


class FaultyLibc:
    """What processes are told. `wrapper` goes before their command; the other methods act on them while they run."""

    def __init__(self, library: Path, page: Path, folder: Path | str = "") -> None:
        """``folder``: in which file calls can hang."""
        page.write_bytes(bytes(mmap.PAGESIZE))
        named = {"LD_PRELOAD": library, "KLOG_FAULTS_PAGE": page, "KLOG_FAULTS_FOLDER": f"{folder}{os.sep}"}
        self.wrapper = ["env", *(f"{name}={value}" for name, value in named.items())]
        with page.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._flush_delay_us = self._clock_ahead_us = 0
        self._hung = ""

    def delay_flushes(self, seconds: float) -> None:
        self._flush_delay_us = int(seconds * 1e6)
        self._write()

    def step_clock(self, seconds: float) -> None:
        """The wall clock is ahead of the machine's by so much, or behind."""
        self._clock_ahead_us = int(seconds * 1e6)
        self._write()

    def hang(self, acts: str) -> None:
        """From now on these wait, and no others: ``r`` reads of what is not cached, ``R`` all, ``w`` writes, ``s``
        syncs, ``n`` names."""
        self._hung = acts
        self._write()

    def close(self) -> None:
        self._page.close()

    def _write(self) -> None:
        self._page[: _PAGE.size] = _PAGE.pack(self._flush_delay_us, self._clock_ahead_us, self._hung.encode())
