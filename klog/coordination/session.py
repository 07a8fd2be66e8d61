"""The states of a ZooKeeper session, as klog sees them, and the transitions between them.

    CONNECTED ──lost connection──► SUSPENDED ──reconnected in time──► CONNECTED
        │                              │
        └───────────server says────────┴──► EXPIRED ──new session──► CONNECTED

SUSPENDED: the client does not know the session's state. Our ephemerals exist until the server's time-out, watches may
have fired unseen, writes in flight may or may not have happened. EXPIRED: the server has removed our ephemerals; each
registration must be made again under the new session, whose id differs.
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
"""State -> the states that may follow it. None is the time before the first connection."""
