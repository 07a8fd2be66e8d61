"""Progress of a batch while it is written: messages, bytes, rate and time left, from the brokers' counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from klog.export.batch_writer import BatchWriter, WriteJob, WriteResult

EVERY_S: Final = 0.5


class WatchedWriter:
    """A writer that reports its progress every half second."""

    def __init__(self, writer: BatchWriter, show: Callable[[str], None]) -> None:
        """``show``: shows a line in place of the previous one; called with an empty line at the end."""
        self._writer = writer
        self._show = show

    @property
    def engine(self) -> str:
        return self._writer.engine

    @property
    def fraction(self) -> float | None:
        return self._writer.fraction

    def ready(self, decode: dict[str, Any] | None) -> None:
        self._writer.ready(decode)

    def write(self, job: WriteJob) -> WriteResult:
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(job, done), name="export-progress", daemon=True)
        watcher.start()
        try:
            return self._writer.write(job)
        finally:
            done.set()
            watcher.join()
            self._show("")

    def _watch(self, job: WriteJob, done: threading.Event) -> None:
        size = sum(one.to_offset - one.from_offset for one in job.ranges)  # an offset is a byte address
        began: float | None = None
        while not done.wait(EVERY_S):
            try:
                fraction = self._writer.fraction
            except Exception:  # an error of the display must not end the export
                fraction = None
            if fraction is not None and began is None:
                began = time.monotonic()
            elapsed_s = time.monotonic() - began if began is not None else 0.0
            self._show(line(job.messages, size, fraction, elapsed_s))


def timed(say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Callable[[str], None]:
    """For ``on_step`` of a run: each step but the first, ``planned``, with the seconds since the one before it."""
    before: float | None = None

    def reached(step: str) -> None:
        nonlocal before
        now = clock()
        say(step if step == "planned" or before is None else f"{step} in {now - before:.2f} s")
        before = now

    return reached


def line(messages: int | None, size: int, fraction: float | None, elapsed_s: float) -> str:
    """``1,200,000 of 4,000,000 messages, 240 of 800 MB, 600,000/s, 5 s left``; ``elapsed_s``: since the first
    known fraction."""
    if fraction is None:
        what = f"{size / 1e6:,.0f} MB" if messages is None else f"{messages:,} messages, {size / 1e6:,.0f} MB"
        return f"{what}: starting"
    words = []
    if messages is not None:
        words.append(f"{round(messages * fraction):,} of {messages:,} messages")
    words.append(f"{size * fraction / 1e6:,.0f} of {size / 1e6:,.0f} MB")
    if fraction > 0 and elapsed_s > 0:
        per_second = fraction / elapsed_s
        words.append(
            f"{messages * per_second:,.0f}/s" if messages is not None else f"{size * per_second / 1e6:,.0f} MB/s"
        )
        words.append(f"{(1 - fraction) / per_second:,.0f} s left")
    return ", ".join(words)
