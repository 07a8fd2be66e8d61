"""One batch of a running query, as the steps and the sink see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from klog.export.stores.store import Store


@dataclass(frozen=True)
class Batch:
    """``query``: its id, which is in its checkpoint and outlives restarts. ``checkpoint``: the query's folder."""

    session: Any
    query: str
    number: int
    checkpoint: Store


Step = Callable[[Any, Batch], Any]
"""From the frame of a batch to another: what Spark cannot do on a stream. A repeated batch must give the same."""


class Sink(Protocol):
    """Where results go."""

    def check(self, frame: Any) -> None:
        """Raise before the query starts what would fail in its first batch. ``frame``: for its columns; None where they
        are known in a batch only."""
        ...

    def write(self, frame: Any, batch: Batch) -> None:
        """Have the rows of a batch there once, however often this is called for it."""
        ...

    def __str__(self) -> str:
        """As `klog stream` names it: ``topic:counts``, ``export:/data/counts``."""
        ...
