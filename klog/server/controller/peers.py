"""Connections of the controller's parts: to other brokers by network, to their own directly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from klog.coordination.brokers import Broker
from klog.net.channel import Channel
from klog.security.client_security import ClientSecurity
from klog.server import peer_probe
from klog.server.broker_probes import BrokerProbes
from klog.server.runtime import Identity


class Reach(Protocol):
    """Connects to a broker; each side proves that it belongs to the cluster.

    Raises CannotConnect, a refusal only where the broker's own address refuses; ClusterAuthorizationFailed.
    """

    def __call__(self, there: Broker, /, *, timeout_s: float) -> Awaitable[Channel]: ...


class Answers(Protocol):
    """Whether a process answers at that address; None if unknown (`peer_probe.answers`)."""

    def __call__(
        self, host: str, port: int, security: ClientSecurity, /, *, name: str | None
    ) -> Awaitable[bool | None]: ...


class Probe(Protocol):
    """Return when a process answers where the broker listens (`peer_probe.probe`). Raises CannotConnect."""

    def __call__(self, there: Broker, identity: Identity, /, *, timeout_s: float) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True)
class Peers:
    """``answer_locally``: this broker's answer to its own request."""

    reach: Reach
    probes: BrokerProbes
    answer_locally: Callable[[Any], Awaitable[Any]]
    answers: Answers = peer_probe.answers
    probe: Probe = peer_probe.probe
