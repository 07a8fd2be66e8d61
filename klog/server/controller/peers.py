"""Connections of the controller's parts: to other brokers by network, to their own directly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from klog.coordination.brokers import Broker
from klog.net.channel import Channel
from klog.server import peer_probe
from klog.server.broker_probes import BrokerProbes
from klog.server.runtime import Identity


@dataclass(frozen=True, slots=True)
class Peers:
    """``reach``, ``answers``, ``probe``: as in `peer_probe`, to a broker of the registry. ``answer_locally``: this
    broker's answer to its own request."""

    reach: Callable[..., Awaitable[Channel]]
    probes: BrokerProbes
    answer_locally: Callable[[Any], Coroutine[Any, Any, Any]]
    answers: Callable[..., Awaitable[bool | None]] = peer_probe.answers
    probe: Callable[..., Awaitable[None]] = peer_probe.probe

    async def disconnected(self, identity: Identity, there: Broker) -> None:
        """A connection to the broker has ended: return when it answers or refuses. A process that is ending accepts
        connections for a moment more."""
        security = identity.peer_addresses.to_socket(there)
        await self.answers(*there.probe_address, security, name=there.inter_address[0])
