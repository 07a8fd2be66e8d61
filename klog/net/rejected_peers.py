"""Logs rejected connections: one line per reason every ten seconds."""

from __future__ import annotations

import logging
from typing import Final

from klog.clock import SYSTEM_CLOCK
from klog.errors import PeerError

log = logging.getLogger(__name__)

SAID_EVERY_S: Final = 10.0
REASONS_MAX: Final = 100


class WrongProtocol(PeerError):
    """The peer speaks another protocol than the listener's."""


class RejectedPeers:
    """Each line has the number of peers rejected for its reason since the last line."""

    def __init__(self) -> None:
        self.count = 0
        self._said: dict[str, tuple[float, int]] = {}
        """Reason -> time of its last line, and the number since."""

    def log(self, peer: str, reason: str, found: str = "") -> None:
        """Log or count a rejected peer. ``found``: a value chosen by the peer; not a part of the reason."""
        self.count += 1
        now_s = SYSTEM_CLOCK.monotonic_s()
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
