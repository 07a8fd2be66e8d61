"""Rule L8: a loop that hangs ends the process; one that was merely paused goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from klog.host.watchdog import EXIT_CODE

ROOT = Path(__file__).resolve().parent.parent.parent


def run(body: str) -> subprocess.Popen[str]:
    program = textwrap.dedent(
        """
        import asyncio, sys, time
        from klog.host.watchdog import Watchdog

        async def main():
            Watchdog(1.5).start()
            print("started", flush=True)
        """
    ) + textwrap.indent(textwrap.dedent(body), "    ")
    program += "\nasyncio.run(main())\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


@pytest.mark.slow
def test_a_loop_that_hangs_ends_the_process_and_shows_where() -> None:
    process = run("time.sleep(60)")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == EXIT_CODE
    assert "silent" in errors or "main" in errors  # the stack of the thread that hangs


@pytest.mark.slow
def test_a_loop_that_works_is_left_alone() -> None:
    with run("for _ in range(30): await asyncio.sleep(0.1)") as process:
        assert process.wait(30) == 0
