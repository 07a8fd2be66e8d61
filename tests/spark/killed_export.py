"""Exports and their upkeep that kill themselves with SIGKILL at a named point; run as a process of its own.

    python -m tests.spark.killed_export BOOTSTRAP TOPIC ROOT POINT         by Spark
    python -m tests.spark.killed_export BOOTSTRAP < KILLS                  without it: each is a fork of this process

KILLS are lines of JSON, `Kill`s; a line comes back for each, the exit code. What all of them load is loaded once.
POINT is one of the steps of what is done, or for an export ``writing``: as soon as the first bytes of a file of
messages are there, or a number: so many seconds after the writing began. A process that gets past its point ends with
0.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from klog.export.run import STEPS, TableChoice, run
from tests.broker_fixture import ROOT
from tests.spark.quick_java import spark_environment

Name = TypeVar("Name")


class Kill(NamedTuple):
    """An export without Spark, or what is done with one, and where it is killed."""

    topic: str
    root: str
    point: str
    table: TableChoice | None = None
    verb: str = "run"
    """``run``, ``compact`` or ``gc``."""


def kill_each(bootstrap: str, kills: Mapping[Name, Kill]) -> dict[Name, bool]:
    """One after the other; whether it was killed there (False: it ended before). AssertionError where one failed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.killed_export", bootstrap],
        cwd=ROOT,
        input="".join(json.dumps(kill) + "\n" for kill in kills.values()),
        capture_output=True,
        check=False,
        text=True,
    )
    codes = done.stdout.split()
    assert done.returncode == 0 and len(codes) == len(kills), done.stderr[-3000:]
    assert set(codes) <= {"0", str(-signal.SIGKILL)}, done.stderr[-3000:]
    return {name: code != "0" for name, code in zip(kills, codes, strict=True)}


def kill_at_each(roots: Mapping[str, Path], verb: str) -> dict[str, bool]:
    """As `kill_each`, of a compaction or a collection of rubbish: of each root at the step that names it."""
    return kill_each("", {step: Kill("", str(root), step, verb=verb) for step, root in roots.items()})


def kill_at(bootstrap: str, topic: str, root: Path | str, point: str) -> bool:
    """One by Spark; whether it was killed (False: it ended before). AssertionError with its words where it failed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.killed_export", bootstrap, topic, str(root), point],
        cwd=ROOT,
        env=os.environ | spark_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        check=False,
        text=True,
    )
    assert done.returncode in (-signal.SIGKILL, 0), done.stderr[-3000:]
    return done.returncode != 0


def killer(root: str, point: str) -> Callable[[str], None]:
    """What kills this process at the point, called with each step."""

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

    return reached


def forked(act: Callable[[], None]) -> int:
    """The exit code of a fork of this process."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        act()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def by_spark(bootstrap: str, topic: str, root: str, point: str) -> None:
    from klog.spark.export import DirectWriter
    from klog.spark.running.session import SparkTarget

    run(bootstrap, [topic], root, DirectWriter(SparkTarget("local[2,4]")), on_step=killer(root, point))


def without_spark(bootstrap: str) -> None:
    kills = [Kill(*json.loads(line)) for line in sys.stdin]
    import pyarrow.parquet  # noqa: F401

    from klog.export.compact import compact
    from klog.export.gc import collect, find_garbage
    from klog.spark.export import LocalWriter

    if any(kill.table for kill in kills):
        import deltalake  # noqa: F401
        import pyiceberg.catalog.sql  # noqa: F401

    def act(topic: str, root: str, point: str, table: TableChoice | None, verb: str) -> None:
        reached = killer(root, point)
        if verb == "compact":
            compact(root, on_step=reached)
        elif verb == "gc":
            collect(root, find_garbage(root, older_than_s=0), on_step=reached)
        else:
            choice = None if table is None else TableChoice(*table)
            run(bootstrap, [topic], root, LocalWriter(), table=choice, on_step=reached)

    for kill in kills:
        print(forked(partial(act, *kill)), flush=True)


if __name__ == "__main__":
    (by_spark if len(sys.argv) > 2 else without_spark)(*sys.argv[1:])
