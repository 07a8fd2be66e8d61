"""A klog command whose main thread is sampled: ``python -m bench.sampled FILE ARGUMENT...``.

Every `EVERY_S` of processor time the kernel interrupts the process (SIGPROF), and the stack that Python is in is noted.
When the command has ended, FILE has them: ``{"stacks": [[[file, function], ...], ...], "samples": [[seconds, number of
the stack], ...], "moments": [[name, seconds], ...]}``, innermost frame first, seconds of CLOCK_MONOTONIC. The moments
are those of offset commits: where a function of `NOTED` begins or ends.
"""

from __future__ import annotations

import functools
import inspect
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

from klog.coordination.group_writer import GroupWriter
from klog.server.groups.commits import Commits

EVERY_S = 0.004
"""Beside a profiler that stops the process at every sample a broker was eight times as slow."""

NOTED: tuple[tuple[type, str], ...] = (
    (Commits, "commit"),
    (GroupWriter, "_send_all"),
    (KazooClient, "_call"),
    (ConnectionHandler, "_send_request"),
    (ConnectionHandler, "_read_response"),
)
"""What an offset commit goes through, in this order, and back."""

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

    def stop(self, file: Path, moments: list[tuple[str, float]]) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        found = {"stacks": list(self._numbers), "samples": self._samples, "moments": moments}
        file.write_text(json.dumps(found))


class Moments:
    """When each call of `NOTED` begins and ends: ``("_call >", seconds)``, ``("_call <", seconds)``."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, float]] = []
        for owner, name in NOTED:
            setattr(owner, name, self._noting(getattr(owner, name)))

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        begins, ends = f"{function.__name__} >", f"{function.__name__} <"

        @functools.wraps(function)
        def plain(*arguments: Any, **named: Any) -> Any:
            self.noted.append((begins, time.monotonic()))
            result = function(*arguments, **named)
            self.noted.append((ends, time.monotonic()))
            return result

        @functools.wraps(function)
        async def awaited(*arguments: Any, **named: Any) -> Any:
            self.noted.append((begins, time.monotonic()))
            result = await function(*arguments, **named)
            self.noted.append((ends, time.monotonic()))
            return result

        return awaited if inspect.iscoroutinefunction(function) else plain


if __name__ == "__main__":
    from klog.__main__ import main

    target = Path(sys.argv[1])
    sys.argv = ["klog", *sys.argv[2:]]
    sampler = Sampler()
    sampler.start()
    moments = Moments()
    code = main()
    sampler.stop(target, moments.noted)
    sys.exit(code)
