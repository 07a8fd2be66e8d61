"""A connection to another broker, or the truth about why there is none (rule R6).

Brokers reach one another at an address that may have a balancer in front; whether one lives is asked where it listens.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from klog.coordination.brokers import Broker
from klog.errors import CannotConnect
from klog.net.channel import Channel
from klog.protocol.introduction import NONCE_BYTES, Introduction

if TYPE_CHECKING:
    from klog.server.broker import Broker as ThisBroker

CONNECT_WITHIN_S = 1.0
KNOCK_WITHIN_S = 0.2


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
    """Whether somebody listens there: a process that ended refuses at once. None for one that hangs: nobody knows."""
    try:
        async with asyncio.timeout(KNOCK_WITHIN_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return False
    except OSError:  # TimeoutError is one
        return None
    writer.close()
    return True
