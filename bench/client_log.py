"""What a stock client says of itself: everything it writes to stderr, kept in memory with the times, until it is asked.

A client under test logs at its debug level all the while: nobody knows beforehand which kill will be the long one.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

LINES_MAX: Final = 50_000
LINE_MAX: Final = 400
PIPE_BYTES: Final = 1 << 20
"""A client that writes more than that at once waits for the thread that reads."""
SHOWN_MAX: Final = 24
_VARYING: Final = re.compile(r"0x[0-9a-f]+|\d+")
_PREFIX: Final = re.compile(
    r"^%\d\|[0-9.]+\|(?P<what>\w+)\|\S+ \[thrd:[^\]]*\]: "
    r"|^\[[^\]]*\] (DEBUG|INFO|WARN|WARNING|ERROR) (org\.apache\.)?(?=kafka\.)"
)
"""Of librdkafka's lines; of Java's and kafka-python's."""
SHOWN_LINE_MAX: Final = 180

Line = tuple[float, str]
"""Seconds of the monotonic clock, text."""


class ClientLog:
    """From here on stderr is this process's log, and its children's, until `give_back`."""

    def __init__(self, routine: Sequence[str] = ()) -> None:
        """``routine``: parts of lines that come with every message, which are dropped."""
        self._routine = tuple(routine)
        self._lines: deque[Line] = deque(maxlen=LINES_MAX)
        self._before = os.dup(2)
        reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.dup2(writing, 2)
        os.close(writing)
        threading.Thread(target=self._read, args=(reading,), name="reads stderr", daemon=True).start()

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, errors="replace") as file:
            for line in file:
                if not any(part in line for part in self._routine):
                    self._lines.append((time.monotonic(), line.rstrip()[:LINE_MAX]))

    def give_back(self) -> None:
        """Stderr is what it was, for a last word; it is told the last lines first."""
        os.dup2(self._before, 2)
        for _, text in list(self._lines)[-3:]:
            os.write(2, f"{text}\n".encode())

    def write(self, from_s: float, to_s: float, path: Path) -> None:
        """The lines of that time, `SECONDS LINE` each."""
        kept = [one for one in list(self._lines) if from_s <= one[0] <= to_s]
        path.write_text("".join(f"{at:.6f} {text}\n" for at, text in kept))


def read(path: Path) -> list[Line]:
    lines = (line.partition(" ") for line in path.read_text().splitlines())
    return [(float(at), text) for at, _, text in lines]


def shortened(lines: Sequence[Line], since_s: float) -> list[str]:
    """At most `SHOWN_MAX` of them for a page, by milliseconds since then: of lines alike the first and how many more.

    Lines are alike that differ by numbers alone. Where there are too many, those before the longest silences stay: what
    a client said last before it waited, and what ended the wait.
    """
    folded: list[tuple[float, str, int]] = []
    seen: dict[str, int] = {}
    for at, text in lines:
        if text.startswith((" ", "Traceback")):
            continue
        said = _PREFIX.sub(lambda found: f"{found['what']} " if found["what"] else "", text)[:SHOWN_LINE_MAX]
        shape = _VARYING.sub("#", said)
        if shape in seen and at - folded[seen[shape]][0] < 0.05:
            where = seen[shape]
            folded[where] = (*folded[where][:2], folded[where][2] + 1)
            continue
        seen[shape] = len(folded)
        folded.append((at, said, 1))
    silences = sorted(range(len(folded) - 1), key=lambda index: folded[index][0] - folded[index + 1][0])
    wanted: set[int] = set()
    for index in silences:
        if len(wanted) >= SHOWN_MAX - 1:
            break
        wanted |= {index, index + 1}
    wanted = wanted or set(range(len(folded)))
    return [
        f"{1000 * (folded[index][0] - since_s):.0f} ms: {folded[index][1]}"
        + (f" (and {folded[index][2] - 1} alike)" if folded[index][2] > 1 else "")
        for index in sorted(wanted)
    ]
