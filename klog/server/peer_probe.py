"""Connects to another broker, or finds out why that fails (rule R6).

Brokers connect to one another at an address that may belong to a load balancer. A probe goes to the socket where the
broker itself listens.
"""

from __future__ import annotations

import asyncio
import secrets
import struct

from klog.coordination.brokers import Broker
from klog.errors import CannotConnect
from klog.net.channel import Channel
from klog.net.client_tls import client_context
from klog.protocol.apis import ApiKey
from klog.protocol.introduction import NONCE_BYTES, Introduction
from klog.secret import Secret
from klog.security.client_security import OPEN, ClientSecurity
from klog.security.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from klog.server.image import BrokerImage
from klog.server.runtime import Identity

CONNECT_WITHIN_S = 1.0
ANSWER_WITHIN_S = 0.2
AGAIN_S = 0.01
_API_VERSIONS = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 0, -1)
"""Version 0, without a client id."""


def introduction(own_id: int, secret: Secret, broker_id: int) -> Introduction:
    """Proves to another broker, on one connection, that this broker belongs to its cluster (rule R10)."""
    return Introduction(secret, own_id, broker_id, secrets.token_bytes(NONCE_BYTES))


async def connect(
    identity: Identity, secret: Secret, there: BrokerImage, *, timeout_s: float, client_id: str | None = None
) -> Channel:
    """A channel to a broker of the image, on which each side has proved that it belongs to the cluster."""
    address = identity.peer_addresses.to(there.endpoints, there.inter_address)
    return await Channel.connect(
        address.host,
        address.port,
        timeout_s=timeout_s,
        client_id=client_id or identity.client_id,
        introduction=introduction(identity.broker_id, secret, there.broker_id),
        security=address.security,
    )


async def reach(identity: Identity, secret: Secret, there: Broker, *, timeout_s: float) -> Channel:
    """A channel to the broker, on which each side has proved that it belongs to the cluster.

    Raises CannotConnect, a refusal only where its own address refuses; ClusterAuthorizationFailed.
    """
    address = identity.peer_addresses.to_broker(there)
    try:
        return await Channel.connect(
            address.host,
            address.port,
            connect_timeout_s=CONNECT_WITHIN_S,
            timeout_s=timeout_s,
            client_id=identity.client_id,
            introduction=introduction(identity.broker_id, secret, there.broker_id),
            security=address.security,
        )
    except (SaslAuthenticationFailed, UnsupportedSaslMechanism) as error:
        raise CannotConnect(error.message) from None  # it is alive, and does not let this broker in
    except CannotConnect as error:
        if there.probe_address == (address.host, address.port):
            raise
        await probe(there, identity, timeout_s=timeout_s)
        raise CannotConnect(error.message) from None  # it is alive, but not reachable at its address for brokers


async def at_socket(
    there: Broker, identity: Identity, *, timeout_s: float, introduction: Introduction | None = None
) -> Channel:
    """A channel to the socket where the broker itself listens. Raises CannotConnect."""
    return await Channel.connect(
        *there.probe_address,
        connect_timeout_s=CONNECT_WITHIN_S,
        timeout_s=timeout_s,
        client_id=identity.client_id,
        introduction=introduction,
        security=identity.peer_addresses.to_socket(there),
        server_name=there.inter_address[0],
    )


async def probe(there: Broker, identity: Identity, *, timeout_s: float) -> None:
    """Return when a process answers where the broker listens. Raises CannotConnect."""
    await (await at_socket(there, identity, timeout_s=timeout_s)).close()


async def answers(host: str, port: int, security: ClientSecurity = OPEN, *, name: str | None = None) -> bool | None:
    """Whether a process answers there: after its end the host refuses at once. None (unknown) for one that hangs.

    ``security``: of the listener there; a login is not needed. ``name``: the host in its certificate, if not ``host``.
    A process that is ending accepts connections for a moment and answers none: the probe repeats until it is refused.
    """
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while not await _answers(host, port, security, name):  # noqa: ASYNC110  (no event would be set)
                await asyncio.sleep(AGAIN_S)
            return True
    except ConnectionRefusedError:
        return False
    except OSError:  # TimeoutError is one
        return None


async def _answers(host: str, port: int, security: ClientSecurity, name: str | None) -> bool:
    """Whether ApiVersions is answered; False if the connection ends instead. Raises ConnectionRefusedError."""
    try:
        tls = client_context(security) if security.is_encrypted else None
        reader, writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname=None if tls is None else name or host
        )
    except ConnectionResetError:
        return False
    try:
        writer.write(_API_VERSIONS)
        return bool(await reader.read(1))
    except (ConnectionResetError, BrokenPipeError):
        return False
    finally:
        writer.close()
