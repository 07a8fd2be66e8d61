"""How a broker connects to others: by which of their listeners, and with what security.

All brokers of a cluster have the same listener between them, but for the time of a rolling restart that changes it. A
cluster is closed by such a restart: some brokers have the secured listener already, others the plain one alone. So a
broker goes by the listener between brokers where the other one has it, and else by a plain one that both have. A broker
without a plain listener never connects to another in the open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from klog.coordination.brokers import Broker
from klog.security.client_security import OPEN, PLAINTEXT, ClientSecurity


class PeerAddress(NamedTuple):
    """One address of a broker, and how to connect to it."""

    host: str
    port: int
    security: ClientSecurity


@dataclass(frozen=True, slots=True)
class PeerAddresses:
    """``listener`` is this broker's own between brokers, with its ``security``; ``plain`` are its own plain ones."""

    listener: str = PLAINTEXT
    security: ClientSecurity = OPEN
    plain: tuple[str, ...] = (PLAINTEXT,)

    def to(self, endpoints: Mapping[str, tuple[str, int]], inter_address: tuple[str, int]) -> PeerAddress:
        """To a broker with these listeners, which says that brokers reach it at ``inter_address``. One that names no
        listeners is older than they are, and is plain."""
        if self.listener in endpoints:
            return PeerAddress(*endpoints[self.listener], self.security)
        shared = next((endpoints[one] for one in self.plain if one in endpoints), None)
        if shared is not None:
            return PeerAddress(*shared, OPEN)
        return PeerAddress(*inter_address, self.security if endpoints or not self.plain else OPEN)

    def to_broker(self, there: Broker) -> PeerAddress:
        return self.to({one.listener: (one.host, one.port) for one in there.endpoints}, there.inter_address)

    def to_socket(self, there: Broker) -> ClientSecurity:
        """How to connect to the broker's `Broker.probe_address`: the socket of its own listener between brokers."""
        protocol = next((one.protocol for one in there.endpoints if (one.host, one.port) == there.inter_address), None)
        if protocol == PLAINTEXT or (protocol is None and self.plain):
            return OPEN
        return self.security
