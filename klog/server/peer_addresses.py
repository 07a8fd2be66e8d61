"""Connections to other brokers: which of their listeners to use, and with what security.

All brokers of a cluster have the same inter-broker listener, except during a rolling restart that changes it. A cluster
is secured by such a restart: some brokers have the secured listener already, others only the plaintext one. So a broker
uses the inter-broker listener if the other one has it, and else a plaintext one that both have. A broker without a
plaintext listener never connects in plaintext.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from klog.coordination.brokers import Broker
from klog.security.client_security import OPEN, PLAINTEXT, ClientSecurity


class PeerAddress(NamedTuple):
    """A broker's address, and how to connect to it."""

    host: str
    port: int
    security: ClientSecurity


@dataclass(frozen=True, slots=True)
class PeerAddresses:
    """``listener``: this broker's inter-broker listener, with its ``security``; ``plain``: its plaintext ones."""

    listener: str = PLAINTEXT
    security: ClientSecurity = OPEN
    plain: tuple[str, ...] = (PLAINTEXT,)

    def to(self, endpoints: Mapping[str, tuple[str, int]], inter_address: tuple[str, int]) -> PeerAddress:
        """The address of a broker with these listeners, which advertises ``inter_address`` to brokers. One without
        endpoints is an older one, and plaintext."""
        if self.listener in endpoints:
            return PeerAddress(*endpoints[self.listener], self.security)
        shared = next((endpoints[one] for one in self.plain if one in endpoints), None)
        if shared is not None:
            return PeerAddress(*shared, OPEN)
        return PeerAddress(*inter_address, self.security if endpoints or not self.plain else OPEN)

    def to_broker(self, there: Broker) -> PeerAddress:
        return self.to({one.listener: (one.host, one.port) for one in there.endpoints}, there.inter_address)

    def to_socket(self, there: Broker) -> ClientSecurity:
        """Security for the broker's `Broker.probe_address`: the socket of its own inter-broker listener."""
        protocol = next((one.protocol for one in there.endpoints if (one.host, one.port) == there.inter_address), None)
        if protocol == PLAINTEXT or (protocol is None and self.plain):
            return OPEN
        return self.security
