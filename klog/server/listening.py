"""The addresses where a broker listens, and those that it advertises."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from klog.config import BrokerConfig
from klog.config.listeners import Listener
from klog.config.setting import INT_MAX
from klog.coordination.brokers import Endpoint
from klog.errors import InvalidConfig
from klog.host.limits import Descriptors, machine_memory_bytes
from klog.net.admission import ConnectionLimits
from klog.net.arrivals import SETTING as CREATION_RATE
from klog.net.arrivals import ArrivalLimits
from klog.net.connection import OnFrame
from klog.net.server import ConnectionSetup, Server, plain_address
from klog.net.shared import SocketLimits
from klog.security.rates import Windows
from klog.server.event_limits import EventLimit

log = logging.getLogger(__name__)

UNFINISHED_BYTES_MAX: Final = "queued.max.request.bytes"
MEMORY_SHARE: Final = 32
UNFINISHED_BYTES: Final = (64 << 20, 1 << 30)
"""Minimum and maximum of the memory for unfinished requests, and of that for unsent answers."""
FULL_EVENTS_A_MINUTE: Final = 5


@dataclass(frozen=True, slots=True)
class Listening:
    """``endpoints``: advertised to clients, each to those of its listener; ``address``: for clients and tools that know
    one only. ``inter_broker``: ``host:port`` for other brokers, "" for ``address``.

    ``bind`` (``host:port``): for brokers' probes; the socket itself, also behind a load balancer (rule R6).
    """

    address: tuple[str, int]
    bind: str
    inter_broker: str
    endpoints: tuple[Endpoint, ...]

    @classmethod
    def begin(cls, config: BrokerConfig, server: Server, setup: Callable[[Listener], ConnectionSetup]) -> Listening:
        """Open the ports. Raises PortInUse."""
        listeners = config.listeners
        told: dict[str, Endpoint] = {}
        bind = ""
        for one in listeners.all:
            bound = server.listen(one.host, one.port, setup(one))
            _warn_if_wide(one, bound)
            told[one.name] = Endpoint(
                one.name, one.protocol, one.told_host or _reachable(one.host), one.told_port or bound
            )
            if one is listeners.brokers:
                bind = f"{one.host or '0.0.0.0'}:{bound}"
        clients, brokers = told[listeners.clients.name], told[listeners.brokers.name]
        between = "" if brokers is clients else f"{brokers.host}:{brokers.port}"
        return cls((clients.host, clients.port), bind, between, tuple(told.values()))


def server_of(config: BrokerConfig, on_frame: OnFrame, descriptors: Descriptors, tell: Callable[..., None]) -> Server:
    """A server with the limits of the settings and the machine. ``tell`` records an event. Raises InvalidConfig.

    Blocks if max.connections.per.ip.overrides has host names.
    """
    idle_max_ms = config.integer("connections.max.idle.ms")
    return Server(
        on_frame,
        limits=SocketLimits(
            frame_bytes_max=config.integer("socket.request.max.bytes"),
            replies_max=config.integer("queued.max.requests"),
            send_buffer_bytes=_if_given(config, "socket.send.buffer.bytes"),
            receive_buffer_bytes=_if_given(config, "socket.receive.buffer.bytes"),
        ),
        idle_max_s=idle_max_ms / 1000 if idle_max_ms >= 0 else math.inf,
        connection_limits=connection_limits(config, descriptors),
        arrival_limits=arrival_limits(config),
        on_full=FullListeners(tell).note,
        backlog=config.integer("socket.listen.backlog.size"),
        unfinished_bytes_max=unfinished_bytes_max(config),
    )


def http_host(config: BrokerConfig) -> str:
    """The host of the HTTP endpoints."""
    host = config["klog.http.host"]
    return host if isinstance(host, str) else config.listeners.clients.host


def unfinished_bytes_max(config: BrokerConfig) -> float:
    """``queued.max.request.bytes``; default: by the machine's memory."""
    given = config[UNFINISHED_BYTES_MAX]
    if isinstance(given, int):
        return given if given >= 0 else math.inf
    least, most = UNFINISHED_BYTES
    return min(max(machine_memory_bytes() // MEMORY_SHARE, least), most)


def connection_limits(config: BrokerConfig, descriptors: Descriptors) -> ConnectionLimits:
    """Raises InvalidConfig."""
    told_max = config.integer("max.connections")
    return ConnectionLimits(
        min(told_max, descriptors.connections),
        "max.connections"
        if told_max < descriptors.connections
        else f"`ulimit -n` is {descriptors.limit}, and the logs need theirs",
        config.integer("max.connections.per.ip"),
        _overrides(config["max.connections.per.ip.overrides"]),
        _of_listeners(config, "max.connections"),
        _listener_of_brokers(config),
    )


def arrival_limits(config: BrokerConfig) -> ArrivalLimits:
    """From Kafka's settings."""
    rate = config.integer(CREATION_RATE)
    return ArrivalLimits(
        Windows(config.integer("quota.window.num"), config.integer("quota.window.size.seconds")),
        rate if rate < INT_MAX else None,
        _of_listeners(config, CREATION_RATE),
        _listener_of_brokers(config),
    )


def _of_listeners(config: BrokerConfig, setting: str) -> dict[str, int]:
    """Listener -> its own value of a setting."""
    return {
        one.name: config.of_listener(one.name).integer(setting)
        for one in config.listeners.all
        if config.given_text(f"listener.name.{one.name.lower()}.{setting}") is not None
    }


def _listener_of_brokers(config: BrokerConfig) -> str | None:
    """The inter-broker listener; None if clients use it, too."""
    listeners = config.listeners
    return listeners.brokers.name if len(listeners.all) > 1 else None


class FullListeners:
    """Records events of full listeners, limited, since clients can cause them."""

    def __init__(self, tell: Callable[..., None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._limit = EventLimit(FULL_EVENTS_A_MINUTE)

    def note(self, listener: str, reason: str, connections: int, most_of: str) -> None:
        if self._limit.allows(self._clock()):
            self._tell("connections-full", listener=listener, reason=reason, connections=connections, most_of=most_of)


def _if_given(config: BrokerConfig, name: str) -> int | None:
    """A socket buffer's size if the configuration sets one; else None: the kernel adapts it to the connection."""
    value = config[name]
    return value if isinstance(value, int) and value > 0 and config.is_given(name) else None


def _overrides(items: object) -> dict[str, int]:
    """``127.0.0.1:200,host:5`` by address. Raises InvalidConfig, also for an unknown host."""
    found: dict[str, int] = {}
    for item in items if isinstance(items, tuple) else ():
        host, _, limit = item.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not limit.isdecimal():
            raise InvalidConfig(f"max.connections.per.ip.overrides: {item!r}; expected ADDRESS:NUMBER,...")
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise InvalidConfig(
                f"max.connections.per.ip.overrides: {host!r} is neither an address nor a host that is known here:"
                f" {error.strerror}"
            ) from None
        for *_, address in addresses:
            found[plain_address(str(address[0]))] = int(limit)
    return found


def _reachable(host: str) -> str:
    """The default advertised host: this machine's name if the broker listens on every interface."""
    return host if host not in ("", "0.0.0.0", "::") else socket.gethostname()


def _warn_if_wide(listener: Listener, port: int) -> None:
    if not listener.has_sasl and not listener.has_tls and listener.host not in ("127.0.0.1", "localhost", "::1"):
        log.warning(
            "listening on %s:%d, not on this machine alone: every host that reaches it can read and write",
            listener.host or "0.0.0.0",
            port,
        )
