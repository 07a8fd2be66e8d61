"""`klog export run --follow`: the same exactly-once run again and again until a signal stops it. Blocks.

It keeps no other state: each round continues after the last committed batch, as any run does. A round without new
messages commits nothing and starts no job. A temporary error (a broker, ZooKeeper, a topic without a leader, a full
disk) is reported and retried; a permanent one (another cluster, messages that are gone) ends the command.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from klog.errors import HostError, KlogError, PeerError, RequestTimedOut, StorageError, UsageError
from klog.export.rows import ExportedRange

PAUSE_MAX_S = 30.0
LOOK_EVERY_S = 1.0
STORAGE_TRIES = 5
"""A full disk may be emptied; a store that fails so often in a row is not going to work by itself."""


def follow(
    one_run: Callable[[], Sequence[ExportedRange]],
    every_s: float,
    stop: threading.Event,
    *,
    on_batch: Callable[[Sequence[ExportedRange]], None],
    is_due: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> int:
    """Run, show what was committed, wait until ``every_s`` after the last begin or until ``is_due``, and again; the
    batches committed. ``is_due`` is asked once a second.

    ``stop`` is heard between two runs: the batch in hand is committed or, where that fails, discarded first. Raises
    what `may_pass` does not let pass, and whatever the very first run raises.
    """
    batches = failures = 0
    first = True
    while not stop.is_set():
        began = time.monotonic()
        try:
            rows = one_run()
        except KlogError as error:
            if stop.is_set():  # the signal may have stopped the JVM too: the current batch is discarded
                say(f"{error.message}; nothing of this batch was committed")
                break
            failures += 1
            if first or not may_pass(error, failures):
                raise
            pause = min(PAUSE_MAX_S, max(every_s, 0.5) * 2 ** min(failures - 1, 6))
            say(f"{error.message}; trying again in {pause:.3g} s")
            stop.wait(pause)
            continue
        if failures:
            say(f"goes on, after {failures} {'try' if failures == 1 else 'tries'} that failed")
        first, failures = False, 0
        if rows:
            batches += 1
            on_batch(rows)
        while not stop.is_set() and (left_s := began + every_s - time.monotonic()) > 0 and not is_due():
            stop.wait(min(left_s, LOOK_EVERY_S))
    return batches


def may_pass(error: KlogError, failures: int) -> bool:
    """Whether the same run may succeed later; ``failures`` in a row so far."""
    if isinstance(error, UsageError):
        return False
    if isinstance(error, StorageError):
        return failures < STORAGE_TRIES
    return error.retriable or isinstance(error, HostError | PeerError | RequestTimedOut)
