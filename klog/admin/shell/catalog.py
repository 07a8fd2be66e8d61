"""All names that completion offers and that change: topics, also deleted ones, groups, brokers, partitions and columns
of a topic, znodes, schemas."""

from __future__ import annotations

import threading
from collections.abc import Callable

from klog.admin.shell.live_names import LiveNames

PLACES_MAX = 200
"""Topics and folders whose partitions and children are remembered; then all are forgotten."""

FIRST_ANSWER_S = 0.5
"""How long completion, in its thread, waits for names that were never asked for before."""


class LiveCatalog:
    """`LiveNames` of each kind, and for partitions and znodes of each topic and folder. Thread-safe."""

    def __init__(self, fetch: Callable[[str, str], list[str]], *, patience_s: float = FIRST_ANSWER_S) -> None:
        self._fetch = fetch
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._names: dict[tuple[str, str], LiveNames] = {}

    def now(self, kind: str, about: str = "") -> tuple[str, ...]:
        """What is known, at once."""
        return self._of(kind, about).now()

    def soon(self, kind: str, about: str = "") -> tuple[str, ...]:
        """The same, after a short wait where nothing is known yet: not for the thread that takes the keys."""
        names = self._of(kind, about)
        found = names.now()
        if not found:
            names.wait(self._patience_s)
            found = names.now()
        return found

    def forget_age(self) -> None:
        """The next question starts a refresh: a command may have changed the names."""
        with self._lock:
            for names in self._names.values():
                names.forget_age()

    def forget(self) -> None:
        """Forget all: the names were another cluster's."""
        with self._lock:
            self._names = {}

    def _of(self, kind: str, about: str) -> LiveNames:
        with self._lock:
            if len(self._names) > PLACES_MAX:
                self._names = {}
            names = self._names.get((kind, about))
            if names is None:
                names = self._names[kind, about] = LiveNames(lambda: self._fetch(kind, about))
            return names
