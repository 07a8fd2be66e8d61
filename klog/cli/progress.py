"""How far a command is, on a terminal: done, in all, rate, time left; in a pipe nothing.

One line on stderr, redrawn in place. A command that counts its work says so by `progress`, and is shown from the second
second on; of one that counts nothing `at_work` shows since when it runs, as long as it has shown no row. A line that
`Invocation.say` writes takes its place, and what the command shows or asks.

rich could redraw the line, which is a dozen lines here. It would not shorten the rest: what is measured, when it is
shown, and klog's own way to write sizes, rates and durations.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from klog.cli.flags import GlobalFlags
from klog.metrics import Count
from klog.render import Format
from klog.render.value_texts import count_text, duration_text, size_text
from klog.render.visible import for_stream, is_terminal

QUIET_S = 1.0
"""What is over by then shows nothing."""
AT_WORK_S = 2.0
"""And where nothing is counted, by then."""
EVERY_S = 0.25


class Done(NamedTuple):
    """How much is done, of how much; None: not known yet. ``about``: what is done now, for a person."""

    done: float
    total: float | None
    about: str = ""
    has_begun: bool = True
    """Whether the rate counts from here on."""


@dataclass(slots=True)
class Measured:
    """What a command counts; ``unit``: ``bytes``, or what is counted."""

    measure: Callable[[], Done | None]
    unit: str
    begun_s: float = field(default_factory=time.monotonic)
    first: tuple[float, float] | None = None
    """When it was measured first as begun, and how much was done by then."""


@dataclass(slots=True)
class Drawing:
    """A line on the terminal behind stderr, drawn again in its place, of one run of a command."""

    shared: GlobalFlags
    _is_drawn: bool = field(default=False, init=False)
    measured: Measured | None = field(default=None, init=False)
    """What shows how far the command is, while it counts something."""
    has_shown: bool = field(default=False, init=False)
    """Rows were shown, or are about to be as they come: nothing has to say that the command is at work."""

    @property
    def output(self) -> Format:
        """How rows are shown."""
        return self.shared.output or Format.TABLE

    @property
    def can_draw(self) -> bool:
        """Whether a person looks at such a line, and at it alone: a program behind a pipe may draw there, too."""
        shared = self.shared
        if shared.quiet or shared.trace or self.output.is_structured or not is_terminal(sys.stderr):
            return False
        try:
            return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
        except (OSError, ValueError):  # stdout is closed, or not a file
            return True

    def draw_line(self, text: str) -> None:
        """A line on the terminal behind stderr that the next one replaces."""
        sys.stderr.write(f"\r{for_stream(text, sys.stderr)}\x1b[K")
        sys.stderr.flush()
        self._is_drawn = True

    def clear_line(self) -> None:
        """Take such a line away, if there is one."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_drawn = False

    def draw_progress(self, begun_s: float) -> None:
        """How far the command is; where it counts nothing and has shown nothing, since when it runs."""
        now_s, measured = time.monotonic(), self.measured
        if not self.can_draw:
            return
        if measured is None:
            if not self.has_shown and now_s - begun_s >= AT_WORK_S:
                self.draw_line(f"at work, {duration_text(int(now_s - begun_s) * 1000)}")
        elif (found := measured.measure()) is not None:
            if found.has_begun:
                measured.first = measured.first or (now_s, found.done)
            if now_s - measured.begun_s >= QUIET_S:
                first_s, before = measured.first or (measured.begun_s, found.done)
                self.draw_line(line(found, found.done - before, now_s - first_s, measured.unit))


@contextmanager
def progress(invocation: Drawing, measure: Callable[[], Done | None], *, unit: str) -> Iterator[None]:
    """Show progress while inside. ``unit``: ``bytes``, or what is counted; ``measure`` is asked on the event loop, and
    must not block there: `slow_progress`."""
    invocation.measured = Measured(measure, unit)
    try:
        yield
    finally:
        invocation.measured = None
        invocation.clear_line()


@contextmanager
def slow_progress(invocation: Drawing, measure: Callable[[], Done | None], *, unit: str) -> Iterator[None]:
    """As `progress`, where ``measure`` may take any time: a thread asks it, once at a time, and shown is what it
    answered last."""
    if not invocation.can_draw:
        yield
        return
    over, latest = threading.Event(), None

    def ask() -> None:
        nonlocal latest
        while not over.wait(EVERY_S):
            latest = measure()

    threading.Thread(target=ask, name="progress", daemon=True).start()
    try:
        with progress(invocation, lambda: latest, unit=unit):
            yield
    finally:
        over.set()  # and an answer that is still to come is not waited for


@contextmanager
def counting(invocation: Drawing, unit: str, total: int | None = None) -> Iterator[Count]:
    """Show what is counted while inside."""
    count = Count(total=total)
    with progress(invocation, lambda: Done(count.done, count.total, count.about), unit=unit):
        yield count


@asynccontextmanager
async def at_work(invocation: Drawing) -> AsyncIterator[None]:
    """Show that the command is at work while inside, and how far it is where it measures that."""
    import asyncio  # which `klog down` need not pay

    async def show() -> None:
        begun_s = time.monotonic()
        while True:
            invocation.draw_progress(begun_s)
            await asyncio.sleep(EVERY_S)

    showing = asyncio.ensure_future(show())
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        invocation.clear_line()


@contextmanager
def at_work_without_loop(invocation: Drawing) -> Iterator[None]:
    """As `at_work`, for a command that runs in no event loop."""
    if not invocation.can_draw:
        yield
        return
    invocation.has_shown = False  # a preview that was confirmed is no progress
    over, begun_s = threading.Event(), time.monotonic()

    def show() -> None:
        while not over.wait(EVERY_S):
            invocation.draw_progress(begun_s)

    thread = threading.Thread(target=show, name="at-work", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        invocation.clear_line()


def line(found: Done, since: float, seconds: float, unit: str) -> str:
    """``12 MB of 80 MB, 15%, 4.1 MB/s, 17 s left``; ``since``: what was done in the last so many seconds."""
    text = size_text if unit == "bytes" else count_text
    name = "" if unit == "bytes" else f" {unit}"
    rate = since / seconds if seconds > 0 else 0.0
    words = [f"{text(found.done)}{name}"]
    if found.total is not None and found.total > 0:
        words = [f"{text(found.done)} of {text(found.total)}{name}", f"{min(found.done / found.total, 1):.0%}"]
    if rate >= 1:
        words.append(f"{text(rate)}/s")
    if rate <= 0 and seconds >= 1:
        words.append(f"{duration_text(int(seconds) * 1000)} so far")
    elif rate > 0 and found.total is not None:
        words.append(f"{duration_text(max(0.0, found.total - found.done) / rate * 1000)} left")
    if found.about:
        words.append(found.about)
    return ", ".join(words)[: shutil.get_terminal_size().columns - 1]
