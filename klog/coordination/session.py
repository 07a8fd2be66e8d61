"""The states of a ZooKeeper session, as klog sees them, and which may follow which.

    CONNECTED ──lost connection──► SUSPENDED ──reconnected in time──► CONNECTED
        │                              │
        └───────────server says────────┴──► EXPIRED ──new session──► CONNECTED

SUSPENDED: nobody knows; the ephemerals still stand until the server's time-out, watches may have fired unseen, writes
in flight may or may not have happened. EXPIRED: the server has removed our ephemerals; whoever registered must do so
again under the new session, whose id differs.
"""

from __future__ import annotations

from enum import Enum


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


FOLLOWS: dict[SessionState | None, frozenset[SessionState]] = {
    None: frozenset({SessionState.CONNECTED}),
    SessionState.CONNECTED: frozenset({SessionState.SUSPENDED, SessionState.EXPIRED}),
    SessionState.SUSPENDED: frozenset({SessionState.CONNECTED, SessionState.EXPIRED}),
    SessionState.EXPIRED: frozenset({SessionState.CONNECTED}),
}
"""None is the time before the first connection."""
