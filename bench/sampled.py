"""A klog command whose main thread is sampled: ``python -m bench.sampled FILE ARGUMENT...``.

Every `EVERY_S` of processor time the kernel interrupts the process (SIGPROF), and the stack that Python is in is noted.
When the command has ended, FILE has them: ``{"stacks": [[[file, function], ...], ...], "samples": [[seconds, number of
the stack], ...]}``, innermost frame first, seconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType

EVERY_S = 0.004
"""Beside a profiler that stops the process at every sample a broker was eight times as slow."""

Stack = tuple[tuple[str, str], ...]


class Sampler:
    """Of the process's main thread, where Python runs handlers of signals."""

    def __init__(self) -> None:
        self._numbers: dict[Stack, int] = {}
        self._samples: list[tuple[float, int]] = []

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)

    def _note(self, _: int, frame: FrameType | None) -> None:
        stack = []
        while frame is not None:
            stack.append((frame.f_code.co_filename, frame.f_code.co_qualname))
            frame = frame.f_back
        number = self._numbers.setdefault(tuple(stack), len(self._numbers))
        self._samples.append((time.monotonic(), number))

    def stop(self, file: Path) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        file.write_text(json.dumps({"stacks": list(self._numbers), "samples": self._samples}))


if __name__ == "__main__":
    from klog.__main__ import main

    target = Path(sys.argv[1])
    sys.argv = ["klog", *sys.argv[2:]]
    sampler = Sampler()
    sampler.start()
    code = main()
    sampler.stop(target)
    sys.exit(code)
