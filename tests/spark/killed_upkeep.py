"""Compactions and collections of rubbish that kill themselves with SIGKILL at a step; run as a process of its own.

    python -m tests.spark.killed_upkeep compact|gc STEP ROOT [STEP ROOT]...

Each is a fork of that process, which has loaded all that it takes; it prints a line a step: ``STEP SIGNAL``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.broker_fixture import ROOT


def kill_at_each(roots: Mapping[str, Path], verb: str) -> dict[str, bool]:
    """Run it for each step; whether it was killed there (False: it ended before). AssertionError where it failed."""
    words = [word for step, root in roots.items() for word in (step, str(root))]
    command = [sys.executable, "-m", "tests.spark.killed_upkeep", verb, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    ended = dict(line.split() for line in done.stdout.splitlines())
    assert set(ended.values()) <= {"0", str(-signal.SIGKILL)}, done.stderr[-3000:]
    return {step: code != "0" for step, code in ended.items()}


def main(verb: str, *words: str) -> None:
    import pyarrow.parquet  # noqa: F401

    from klog.export.compact import compact
    from klog.export.gc import collect, find_garbage

    for step, root in zip(words[::2], words[1::2], strict=True):
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            print(step, os.waitstatus_to_exitcode(status))
            continue

        def reached(name: str, step: str = step) -> None:
            if name == step:
                os.kill(os.getpid(), signal.SIGKILL)

        if verb == "compact":
            compact(root, on_step=reached)
        else:
            collect(root, find_garbage(root, older_than_s=0), on_step=reached)
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
