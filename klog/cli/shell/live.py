"""What changes in a cluster, kept fresh in the background: names, for completion, and what the prompt shows.

Rules: asking never waits and never fails; nothing is printed; a refresh that fails leaves what was known. What is known
of a cluster that the shell has left is never shown for the next one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FRESH_S = 5.0
"""How old an answer may be before a question starts a refresh: a topic made elsewhere shows by the second Tab."""

ANSWERS_MAX = 200
"""Topics and folders whose partitions and children are remembered; then all are forgotten."""

FIRST_ANSWER_S = 2.0
"""How long completion, in its thread, waits for names that were never asked for before."""


@dataclass(slots=True)
class _Answer:
    """What is known, as of ``read_at``; () and None before the first answer. ``refresh`` is under way."""

    known: Any = ()
    read_at: float | None = None
    refresh: threading.Thread | None = None


class Live:
    """What ``fetch`` gives for a kind and what it is about, as of a while ago. Thread-safe.

    ``fresh_s``: how old the answers of a kind may be, if not `FRESH_S`. ``changed`` is called after each refresh.
    """

    def __init__(
        self,
        fetch: Callable[[str, str], Any],
        *,
        fresh_s: Mapping[str, float] | None = None,
        changed: Callable[[], None] = lambda: None,
        patience_s: float = FIRST_ANSWER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._fresh_s = fresh_s or {}
        self._changed = changed
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], _Answer] = {}

    def now(self, kind: str, about: str = "") -> Any:
        """What is known, at once; starts a refresh where that is old."""
        return self._asked(kind, about).known

    def soon(self, kind: str, about: str = "") -> Any:
        """The same, after a short wait where nothing is known yet: not for the thread that takes the keys."""
        answer = self._asked(kind, about)
        refresh = answer.refresh
        if not answer.known and refresh is not None:
            refresh.join(self._patience_s)
        return answer.known

    def forget_age(self) -> None:
        """The next question starts a refresh: a command may have changed something."""
        with self._lock:
            for answer in self._answers.values():
                answer.read_at = None

    def forget(self) -> None:
        """Forget all: it was another cluster's."""
        with self._lock:
            self._answers = {}

    def _asked(self, kind: str, about: str) -> _Answer:
        with self._lock:
            if len(self._answers) > ANSWERS_MAX:
                self._answers = {}
            answer = self._answers.setdefault((kind, about), _Answer())
            fresh_s = self._fresh_s.get(kind, FRESH_S)
            is_fresh = answer.read_at is not None and self._clock() - answer.read_at < fresh_s
            if not is_fresh and answer.refresh is None:
                answer.refresh = threading.Thread(
                    target=self._read, args=(answer, kind, about), name="shell-refresh", daemon=True
                )
                answer.refresh.start()
            return answer

    def _read(self, answer: _Answer, kind: str, about: str) -> None:
        try:
            found = self._fetch(kind, about)
        except Exception:
            found = answer.known  # no cluster, no answer: completion then offers what it knew, and says nothing
        with self._lock:
            answer.known = found
            answer.read_at = self._clock()
            answer.refresh = None
        self._changed()
