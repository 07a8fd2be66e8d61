"""klog's own commands, timed as a person has them: a process each, from its start to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.klog_system import environment

COMMAND_TIMEOUT_S = 300.0


class CommandFailed(Exception):
    """A command did not exit with 0; the message has what it said."""


def _run(folder: Path, *arguments: str) -> tuple[float, str]:
    """Runs ``python -m ARGUMENTS``: its seconds and its standard output."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**os.environ, **environment(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        said = " / ".join(done.stderr.strip().splitlines()[-4:])
        raise CommandFailed(f"{' '.join(arguments)} exited with {done.returncode}: {said}")
    return seconds, done.stdout


def klog_seconds(folder: Path, *arguments: str) -> float:
    """How long ``klog ARGUMENTS`` takes."""
    return _run(folder, "klog", *arguments)[0]


def export(folder: Path, bootstrap: str, topic: str, root: Path, messages: int) -> dict[str, float]:
    """An export of all of a topic: the whole command, and the rate of its write step once Spark runs."""
    whole_s = klog_seconds(folder, "export", "run", topic, "-B", bootstrap, "--to", f"{root}-command")
    _, said = _run(folder, "bench.export_rate", bootstrap, topic, str(root))
    steps = json.loads(said.splitlines()[-1])
    return {
        "messages_per_s": messages / steps["write_seconds"],
        "seconds": whole_s,
        "spark_seconds": steps["spark_seconds"],
    }
