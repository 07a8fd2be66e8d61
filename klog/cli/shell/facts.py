"""What the prompt and the toolbar say of the cluster, kept fresh in the background.

Rules: asking never waits and never fails. Facts of a cluster that the shell has left are never shown for the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from klog.errors import KlogError

if TYPE_CHECKING:
    from klog.admin.health.snapshot import Snapshot

LAG_EVERY = 3
"""The lag of groups, which costs the brokers more, is read at every third refresh."""


class WorstLag(NamedTuple):
    """The group that is furthest behind, over all its partitions; 0 messages: none is."""

    group: str
    messages: int


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Of one moment. ``known`` counts brokers that live or that have replicas; ``worst_lag`` is None while it is not
    known; ``trouble`` is why nothing is."""

    live: int = 0
    known: int = 0
    controller: int | None = None
    under_replicated: int = 0
    offline: int = 0
    worst_lag: WorstLag | None = None
    trouble: str | None = None


def facts_of(snapshot: Snapshot) -> ClusterFacts:
    """What a snapshot says."""
    from klog.admin.health.verdict import broker_states, count_partitions, group_lags

    if snapshot.metadata is None:
        return ClusterFacts(trouble=snapshot.no_brokers)
    states, counts = broker_states(snapshot), count_partitions(snapshot.metadata)
    behind = None if snapshot.no_groups is not None else next(iter(group_lags(snapshot).most_common(1)), ("", 0))
    return ClusterFacts(
        sum(one.state == "up" for one in states),
        len(states),
        snapshot.metadata.controller_id,
        counts.under_replicated,
        counts.offline,
        None if behind is None else WorstLag(*behind),
    )


Fetch = Callable[[bool], "Snapshot"]
"""Blocks; the argument says whether the lag of groups is wanted, too. May raise anything."""


class LiveFacts:
    """The newest facts, read every ``every_s`` seconds by a thread of its own. Thread-safe."""

    def __init__(self, fetch: Fetch, changed: Callable[[], None], every_s: float) -> None:
        self._fetch = fetch
        self._changed = changed
        self._every_s = every_s
        self._lock = threading.Lock()
        self._facts: ClusterFacts | None = None
        self._round = 0
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="shell-facts", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def now(self) -> ClusterFacts | None:
        """What is known, at once; None before the first answer."""
        with self._lock:
            return self._facts

    def refresh(self, *, other_cluster: bool = False) -> None:
        """Read at once: a command may have changed them. Those of another cluster are forgotten first."""
        with self._lock:
            if other_cluster:
                self._facts, self._round = None, self._round + 1
        self._wake.set()

    def stop(self) -> None:
        """End the thread, after the question that it waits for."""
        self._stopped = True
        self._wake.set()

    def _run(self) -> None:
        turn = 0
        while not self._stopped:
            with self._lock:
                asked_in = self._round
            found = self._read(with_lag=turn % LAG_EVERY == 1)
            with self._lock:
                fresh = asked_in == self._round
                if fresh:
                    self._facts = found
            if not fresh:
                turn = 0  # the shell talks to another cluster by now
                self._wake.clear()
                continue
            self._changed()
            if turn:  # what is quickly known is shown first, and the lag at once behind it
                self._wake.wait(self._every_s)
                self._wake.clear()
            turn += 1

    def _read(self, *, with_lag: bool) -> ClusterFacts:
        try:
            found = facts_of(self._fetch(with_lag))
        except KlogError as error:
            return ClusterFacts(trouble=error.message)
        except Exception as error:
            return ClusterFacts(trouble=str(error) or type(error).__name__)
        before = self.now()
        return found if with_lag or before is None else replace(found, worst_lag=before.worst_lag)
