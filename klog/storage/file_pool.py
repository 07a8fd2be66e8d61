"""How many segment files are open at once.

Strategy: a segment opens its file when it is first needed and registers it here. Above the limit the pool lets go of
the one unused for longest (second chance, so that a use costs one attribute and no lock). Letting go drops a reference;
the descriptor closes when the last FileRange in flight drops its own.
Rule: a file with bytes not yet flushed is never let go, because a write-back error is told to open descriptors.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

OPEN_FILES_MAX = 512
"""Half of the usual soft limit of 1,024 descriptors; a broker that raised its limit passes more."""


class Pooled(Protocol):
    """What the pool holds: a thing with a file that it can do without."""

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

    def __len__(self) -> int:
        return len(self._ring)

    def opened(self, pooled: Pooled) -> None:
        """Remember one more open file, and let go of others where there are too many."""
        with self._lock:
            self._ring.append(pooled)
            chances = 2 * len(self._ring)
            while len(self._ring) > self.open_files_max and chances:
                chances -= 1
                oldest = self._ring.popleft()
                if oldest is pooled or oldest.was_used or not oldest.may_let_go:
                    oldest.was_used = False
                    self._ring.append(oldest)
                else:
                    oldest.let_go()

    def closed(self, pooled: Pooled) -> None:
        """Forget a file that its owner gave up."""
        with self._lock:
            try:
                self._ring.remove(pooled)
            except ValueError:
                pass
