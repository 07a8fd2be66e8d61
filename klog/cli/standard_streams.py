"""The streams of a process that runs one command: what becomes of output that cannot be written."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class OutputFailed(OSError):
    """stdout cannot be written."""


class _Output(io.FileIO):
    """stdout. Its errors have a class of their own; a closed pipe is not one."""

    before: Any
    """The stream in whose place it is: at its end that would close the descriptor."""

    def write(self, content: Any) -> Any:
        try:
            return super().write(content)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error.errno, error.strerror) from None


class _Notes(io.FileIO):
    """stderr. A note that cannot be written is dropped: what the command does, and its exit code, do not hang on it."""

    def write(self, content: Any) -> int:
        try:
            written = super().write(content)
        except OSError:
            written = None
        return len(content) if written is None else written


def open_all() -> None:
    """Streams that show any text somehow: names of files and znodes may hold any bytes, and the locale may be C.

    Where the caller has closed stdout (``>&-``), writing to it fails as on a full disk.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    elif not sys.stdin.isatty():
        sys.stdin.reconfigure(encoding="utf-8-sig")  # type: ignore[union-attr]  # as a saved file may begin
    output = os.open(os.devnull, os.O_RDONLY) if sys.stdout is None else sys.stdout.fileno()
    raw_output = _Output(output, "w", closefd=False)
    raw_output.before = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw_output), encoding="utf-8", errors="backslashreplace", line_buffering=os.isatty(output)
    )
    notes = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()
    raw = _Notes(notes, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


def flush_all(code: int) -> int:
    """At the end of the process: its exit code, which is not 0 where output could not be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()  # the reader has seen enough (`| head`): that is a way to end, not an error
    except OSError as error:
        output_failed(error)
        code = code or 1
    sys.stderr.flush()
    return code


def output_failed(error: OSError) -> None:
    """Say that stdout cannot be written, and write no more to it."""
    sys.stderr.write(f"klog: cannot write the output: {error.strerror}\n")
    discard_output()


def discard_output() -> None:
    """After a closed pipe or a full disk: what is still buffered goes nowhere, so that Python's exit does not fail."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # no real file behind the stream, as in tests
