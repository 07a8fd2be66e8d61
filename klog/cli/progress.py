"""How far a long command is, on a terminal: done, in all, rate, time left; in a pipe nothing.

One line on stderr, redrawn in place, from the second second on. A line that `Invocation.say` writes takes its place.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from klog.cli.invocation import Invocation, is_terminal
from klog.render.value_texts import count_text, duration_text, size_text

QUIET_S = 1.0
"""What is over by then shows nothing."""
EVERY_S = 0.25


class Done(NamedTuple):
    """How much is done, of how much; None: not known yet."""

    done: float
    total: float | None


@asynccontextmanager
async def progress(invocation: Invocation, measure: Callable[[], Done | None], *, unit: str) -> AsyncIterator[None]:
    """Show progress while inside. ``unit``: ``bytes``, or what is counted; ``measure`` is asked on the event loop."""
    if invocation.shared.quiet or not is_terminal(sys.stderr):
        yield
        return
    showing = asyncio.ensure_future(_show(invocation, measure, unit))
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        invocation.clear_line()


async def _show(invocation: Invocation, measure: Callable[[], Done | None], unit: str) -> None:
    loop = asyncio.get_running_loop()
    first: tuple[float, float] | None = None
    begun_s = loop.time()
    while True:
        found = measure()
        if found is not None:
            first = first or (loop.time(), found.done)
            if loop.time() - begun_s >= QUIET_S:
                invocation.draw_line(line(found, found.done - first[1], loop.time() - first[0], unit))
        await asyncio.sleep(EVERY_S)


def line(found: Done, since: float, seconds: float, unit: str) -> str:
    """``12 MB of 80 MB, 15%, 4.1 MB/s, 17 s left``; ``since``: what was done in the last so many seconds."""
    text = size_text if unit == "bytes" else count_text
    name = "" if unit == "bytes" else f" {unit}"
    rate = since / seconds if seconds > 0 else 0.0
    words = [f"{text(found.done)}{name}"]
    if found.total is not None and found.total > 0:
        words = [f"{text(found.done)} of {text(found.total)}{name}", f"{min(found.done / found.total, 1):.0%}"]
    if rate > 0:
        words.append(f"{text(rate)}/s")
        if found.total is not None:
            words.append(f"{duration_text(max(0.0, found.total - found.done) / rate * 1000)} left")
    return ", ".join(words)[: shutil.get_terminal_size().columns - 1]
