"""A connection to another broker, or the truth about why there is none (rule R6).

Brokers reach one another at an address that may have a balancer in front; whether one lives is asked where it listens.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from typing import TYPE_CHECKING

from klog.coordination.brokers import Broker
from klog.errors import CannotConnect
from klog.net.channel import Channel
from klog.protocol.apis import ApiKey
from klog.protocol.introduction import NONCE_BYTES, Introduction

if TYPE_CHECKING:
    from klog.server.broker import Broker as ThisBroker

CONNECT_WITHIN_S = 1.0
KNOCK_WITHIN_S = 0.2
AGAIN_S = 0.01
_API_VERSIONS = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 0, -1)
"""Version 0, without a client id."""


def introduction(us: ThisBroker, broker_id: int) -> Introduction:
    """What shows that broker that we are one of its cluster, on one connection (rule R10)."""
    return Introduction(us.secret, us.broker_id, broker_id, secrets.token_bytes(NONCE_BYTES))


async def reach(us: ThisBroker, there: Broker, *, timeout_s: float) -> Channel:
    """A channel to the broker, on which both know the other for one of the cluster.

    CannotConnect, which is a refusal only where its own address refuses; ClusterAuthorizationFailed.
    """
    try:
        return await Channel.connect(
            *there.inter_address,
            connect_timeout_s=CONNECT_WITHIN_S,
            timeout_s=timeout_s,
            client_id=us.client_id,
            introduction=introduction(us, there.broker_id),
        )
    except CannotConnect as error:
        if there.probe_address == there.inter_address:
            raise
        await probe(there, timeout_s=timeout_s, client_id=us.client_id)
        raise CannotConnect(error.message) from None  # it lives, but not where brokers reach it


async def probe(there: Broker, *, timeout_s: float, client_id: str) -> None:
    """Return when somebody answers where the broker listens. CannotConnect."""
    channel = await Channel.connect(
        *there.probe_address, connect_timeout_s=CONNECT_WITHIN_S, timeout_s=timeout_s, client_id=client_id
    )
    await channel.close()


async def knock(host: str, port: int) -> bool | None:
    """Whether somebody answers there: a process that ended refuses at once. None for one that hangs: nobody knows.

    One that is ending lets connections in for a moment, and answers none of them: it is asked again until it refuses.
    """
    try:
        async with asyncio.timeout(KNOCK_WITHIN_S):
            while not await _answers(host, port):  # noqa: ASYNC110  (nobody would set an event)
                await asyncio.sleep(AGAIN_S)
            return True
    except ConnectionRefusedError:
        return False
    except OSError:  # TimeoutError is one
        return None


async def _answers(host: str, port: int) -> bool:
    """Whether ApiVersions is answered; False where the connection ends instead. ConnectionRefusedError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(_API_VERSIONS)
        return bool(await reader.read(1))
    except (ConnectionResetError, BrokenPipeError):
        return False
    finally:
        writer.close()
