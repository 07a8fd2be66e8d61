"""Limits on the rate of new connections: in all, per listener, and per address (KIP-612).

It decides and does no I/O. A listener beyond its rate leaves new connections in the kernel's queue until the rate is
below the limit; open connections are served. Neither the total nor an address's quota applies to the inter-broker
listener, if clients use another one: clients that reconnect at once do not keep brokers apart.

A connection beyond its address's quota is accepted and closed a little later, as by Kafka: closed at once, the client
would reconnect at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from klog.security.rates import Meters, Rate, Windows

SETTING: Final = "max.connection.creation.rate"


@dataclass(frozen=True, slots=True)
class ArrivalLimits:
    """Connections per second, over Kafka's windows: after a silence, a burst of all windows but one is allowed."""

    windows: Windows = Windows(11, 1.0)
    total: float | None = None
    """None: no limit."""
    per_listener: Mapping[str, float] = field(default_factory=dict)
    listener_of_brokers: str | None = None
    """The inter-broker listener; None if clients use it, too."""


@dataclass(frozen=True, slots=True)
class AddressLimits:
    """Quotas of addresses. ``rate``: connections per second of an address, None: no limit. ``note``: called with an
    address and its throttle time in seconds."""

    rate: Callable[[str], float | None]
    note: Callable[[str, float], None]


class Arrivals:
    """Counts recent connections. Event loop only, except `slowed_s`."""

    def __init__(self, limits: ArrivalLimits) -> None:
        self.slowed_s: dict[str, float] = {}
        """Listener -> seconds for which its rate stopped it from accepting. Any thread."""
        self._limits = limits
        self._all = Rate(limits.windows)
        self._own = {listener: Rate(limits.windows) for listener in limits.per_listener}
        self.is_limited = limits.total is not None or bool(limits.per_listener)
        self.of_addresses: Meters[str, Rate] = Meters(lambda: Rate(limits.windows))
        self.address_limits: AddressLimits | None = None
        """None while no address has a quota."""

    def count(self, listener: str, now_s: float) -> None:
        """Count a new connection."""
        if listener != self._limits.listener_of_brokers:
            self._all.add(1.0, now_s)
        own = self._own.get(listener)
        if own is not None:
            own.add(1.0, now_s)

    def wait_s(self, listener: str, now_s: float) -> tuple[float, str]:
        """Seconds until the listener may accept, and the setting that limits it; 0.0: now."""
        limits, wait_s, setting = self._limits, 0.0, SETTING
        if limits.total is not None and listener != limits.listener_of_brokers:
            wait_s = self._all.wait_s(limits.total, now_s)
        own = self._own.get(listener)
        if own is not None and (own_s := own.wait_s(limits.per_listener[listener], now_s)) > wait_s:
            wait_s, setting = own_s, f"listener.name.{listener.lower()}.{SETTING}"
        return wait_s, setting

    def held_s(self, listener: str, ip: str, now_s: float) -> float:
        """Seconds until a new connection of an address is to be closed; 0.0: it stays."""
        limits = self.address_limits
        if limits is None or listener == self._limits.listener_of_brokers:
            return 0.0
        limit = limits.rate(ip)
        if limit is None:
            return 0.0
        rate = self.of_addresses.of(ip, now_s)
        rate.add(1.0, now_s)
        wait_s = rate.wait_s(limit, now_s)
        if not wait_s:
            return 0.0
        rate.add(-1.0, now_s)  # else an address that keeps trying would never get in
        limits.note(ip, wait_s)
        return min(wait_s, self._limits.windows.size_s)

    def slow(self, listener: str, wait_s: float) -> bool:
        """Count a wait; returns whether it is the listener's first."""
        is_first = listener not in self.slowed_s
        self.slowed_s[listener] = self.slowed_s.get(listener, 0.0) + wait_s
        return is_first
