"""Progress of a batch while it is written: messages, bytes, rate and time left, from the brokers' counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from klog.export.batch_writer import BatchWriter, WriteJob

EVERY_S: Final = 0.5


@contextmanager
def watching(writer: BatchWriter, job: WriteJob, show: Callable[[str], None] | None) -> Iterator[None]:
    """Report every half second how far the writer is with the job. ``show``: shows a line in place of the previous one;
    called with an empty line at the end. None: nobody looks."""
    if show is None:
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(writer, job, show, done), name="export-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        show("")


def _watch(writer: BatchWriter, job: WriteJob, show: Callable[[str], None], done: threading.Event) -> None:
    size = sum(one.to_offset - one.from_offset for one in job.ranges)  # an offset is a byte address
    began: float | None = None
    while not done.wait(EVERY_S):
        try:
            fraction = writer.fraction
        except Exception:  # an error of the display must not end the export
            fraction = None
        if fraction is not None and began is None:
            began = time.monotonic()
        elapsed_s = time.monotonic() - began if began is not None else 0.0
        show(line(job.messages, size, fraction, elapsed_s))


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
