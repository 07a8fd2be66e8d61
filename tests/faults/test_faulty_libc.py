"""The library before the C library does what it is told to a process that knows nothing of it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import faulty_libc
from tests.faulty_libc import FaultyLibc

PROGRAM = """
import os, sys, time
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for _ in sys.stdin:
    began = time.monotonic()
    os.write(file, b"x")
    os.fdatasync(file)
    print(time.time(), time.monotonic(), time.monotonic() - began, flush=True)
"""


@pytest.mark.skipif(faulty_libc.compiler() is None, reason="no C compiler")
def test_flushes_are_late_and_the_wall_clock_steps(tmp_path: Path) -> None:
    libc = FaultyLibc(faulty_libc.build(tmp_path), tmp_path / "page")
    command = [*libc.wrapper, sys.executable, "-c", PROGRAM, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask() -> tuple[float, float, float]:
            """How far its clocks are from ours, and how long its flush took."""
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            wall, monotonic, flush = map(float, process.stdout.readline().split())
            return wall - time.time(), monotonic - time.monotonic(), flush

        plain = ask()
        assert abs(plain[0]) < 1
        libc.delay_flushes(0.5)
        assert ask()[2] >= 0.5
        libc.delay_flushes(0)
        for step in (3600.5, -7200.25):
            libc.step_clock(step)
            wall, monotonic, _ = ask()
            assert abs(wall - step) < 1
            assert abs(monotonic) < 1
        libc.step_clock(0)
        assert abs(ask()[0]) < 1
        process.stdin.close()
    libc.close()
