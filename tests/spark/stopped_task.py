"""A task of an export's that stands still in the middle of a file, until it is resumed or killed."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil


def open_below(process: psutil.Process, folder: Path) -> list[str]:
    """The names of the files below ``folder`` that it has open, also of those that are removed; none if it is gone."""
    found = []
    with suppress(OSError):
        for one in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                target = str(one.readlink()).removesuffix(" (deleted)")
                if target.startswith(f"{folder}/"):
                    found.append(target.rpartition("/")[2])
    return found


def stop_while_writing(
    export: subprocess.Popen[str], root: Path, processes: Callable[[], Iterable[psutil.Process]]
) -> tuple[psutil.Process, str]:
    """Stop the first of ``processes()`` that has a file of messages open below ``root``, while ``export`` runs.

    (it, what the names of all files of this attempt begin with).
    """
    staging = root / "_staging"
    pause = threading.Event()
    while export.poll() is None:
        with suppress(psutil.NoSuchProcess):
            for process in processes():
                for name in open_below(process, staging):
                    process.suspend()
                    if name.startswith("part-") and name in open_below(process, staging):
                        return process, name.rpartition("-")[0]
                    process.resume()
        pause.wait(0.001)
    raise AssertionError(export.communicate())
