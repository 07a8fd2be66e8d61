"""Limits the open files and indexes of all segments of a broker.

Strategy: a segment opens its file at first use and registers it here. Above the limit the pool releases the least
recently used (second chance, so that a use costs one attribute and no lock). It drops a reference; the descriptor
closes when the last FileRange in flight drops its own.
Rule: a file with unflushed bytes stays open, because the kernel reports a write-back error to open descriptors only.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from klog.storage.batch_index import IndexBudget

OPEN_FILES_MAX = 512
"""Half of the usual soft limit of 1,024 descriptors."""
TRIM_STEPS_MAX = 256
"""Files looked at per call; with more in use, each call releases some."""


class Pooled(Protocol):
    """An object with a file that it can reopen."""

    was_used: bool

    @property
    def may_let_go(self) -> bool: ...
    def let_go(self) -> None: ...


class FilePool:
    """Thread-safe."""

    def __init__(self, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.open_files_max = open_files_max
        self._lock = threading.Lock()
        self._ring: deque[Pooled] = deque()
        self.index_budget = IndexBudget()

    def __len__(self) -> int:
        return len(self._ring)

    def opened(self, pooled: Pooled) -> None:
        """Register an open file, and release others above the limit."""
        self._ring.append(pooled)
        self.trim(keep=pooled)  # it is about to be written to

    def trim(self, keep: Pooled | None = None) -> None:
        """Release files above the limit, but not ``keep``. Cheap below it."""
        if len(self._ring) <= self.open_files_max:
            return
        with self._lock:
            ring = self._ring
            for _ in range(min(2 * len(ring), TRIM_STEPS_MAX)):
                if len(ring) <= self.open_files_max:
                    return
                oldest = ring.popleft()
                if oldest is keep or oldest.was_used or not oldest.may_let_go:
                    oldest.was_used = False
                    ring.append(oldest)
                else:
                    oldest.let_go()

    def closed(self, pooled: Pooled) -> None:
        """Unregister a file that its owner has closed."""
        with self._lock:
            try:
                self._ring.remove(pooled)
            except ValueError:
                pass
