"""Where the leaders of followed partitions are reached, and how this broker opens a connection to one."""

from __future__ import annotations

from typing import NamedTuple

from klog.protocol import replica_fetch
from klog.protocol.introduction import Introduction
from klog.secret import Secret
from klog.security.client_security import OPEN, ClientSecurity
from klog.server.image import ClusterImage
from klog.server.peer_probe import introduction
from klog.server.runtime import Runtime


class LeaderEndpoint(NamedTuple):
    """The address of a leader, whether it is plain, and the incarnations of the leader and of this broker for which
    that holds."""

    host: str
    port: int
    is_open: bool
    incarnation: int
    own_incarnation: int


class LeaderEndpoints:
    """Event loop only."""

    def __init__(self, runtime: Runtime, image: ClusterImage, secret: Secret) -> None:
        self.client_id = runtime.identity.client_id
        self._identity = runtime.identity
        self._image = image
        self._secret = secret
        self._suspended: int | None = None
        """The incarnation whose session has ended: this broker asks no leader under it."""
        self._closed = False

    def endpoint_of(self, leader: int) -> LeaderEndpoint | None:
        """Where to reach a leader; None where it is not alive, or this broker may ask no leader now."""
        own = self._identity.incarnation
        broker = self._image.brokers.get(leader)
        if broker is None or self._closed or own == self._suspended:
            return None
        address = self._identity.peer_addresses.to(broker.endpoints, broker.inter_address)
        return LeaderEndpoint(address.host, address.port, address.security.is_open, broker.incarnation, own)

    def security_to(self, endpoint: LeaderEndpoint) -> ClientSecurity:
        """As the certificates and passwords are now."""
        return OPEN if endpoint.is_open else self._identity.peer_addresses.security

    def introduction(self, leader: int) -> Introduction:
        """Proves to the leader, on one connection, that this broker belongs to its cluster (rule R10)."""
        return introduction(self._identity.broker_id, self._secret, leader)

    def open_request(self, leader: int, endpoint: LeaderEndpoint) -> bytes:
        """The first ReplicaFetch request of a connection."""
        return replica_fetch.open_request(
            self._image.cluster_id, self._identity.broker_id, endpoint.own_incarnation, leader
        )

    def suspend(self) -> None:
        """The session has expired: ask no leader until this broker has registered again."""
        self._suspended = self._identity.incarnation

    def close(self) -> None:
        """Ask no leader any longer: the broker stops."""
        self._closed = True
