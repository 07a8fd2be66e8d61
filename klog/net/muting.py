"""Muted connections: nothing is read from a client that exceeds its quota (KIP-219)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Muting:
    """True while the connection is muted. Event loop only."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, at_end: set[Callable[[], object]], go_on: Callable[[], object]
    ) -> None:
        """``at_end``: callbacks of the connection's end. ``go_on``: called when the time is over."""
        self._loop = loop
        self._at_end = at_end
        self._go_on = go_on
        self._until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return self._timer is not None

    def extend(self, seconds: float) -> None:
        """Mute for ``seconds`` from now; never shortens."""
        self._until_s = max(self._until_s, self._loop.time() + seconds)
        if self._timer is None:
            self._at_end.add(self.cancel)
            self._timer = self._loop.call_at(self._until_s, self._is_due)

    def cancel(self) -> None:
        """Call when the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _is_due(self) -> None:
        if self._loop.time() < self._until_s:  # it was extended
            self._timer = self._loop.call_at(self._until_s, self._is_due)
            return
        self._timer = None
        self._at_end.discard(self.cancel)
        self._go_on()
