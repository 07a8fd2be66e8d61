"""Names that change, kept fresh in the background for completion: topics, also deleted ones, groups, brokers, schemas,
partitions and columns of a topic, znodes.

Rules: asking never fails; nothing is printed; a refresh that fails leaves what was known.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

REFRESH_AFTER_S = 5.0
"""How old names may be before the next question starts a refresh: a topic made elsewhere shows by the second Tab."""

PLACES_MAX = 200
"""Topics and folders whose partitions and children are remembered; then all are forgotten."""

FIRST_ANSWER_S = 0.5
"""How long completion, in its thread, waits for names that were never asked for before."""


class _Place:
    """Names of one kind; ``names`` are as of ``read_at``, if that is known, and ``refresh`` is under way."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.read_at: float | None = None
        self.refresh: threading.Thread | None = None


class LiveNames:
    """The names that ``fetch`` gives for a kind and what they are of, as of a while ago. Thread-safe."""

    def __init__(
        self,
        fetch: Callable[[str, str], list[str]],
        *,
        patience_s: float = FIRST_ANSWER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        self._places: dict[tuple[str, str], _Place] = {}

    def now(self, kind: str, about: str = "") -> tuple[str, ...]:
        """What is known, at once; starts a refresh where that is old."""
        return self._asked(kind, about).names

    def soon(self, kind: str, about: str = "") -> tuple[str, ...]:
        """The same, after a short wait where nothing is known yet: not for the thread that takes the keys."""
        place = self._asked(kind, about)
        refresh = place.refresh
        if not place.names and refresh is not None:
            refresh.join(self._patience_s)
        return place.names

    def forget_age(self) -> None:
        """The next question starts a refresh: a command may have changed the names."""
        with self._lock:
            for place in self._places.values():
                place.read_at = None

    def forget(self) -> None:
        """Forget all: the names were another cluster's."""
        with self._lock:
            self._places = {}

    def _asked(self, kind: str, about: str) -> _Place:
        with self._lock:
            if len(self._places) > PLACES_MAX:
                self._places = {}
            place = self._places.setdefault((kind, about), _Place())
            fresh = place.read_at is not None and self._clock() - place.read_at < REFRESH_AFTER_S
            if not fresh and place.refresh is None:
                place.refresh = threading.Thread(
                    target=self._read, args=(place, kind, about), name="names-refresh", daemon=True
                )
                place.refresh.start()
            return place

    def _read(self, place: _Place, kind: str, about: str) -> None:
        names: tuple[str, ...] | None = None
        try:
            names = tuple(sorted(self._fetch(kind, about)))
        except Exception:
            pass  # no cluster, no answer: completion then offers what it knew, and says nothing
        with self._lock:
            if names is not None:
                place.names = names
            place.read_at = self._clock()
            place.refresh = None
