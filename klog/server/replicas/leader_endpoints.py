"""Addresses of leaders, and connections to them."""

from __future__ import annotations

from typing import NamedTuple

from klog.errors import KlogError
from klog.net.channel import Channel
from klog.protocol import replica_fetch
from klog.secret import Secret
from klog.security.client_security import OPEN
from klog.server.image import ClusterImage
from klog.server.peer_probe import introduction
from klog.server.runtime import Runtime


class LeaderEndpoint(NamedTuple):
    """A leader's address, whether it is plaintext, and the incarnations of both brokers for which that holds."""

    host: str
    port: int
    is_open: bool
    incarnation: int
    own_incarnation: int


class LeaderEndpoints:
    """Event loop only."""

    def __init__(self, runtime: Runtime, image: ClusterImage, secret: Secret) -> None:
        self._identity = runtime.identity
        self._image = image
        self._secret = secret
        self._suspended: int | None = None
        """The incarnation whose session has ended: this broker fetches nothing under it."""
        self._closed = False

    def endpoint_of(self, leader: int) -> LeaderEndpoint | None:
        """A leader's address; None if it is not alive, or this broker may not fetch now."""
        own = self._identity.incarnation
        broker = self._image.brokers.get(leader)
        if broker is None or self._closed or own == self._suspended:
            return None
        address = self._identity.peer_addresses.to(broker.endpoints, broker.inter_address)
        return LeaderEndpoint(address.host, address.port, address.security.is_open, broker.incarnation, own)

    async def connect(self, leader: int, endpoint: LeaderEndpoint, timeout_s: float) -> Channel:
        """A connection on which both have proved that they belong to the cluster, and the leader has opened a session.

        ``timeout_s``: for each step. Raises CannotConnect and TimedOut where the leader cannot be reached, and other
        KlogErrors where it refuses.
        """
        channel = await Channel.connect(
            endpoint.host,
            endpoint.port,
            connect_timeout_s=timeout_s,
            timeout_s=timeout_s,
            client_id=self._identity.client_id,
            introduction=introduction(self._identity.broker_id, self._secret, leader),
            security=OPEN if endpoint.is_open else self._identity.peer_addresses.security,  # as they are now
        )
        try:
            opened = replica_fetch.read_opened(
                await channel.request(
                    replica_fetch.open_request(
                        self._image.cluster_id, self._identity.broker_id, endpoint.own_incarnation, leader
                    )
                )
            )
            if opened.error_code:
                raise KlogError(f"it rejects the follower: {opened.message}")
        except BaseException:
            await channel.close()
            raise
        return channel

    def suspend(self) -> None:
        """The session has expired: fetch nothing until this broker has registered again."""
        self._suspended = self._identity.incarnation

    def close(self) -> None:
        """Fetch nothing more: the broker stops."""
        self._closed = True
