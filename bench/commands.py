"""klog's own commands, timed as a person has them: a process each, from its start to its end."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.klog_system import environment

COMMAND_TIMEOUT_S = 300.0


class CommandFailed(Exception):
    """A command did not exit with 0; the message has what it said."""


def _run(folder: Path, *arguments: str, may_find: bool = False) -> tuple[float, str]:
    """Runs ``python -m ARGUMENTS``: its seconds and standard output. ``may_find``: 1 is no failure if it says what."""
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
    if done.returncode != 0 and not (may_find and done.returncode == 1 and done.stdout):
        said = " / ".join(done.stderr.strip().splitlines()[-4:])
        raise CommandFailed(f"{' '.join(arguments)} exited with {done.returncode}: {said}")
    return seconds, done.stdout


def klog_seconds(folder: Path, *arguments: str, may_find: bool = False) -> float:
    """How long ``klog ARGUMENTS`` takes. ``may_find``: with 1 it has found something, and shows it."""
    return _run(folder, "klog", *arguments, may_find=may_find)[0]


def await_class_archive(folder: Path) -> None:
    """Until the JVM of the first export has written the archive of its classes, as it does after the command's end.

    Nothing where none is written, as where the environment has flags for JVMs.
    """
    for lock in (folder.parent / "klog-home" / "cache").glob("spark-*.lock"):
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)


def klog_rows(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """What ``klog ARGUMENTS`` shows, as its JSON has it."""
    rows: list[dict[str, Any]] = json.loads(_run(folder, "klog", *arguments, "-o", "json")[1])["rows"]
    return rows


def tails(folder: Path, bootstrap: str, topic: str, messages: int, *flags: str) -> dict[str, float]:
    """All of a topic through ``klog tail`` into a pipe that is read at once, process start and end included; and
    through kcat, where there is one."""
    command = [sys.executable, "-m", "klog", "tail", topic, "-o", "start", "-e", "-B", bootstrap, *flags]
    figures = {"messages_per_s": messages / _piped(command, messages, {**os.environ, **environment(folder)})}
    if (kcat := shutil.which("kcat")) is not None:
        command = [kcat, "-C", "-q", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", *(["-J"] if flags else [])]
        figures["kcat_messages_per_s"] = messages / _piped(command, messages, dict(os.environ))
    return figures


def _piped(command: list[str], lines: int, env: dict[str, str]) -> float:
    """The seconds in which a command writes so many lines and ends."""
    start, seen = time.perf_counter(), 0
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            seen += chunk.count(b"\n")
    seconds = time.perf_counter() - start
    if process.returncode != 0 or seen != lines:
        raise CommandFailed(f"{command[0]} exited with {process.returncode} after {seen} of {lines} lines")
    return seconds


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
