"""Logs why the broker ends connections of peers that it rejects: one line per reason every ten seconds."""

from __future__ import annotations

import logging
from typing import Final

from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import PeerError

log = logging.getLogger(__name__)

SAID_EVERY_S: Final = 10.0
REASONS_MAX: Final = 100


class WrongProtocol(PeerError):
    """The peer speaks another protocol than the listener."""


class RejectedPeers:
    """A line has the number of peers that were rejected for its reason since the line before."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.count = 0
        self._clock = clock
        self._said: dict[str, tuple[float, int]] = {}
        """Reason -> when it was logged last, and how many came since then."""

    def log(self, peer: str, reason: str, found: str = "") -> None:
        """The connection of ``peer`` ends for this reason. ``found``: what the peer chose; it makes no other reason."""
        self.count += 1
        now_s = self._clock.monotonic_s()
        said_s, unsaid = self._said.get(reason, (float("-inf"), 0))
        if now_s - said_s < SAID_EVERY_S:
            self._said[reason] = said_s, unsaid + 1
            return
        if reason not in self._said and len(self._said) >= REASONS_MAX:
            del self._said[next(iter(self._said))]
        self._said[reason] = now_s, 0
        more = f" ({unsaid} more since the last line of this kind)" if unsaid else ""
        said = f"{reason}: {found}" if found else reason
        log.warning("closing the connection of %s: %s%s", peer, said, more, extra={"peer": peer})
