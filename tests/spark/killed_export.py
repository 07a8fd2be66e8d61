"""One export that kills itself with SIGKILL at a named point; run as a process of its own.

    python -m tests.spark.killed_export BOOTSTRAP TOPIC ROOT POINT spark|direct [iceberg|delta]

POINT is one of the export's steps, or ``writing``: as soon as the first bytes of a file of messages are there, or a
number: so many seconds after the writing began. A process that gets past its point ends with 0.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from klog.export.run import STEPS, TableChoice, run
from tests.broker_fixture import ROOT
from tests.spark.quick_java import spark_environment


def start(
    bootstrap: str, topic: str, root: Path | str, point: str, writer: str = "spark", table: str | None = None
) -> subprocess.Popen[bytes]:
    """The process, started."""
    command = [sys.executable, "-m", "tests.spark.killed_export", bootstrap, topic, str(root), point, writer]
    command += [table] if table else []
    environment = os.environ | (spark_environment() if writer == "spark" else {})
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )


def kill_at(
    bootstrap: str, topic: str, root: Path | str, point: str, writer: str = "spark", table: str | None = None
) -> bool:
    """Run it; whether it was killed (False: it ended before). AssertionError with its words where it failed."""
    process = start(bootstrap, topic, root, point, writer, table)
    _, errors = process.communicate()
    assert process.returncode in (-signal.SIGKILL, 0), errors.decode()[-3000:]
    return process.returncode != 0


def main(bootstrap: str, topic: str, root: str, point: str, writer: str, table: str | None = None) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_at_the_first_bytes() -> None:
        pause = threading.Event()
        while not any(path.stat().st_size for path in Path(root, "_staging").rglob("part-*")):
            pause.wait(0.001)
        die()

    def reached(step: str) -> None:
        if step == point:
            die()
        if step == "staged" and point == "writing":
            threading.Thread(target=die_at_the_first_bytes, daemon=True).start()
        if step == "staged" and point not in (*STEPS, "writing"):
            timer = threading.Timer(float(point), die)
            timer.daemon = True
            timer.start()

    if writer == "spark":
        from klog.spark.export import DirectWriter as SparksDirectWriter
        from klog.spark.running.target import SparkTarget

        run(bootstrap, [topic], root, SparksDirectWriter(SparkTarget("local[2,4]")), on_step=reached)
    else:
        from tests.spark.conftest import DirectWriter

        choice = None if table is None else TableChoice(table)
        run(bootstrap, [topic], root, DirectWriter(), table=choice, on_step=reached)


if __name__ == "__main__":
    main(*sys.argv[1:])
