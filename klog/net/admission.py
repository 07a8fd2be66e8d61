"""Limits on the number of connections: in all, per listener and per address, under Kafka's settings (rule P2).

It decides and does no I/O.

Rules
    * Beyond the total or a listener's limit, new connections wait in the kernel's queue.
    * Beyond its address's limit, a new connection is closed.
    * The inter-broker listener, if clients use another one, accepts beyond the total, as Kafka's does: for each such
      connection one of another listener is closed (`Victims`). Where there is none to close, it waits.

Closed first: connections that are not authenticated, then those without open requests, then the others; among equals
the one silent for longest. Connections of brokers stay.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.net.connection import Connection
from klog.net.rejected_peers import RejectedPeers

VICTIMS_AT_ONCE: Final = 64
"""Victims found in one walk over all connections, so that many brokers at once cost few walks."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits from the settings and the machine."""

    total: int = sys.maxsize
    total_from: str = "max.connections"
    """The setting behind ``total``, for the log."""
    per_ip: int = sys.maxsize
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """Address -> its own limit."""
    per_listener: Mapping[str, int] = field(default_factory=dict)
    """Listener -> ``listener.name.NAME.max.connections``; without an entry only ``total`` bounds it."""
    listener_of_brokers: str | None = None
    """The inter-broker listener; None if clients use it, too."""


class Full(NamedTuple):
    """Why a listener accepts no more."""

    limit: str
    """The setting."""
    is_own: bool
    """Whether it is the listener's own limit, not the total."""


class Admission:
    """Counts connections against the limits. Event loop only."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.total = 0
        self.of_address: Counter[str] = Counter()
        self.of_listener: Counter[str] = Counter()
        self.refused = 0
        """Connections closed because their address had too many."""
        self.gave_way = 0
        """Connections closed to make room for another broker's."""

    def full(self, listener: str) -> Full | None:
        """The limit that keeps a listener from accepting; None if it may accept."""
        limits = self.limits
        here = self.of_listener[listener]
        own_max = limits.per_listener.get(listener, sys.maxsize)
        if here >= own_max:
            return Full(f"listener.name.{listener.lower()}.max.connections", True)
        if self.total < limits.total:
            return None
        if listener == limits.listener_of_brokers and self.total == limits.total and here < self.total:
            return None
        return Full(limits.total_from, False)

    def needs_room(self) -> bool:
        """Whether the total is exceeded, so that a connection must be closed."""
        return self.total > self.limits.total

    def too_many_of(self, ip: str) -> bool:
        """Whether an address has reached its limit."""
        return self.of_address[ip] >= self.limits.per_ip_overrides.get(ip, self.limits.per_ip)

    def enter(self, listener: str, ip: str) -> None:
        self.total += 1
        self.of_listener[listener] += 1
        self.of_address[ip] += 1

    def leave(self, listener: str, ip: str) -> None:
        self.total -= 1
        self.of_listener[listener] -= 1
        self.of_address[ip] -= 1
        if self.of_address[ip] <= 0:
            del self.of_address[ip]

    def refuse(self, peer: str, ip: str, rejected_peers: RejectedPeers) -> None:
        """Count and log a connection beyond its address's limit."""
        self.refused += 1
        setting = "max.connections.per.ip"
        if ip in self.limits.per_ip_overrides:
            setting += ".overrides"
        rejected_peers.log(peer, f"its address has {self.of_address[ip]} connections, as many as it may ({setting})")


class Victims:
    """Chooses the connection to close. Event loop only."""

    def __init__(self, spared_listener: str | None) -> None:
        self._spared = spared_listener
        self._found: list[tuple[Connection, float]] = []
        """In reverse order, each with its ``last_active_s`` when it was found."""

    def next(self, connections: Iterable[Connection]) -> Connection | None:
        """The connection to close; None if all must stay."""
        for is_fresh in (False, True):
            if is_fresh:
                others = (one for one in connections if one.listener != self._spared and not one.is_broker)
                found = heapq.nsmallest(VICTIMS_AT_ONCE, others, key=_worth)
                self._found = [(one, one.last_active_s) for one in reversed(found)]
            while self._found:
                one, active_s = self._found.pop()
                if not one.closed and not one.is_broker and (one.last_active_s == active_s or is_fresh):
                    return one
        return None


def _worth(one: Connection) -> tuple[bool, bool, float]:
    return one.due_s == math.inf, not one.idle, one.last_active_s
