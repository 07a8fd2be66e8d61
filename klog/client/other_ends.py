"""What listens where a broker, or a ZooKeeper, was expected: its name, and how to reach what was meant."""

from __future__ import annotations

import asyncio
from typing import Final

from klog.client.bootstrap import parse_bootstrap
from klog.client.servers import security_of
from klog.errors import CannotConnect, KlogError
from klog.names import host_port
from klog.net.peer_protocol import ASKED_S, PeerProtocol, peer_protocol

SERVERS_ASKED: Final = 5
"""Of those given, what they are instead."""


async def instead_of_brokers(bootstrap: str, source: str) -> CannotConnect | None:
    """The error that names what listens there instead of a broker; None where nothing does that says what it is."""
    servers = parse_bootstrap(bootstrap, source)[:SERVERS_ASKED]
    found = await asyncio.gather(*(peer_protocol(host, port) for host, port in servers))
    for (host, port), what in zip(servers, found, strict=True):
        at = host_port(host, port)
        if what is PeerProtocol.TLS:
            if security_of(bootstrap).is_encrypted:  # the error says why it fails
                continue
            return _speaks_tls(at, "security.protocol=SSL or SASL_SSL")
        if what is not None:
            use = f"use --zookeeper {at}" if what is PeerProtocol.ZOOKEEPER else "brokers speak Kafka's protocol"
            return CannotConnect(f"{at} is {what}, not a broker", hint=use)
    return None


async def instead_of_a_zookeeper(address: str) -> CannotConnect | None:
    """The error that names what listens there instead of a ZooKeeper, as `instead_of_brokers`."""
    from klog.coordination.connect_string import ConnectString
    from klog.coordination.zookeeper_access import access_of

    is_encrypted = access_of(address).context is not None
    servers = ConnectString.parse(address).servers[:SERVERS_ASKED]
    found = await asyncio.gather(*(_instead_of_a_zookeeper(host, port, is_encrypted) for host, port in servers))
    return next((one for one in found if one is not None), None)


async def _instead_of_a_zookeeper(host: str, port: int, is_encrypted: bool) -> CannotConnect | None:
    """``is_encrypted``: this client speaks TLS."""
    from klog.net.channel import Channel

    at = host_port(host, port)
    try:
        channel = await Channel.connect(host, port, connect_timeout_s=ASKED_S, timeout_s=ASKED_S)
    except KlogError:
        what = await peer_protocol(host, port)
    else:
        await channel.close()
        return CannotConnect(f"{at} is a broker, not a ZooKeeper", hint=f"use --bootstrap-server {at}")
    if what is PeerProtocol.HTTP:
        return CannotConnect(
            f"{at} is {what}, not a ZooKeeper", hint="the usual port of ZooKeeper is 2181: -z HOST:2181"
        )
    if what is PeerProtocol.TLS and not is_encrypted:
        return _speaks_tls(at, "zookeeper.ssl.client.enable=true")
    return None


def _speaks_tls(at: str, settings: str) -> CannotConnect:
    return CannotConnect(
        f"{at} speaks TLS, and this client does not",
        hint=f"--client-config FILE with {settings}; see docs/security.md",
    )
