"""The addresses where a broker listens, and those it advertises: for clients, and for brokers if theirs differ."""

from __future__ import annotations

import logging
import math
import socket
from dataclasses import dataclass

from klog.config import BrokerConfig
from klog.errors import InvalidConfig
from klog.net.connection import Limits, OnFrame
from klog.net.server import Server
from klog.server.descriptors import Descriptors

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """``address`` is advertised to clients, ``inter_broker`` (``host:port``, "" for the same) to brokers.

    ``bind`` (``host:port``) is where brokers' probes go: the socket itself, also behind a load balancer (rule R6).
    """

    address: tuple[str, int]
    bind: str
    inter_broker: str

    @classmethod
    def begin(cls, config: BrokerConfig, server: Server) -> Listening:
        """Open the ports. PortInUse where one is taken."""
        host, port = config.listener
        bound = server.listen(host, port)
        _warn_if_wide(host, bound)
        bind = f"{host or '0.0.0.0'}:{bound}"
        told_host, told_port = config.advertised
        told, between = config.inter_advertised, config.inter_listener
        if between is not None:
            own_host, own_port = between
            own_bound = server.listen(own_host, own_port)
            _warn_if_wide(own_host, own_bound)
            bind = f"{own_host or '0.0.0.0'}:{own_bound}"
            told = told or (_reachable(own_host), own_bound)
        return cls(
            (told_host or _reachable(host), told_port or bound),
            bind,
            "" if told is None else f"{told[0]}:{told[1]}",
        )


def server_of(config: BrokerConfig, on_frame: OnFrame, descriptors: Descriptors) -> Server:
    """A server with the limits that the settings and the machine give."""
    idle_max_ms = config.integer("connections.max.idle.ms")
    unfinished_max = config.integer("queued.max.request.bytes")
    told_max, possible_max = config.integer("max.connections"), descriptors.connections
    return Server(
        on_frame,
        limits=Limits(
            frame_bytes_max=config.integer("socket.request.max.bytes"),
            replies_max=config.integer("queued.max.requests"),
            send_buffer_bytes=_if_given(config, "socket.send.buffer.bytes"),
            receive_buffer_bytes=_if_given(config, "socket.receive.buffer.bytes"),
        ),
        idle_max_s=idle_max_ms / 1000 if idle_max_ms >= 0 else math.inf,
        connections_per_ip_max=config.integer("max.connections.per.ip"),
        connections_per_ip_overrides=_overrides(config["max.connections.per.ip.overrides"]),
        backlog=config.integer("socket.listen.backlog.size"),
        unfinished_bytes_max=unfinished_max if unfinished_max >= 0 else math.inf,
        connections_max=min(told_max, possible_max),
        connections_max_from="max.connections"
        if told_max < possible_max
        else f"`ulimit -n` is {descriptors.limit}, and the logs need theirs",
    )


def _if_given(config: BrokerConfig, name: str) -> int | None:
    """A socket buffer's size only if the configuration sets one: the kernel's own sizes adapt to the connection."""
    value = config[name]
    return value if isinstance(value, int) and value > 0 and config.is_given(name) else None


def _overrides(items: object) -> dict[str, int]:
    """``127.0.0.1:200,10.0.0.1:5`` as a dict; InvalidConfig for anything else."""
    found = {}
    for item in items if isinstance(items, tuple) else ():
        host, _, limit = item.rpartition(":")
        if not host or not limit.isdecimal():
            raise InvalidConfig(f"max.connections.per.ip.overrides: {item!r}; expected ADDRESS:NUMBER,...")
        found[host] = int(limit)
    return found


def _reachable(host: str) -> str:
    """The advertised host where none is set: this machine's name if the broker listens on every interface."""
    return host if host not in ("", "0.0.0.0", "::") else socket.gethostname()


def _warn_if_wide(host: str, port: int) -> None:
    if host not in ("127.0.0.1", "localhost", "::1"):
        log.warning(
            "listening on %s:%d, not on this machine alone: every host that reaches it can read and write",
            host or "0.0.0.0",
            port,
        )
