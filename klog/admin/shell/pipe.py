"""``topic list -o json | jq .`` in the shell: what follows the pipe is the system's shell's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

STDOUT = 1


def split_at_pipe(line: str) -> tuple[str, str | None]:
    """The line up to its first ``|`` that is not quoted, and what follows it, None where there is none."""
    quote, escaped = "", False
    for index, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "|":
            return line[:index].strip(), line[index + 1 :].strip()
    return line, None


@contextmanager
def output_through(command: str) -> Iterator[Callable[[], int]]:
    """While inside, stdout goes into ``sh -c command``; afterwards the yielded function gives that command's exit code.

    Done with the descriptor and not with ``sys.stdout``: commands write to it in more than one way.
    """
    sys.stdout.flush()
    process = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE)
    assert process.stdin is not None
    kept = os.dup(STDOUT)
    os.dup2(process.stdin.fileno(), STDOUT)
    process.stdin.close()
    try:
        yield lambda: process.returncode
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            # The filter has seen enough. What is left must not come out once stdout is the terminal again.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), STDOUT)
            sys.stdout.flush()
        os.dup2(kept, STDOUT)
        os.close(kept)
        process.wait()
