"""How the controller's parts reach brokers: others over the network, and their own broker directly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from klog.coordination.brokers import Broker
from klog.net.channel import Channel
from klog.server.knocks import Knocks


class Reach(Protocol):
    """Connects to a broker, each side proving that it belongs to the cluster.

    CannotConnect, which is a refusal only where the broker's own address refuses; ClusterAuthorizationFailed.
    """

    def __call__(self, there: Broker, /, *, timeout_s: float) -> Awaitable[Channel]: ...


@dataclass(frozen=True, slots=True)
class Peers:
    """``answer_locally``: this broker's answer to a request of its own."""

    reach: Reach
    knocks: Knocks
    answer_locally: Callable[[Any], Awaitable[Any]]
