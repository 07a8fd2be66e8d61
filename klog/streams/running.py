"""A stream that runs until it is stopped: started again from its checkpoint whenever it fails and may yet succeed.

What passes by itself (a broker away, a worker or the JVM of Spark killed) starts it again, after a pause that grows.
What does not (another topic under the name, messages that retention deleted, a batch with other rows than before) ends
it, and so does any failure of a new stream before its first batch, while the user still watches.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from klog.errors import KlogError, TimedOut
from klog.export.follow import PAUSE_MAX_S, STORAGE_TRIES, may_pass
from klog.spark.export import translating
from klog.spark.short_errors import PythonWorkerLost
from klog.streams.folder import Progress, StreamFolder

LOOK_EVERY_S = 0.5
REPORT_EVERY_S = 10.0
"""Without a new batch."""


def run(
    folder: StreamFolder,
    start: Callable[[], Any],
    stop: threading.Event,
    *,
    on_batch: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda text: None,
) -> Progress:
    """Run the query that ``start`` starts, until it ends, ``stop`` is set or the folder has a stop file. Blocks.

    ``start`` makes everything from nothing, since the JVM may be another one. Raises what `may_pass` does not let pass.
    """
    watched = _Watched(folder, stop, on_batch)
    failures = 0
    while not watched.is_stopping():
        before = watched.progress.batch
        try:
            with translating():
                watched.until_over(start())
            break
        except KlogError as error:
            if watched.is_stopping():
                break
            has_moved = watched.progress.batch != before
            failures = 1 if has_moved else failures + 1
            # Spark gives a Python worker 10 s to start, which a busy machine may not keep; or one was killed.
            tries = STORAGE_TRIES if isinstance(error, TimedOut | PythonWorkerLost) else 1
            is_new = watched.progress.batch is None
            if (is_new and failures >= tries) or not may_pass(error, failures):
                watched.report(error=error.message, is_over=True)
                raise
            pause_s = min(PAUSE_MAX_S, 0.5 * 2 ** min(failures - 1, 6))
            watched.report(error=error.message, restarts=watched.progress.restarts + 1)
            say(f"{error.message}; starting again from the checkpoint in {pause_s:.3g} s")
            stop.wait(pause_s)
    watched.report(is_over=True)
    return watched.progress


class _Watched:
    """One stream over its restarts."""

    def __init__(self, folder: StreamFolder, stop: threading.Event, on_batch: Callable[[Progress], None]) -> None:
        known = folder.progress() or Progress(at=now())
        # Its last batch is what it has until there is another one.
        self.progress = replace(known, restarts=0, late=0, error=None, is_over=False)
        self._folder = folder
        self._stop = stop
        self._on_batch = on_batch
        self._reported_at = 0.0
        self.report()

    def is_stopping(self) -> bool:
        if not self._stop.is_set() and self._folder.is_asked_to_stop():
            self._stop.set()
        return self._stop.is_set()

    def until_over(self, query: Any) -> None:
        """Until the query has ended or was stopped. Raises what it failed with."""
        try:
            is_over = False
            while not is_over and not self.is_stopping():
                is_over = query.awaitTermination(LOOK_EVERY_S)
                self._look(query)
        finally:
            if self._stop.is_set():
                query.stop()  # a batch in hand is given up, and begun again by the next start

    def _look(self, query: Any) -> None:
        for found in query.recentProgress:
            value = json.loads(found.json)
            if value["durationMs"].get("addBatch") is None:
                continue  # no batch, only a look for new messages
            if self.progress.batch is None or value["batchId"] > self.progress.batch:
                self.progress = after_batch(self.progress, value)
                self.report()
                self._on_batch(self.progress)
        if time.monotonic() - self._reported_at > REPORT_EVERY_S:
            self.report()

    def report(self, **changes: Any) -> None:
        self.progress = replace(self.progress, at=now(), **changes)
        self._folder.report(self.progress)
        self._reported_at = time.monotonic()


def after_batch(before: Progress, value: dict[str, Any]) -> Progress:
    """``value``: Spark's StreamingQueryProgress as JSON."""
    states = value.get("stateOperators") or []
    offsets: dict[str, dict[str, int]] = {}
    for source in value.get("sources") or []:
        end = source.get("endOffset")
        end = json.loads(end) if isinstance(end, str) else end
        for topic, partitions in (end or {}).get("offsets", {}).items():
            offsets[topic] = {number: int(at) for number, at in partitions.items()}
    return replace(
        before,
        batch=int(value["batchId"]),
        batch_at=value["timestamp"],
        batch_ms=int(value["durationMs"]["triggerExecution"]),
        rows=int(value["numInputRows"]),
        rows_per_s=round(float(value.get("processedRowsPerSecond") or 0.0), 1),
        watermark=(value.get("eventTime") or {}).get("watermark"),
        state_rows=sum(int(one["numRowsTotal"]) for one in states) if states else None,
        state_bytes=sum(int(one["memoryUsedBytes"]) for one in states) if states else None,
        late=before.late + sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in states),
        offsets=offsets,
        error=None,
    )


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
