"""A connection to another broker, or the truth about why there is none (rule R6).

Brokers reach one another at an address that may have a balancer in front; whether one lives is asked where it listens.
"""

from __future__ import annotations

import asyncio

from klog.coordination.brokers import Broker
from klog.errors import CannotConnect
from klog.net.channel import Channel

CONNECT_WITHIN_S = 1.0
KNOCK_WITHIN_S = 0.2


async def reach(there: Broker, *, timeout_s: float, client_id: str) -> Channel:
    """A channel to the broker. CannotConnect, which is a refusal only where its own address refuses."""
    try:
        return await _open(*there.inter_address, timeout_s, client_id)
    except CannotConnect as error:
        if there.probe_address == there.inter_address:
            raise
        await probe(there, timeout_s=timeout_s, client_id=client_id)
        raise CannotConnect(error.message) from None  # it lives, but not where brokers reach it


async def probe(there: Broker, *, timeout_s: float, client_id: str) -> None:
    """Return when somebody answers where the broker listens. CannotConnect."""
    await (await _open(*there.probe_address, timeout_s, client_id)).close()


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


async def _open(host: str, port: int, timeout_s: float, client_id: str) -> Channel:
    return await Channel.connect(
        host, port, connect_timeout_s=CONNECT_WITHIN_S, timeout_s=timeout_s, client_id=client_id
    )
