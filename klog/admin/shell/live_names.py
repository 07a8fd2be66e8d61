"""Names that change, kept fresh in the background for completion.

Rules: asking never waits and never fails; nothing is printed; a refresh that fails leaves what was known.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

REFRESH_AFTER_S = 5.0
"""How old names may be before the next question starts a refresh: a topic made elsewhere shows by the second Tab."""


class LiveNames:
    """The names that ``fetch`` gives, as of a while ago. Thread-safe."""

    def __init__(self, fetch: Callable[[], list[str]], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._names: tuple[str, ...] = ()
        self._fetched_at: float | None = None
        self._refresh: threading.Thread | None = None

    def now(self) -> tuple[str, ...]:
        """What is known, at once; starts a refresh where that is old."""
        with self._lock:
            fresh = self._fetched_at is not None and self._clock() - self._fetched_at < REFRESH_AFTER_S
            if not fresh and self._refresh is None:
                self._refresh = threading.Thread(target=self._run, name="names-refresh", daemon=True)
                self._refresh.start()
            return self._names

    def forget_age(self) -> None:
        """The next question starts a refresh: a command may have changed the names."""
        with self._lock:
            self._fetched_at = None

    def wait(self, timeout_s: float) -> None:
        """Until the refresh under way, if any, is done."""
        refresh = self._refresh
        if refresh is not None:
            refresh.join(timeout_s)

    def _run(self) -> None:
        names: tuple[str, ...] | None = None
        try:
            names = tuple(sorted(self._fetch()))
        except Exception:
            pass  # no cluster, no answer: completion then offers what it knew, and says nothing
        with self._lock:
            if names is not None:
                self._names = names
            self._fetched_at = self._clock()
            self._refresh = None
