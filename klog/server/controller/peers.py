"""Connections of the controller's parts: to other brokers by network, to their own directly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from klog.net.channel import Channel
from klog.server import peer_probe
from klog.server.broker_probes import BrokerProbes


@dataclass(frozen=True, slots=True)
class Peers:
    """``reach``, ``answers``, ``probe``: as in `peer_probe`, to a broker of the registry. ``answer_locally``: this
    broker's answer to its own request."""

    reach: Callable[..., Awaitable[Channel]]
    probes: BrokerProbes
    answer_locally: Callable[[Any], Coroutine[Any, Any, Any]]
    answers: Callable[..., Awaitable[bool | None]] = peer_probe.answers
    probe: Callable[..., Awaitable[None]] = peer_probe.probe
