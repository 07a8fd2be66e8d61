"""Ends what `scripts/figure3` has started, should it be killed itself: ``python -m`` this, ``DIR HOME KEEP``.

It waits at a pipe. A demo that ends in order writes a byte; an end of the pipe without one means that it was killed.
Then the parts are ended, the clusters shut down, and a folder of the demo's own (KEEP is 0) is removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from bench.figure3.part import end_all, noted
from klog.admin import local_cluster
from klog.coordination.process import python_command
from klog.errors import KlogError

DONE: Final = b"."
PARTS_FILE: Final = "parts.json"
END_S: Final = 10.0


class Guard:
    """The demo's side: a process that outlives it, if only for the time that ending all takes."""

    def __init__(self, folder: Path, home: Path, *, keep: bool) -> None:
        command, environment = python_command("bench.figure3.guard", folder, home, int(keep))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """All has ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(DONE)
            self._process.stdin.close()
        self._process.wait()


def end_everything(folder: Path, home: Path) -> None:
    """The parts first, then the clusters. What is not there is skipped."""
    found: list[psutil.Process] = []
    for identity in noted(folder / PARTS_FILE):
        if identity.is_alive():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(identity.pid)
                found += [process, *process.children(recursive=True)]
            identity.send(signal.SIGCONT)
            identity.send(signal.SIGTERM)
    end_all(found, END_S)
    for cluster in sorted(path.parent for path in folder.glob("*/cluster.json")):
        _wake(cluster)
        with suppress(KlogError, OSError):
            local_cluster.down(cluster, home)


def _wake(cluster: Path) -> None:
    """Chaos may have paused some of its processes."""
    there = local_cluster.look(cluster)
    for part in there.live if there is not None else ():
        if part.identity is not None:
            part.identity.send(signal.SIGCONT)


def main() -> None:
    folder, home, keep = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "1"
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    if os.read(0, 1) == DONE:
        return
    end_everything(folder, home)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
