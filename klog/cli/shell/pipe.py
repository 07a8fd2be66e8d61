"""Where the output of a command goes: through a command of ``sh``, or into a file.

Done with the descriptor and not with ``sys.stdout``: commands write to it in more than one way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from klog.cli.interrupt import EXIT_SIGNALLED, left_to_child
from klog.cli.standard_streams import discard_output

STDOUT = 1


@contextmanager
def output_through(command: str) -> Iterator[Callable[[], int]]:
    """While inside, stdout goes into ``sh -c command``; afterwards the yielded function gives its exit code."""
    sys.stdout.flush()
    with left_to_child():
        process = _started(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        with _stdout_at(process.stdin.fileno()):
            process.stdin.close()
            yield lambda: _code(process)
    finally:
        with left_to_child():
            process.wait()


@contextmanager
def output_to(file: Path, *, append: bool) -> Iterator[None]:
    """While inside, stdout goes into a file. OSError where it cannot be written."""
    sys.stdout.flush()
    with file.expanduser().open("ab" if append else "wb") as stream, _stdout_at(stream.fileno()):
        yield


def run(command: str, *, reads_stdin: bool = True) -> int:
    """``sh -c command`` on this terminal; its exit code."""
    sys.stdout.flush()
    with left_to_child():
        process = _started(command, stdin=None if reads_stdin else subprocess.DEVNULL)
        process.wait()
    return _code(process)


@contextmanager
def _stdout_at(descriptor: int) -> Iterator[None]:
    kept = os.dup(STDOUT)
    os.dup2(descriptor, STDOUT)
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()  # the filter has seen enough; nothing may come out once stdout is the terminal again
            sys.stdout.flush()
        os.dup2(kept, STDOUT)
        os.close(kept)


def _started(command: str, *, stdin: int | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", command], stdin=stdin)


def _code(process: subprocess.Popen[bytes]) -> int:
    return process.returncode if process.returncode >= 0 else EXIT_SIGNALLED - process.returncode
