"""How fast connections may come: in all, through one listener, and from one address (KIP-612).

It decides and does nothing. A listener beyond its rate takes nothing out of the kernel's queue until the rate is the
limit again; who is connected is served on. The limit of all does not hold for the listener of brokers, where clients
have another one: those who reconnect all at once do not keep brokers from one another. Nor does that of an address.

A connection of an address beyond its rate is taken and closed a little later, as by Kafka: closed at once it would be
made again at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from klog.security.rates import Meters, Rate, Windows

SETTING: Final = "max.connection.creation.rate"


@dataclass(frozen=True, slots=True)
class ArrivalLimits:
    """Connections per second, over Kafka's windows: after a silence so many may come at once as all but one allow."""

    windows: Windows = Windows(11, 1.0)
    total: float | None = None
    """None: any."""
    per_listener: Mapping[str, float] = field(default_factory=dict)
    listener_of_brokers: str | None = None
    """None where clients use it, too."""


@dataclass(frozen=True, slots=True)
class AddressLimits:
    """Quotas of addresses. ``rate`` gives connections per second, None: any; ``note`` is called with an address and how
    long it has to wait."""

    rate: Callable[[str], float | None]
    note: Callable[[str, float], None]


class Arrivals:
    """The connections that came lately. Event loop only, but for `slowed_s`."""

    def __init__(self, limits: ArrivalLimits) -> None:
        self.slowed_s: dict[str, float] = {}
        """Listener -> how long it has taken no connection for its rate. Any thread."""
        self._limits = limits
        self._all = Rate(limits.windows)
        self._own = {listener: Rate(limits.windows) for listener in limits.per_listener}
        self.is_limited = limits.total is not None or bool(limits.per_listener)
        self.of_addresses: Meters[str, Rate] = Meters(lambda: Rate(limits.windows))
        self.address_limits: AddressLimits | None = None
        """None while no address has a quota."""

    def count(self, listener: str, now_s: float) -> None:
        """A connection has come."""
        if listener != self._limits.listener_of_brokers:
            self._all.add(1.0, now_s)
        own = self._own.get(listener)
        if own is not None:
            own.add(1.0, now_s)

    def wait_s(self, listener: str, now_s: float) -> tuple[float, str]:
        """How long the listener must take no further one, and the setting that bounds it; 0.0: it may take one."""
        limits, wait_s, setting = self._limits, 0.0, SETTING
        if limits.total is not None and listener != limits.listener_of_brokers:
            wait_s = self._all.wait_s(limits.total, now_s)
        own = self._own.get(listener)
        if own is not None and (own_s := own.wait_s(limits.per_listener[listener], now_s)) > wait_s:
            wait_s, setting = own_s, f"listener.name.{listener.lower()}.{SETTING}"
        return wait_s, setting

    def held_s(self, listener: str, ip: str, now_s: float) -> float:
        """A connection of an address has come: how long it is held before it is closed; 0.0: it may stay."""
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
        rate.add(-1.0, now_s)  # else who never stops trying would never come in
        limits.note(ip, wait_s)
        return min(wait_s, self._limits.windows.size_s)

    def slow(self, listener: str, wait_s: float) -> bool:
        """Count a wait; whether it is the listener's first."""
        is_first = listener not in self.slowed_s
        self.slowed_s[listener] = self.slowed_s.get(listener, 0.0) + wait_s
        return is_first
