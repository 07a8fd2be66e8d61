"""Settings of the broker as a server: id, listeners, limits, ZooKeeper."""

from __future__ import annotations

from typing import NamedTuple

from klog.config.setting import INT_MAX, Check, Setting, Table, at_least, at_least_or_off, between, one_of
from klog.errors import InvalidConfig

LISTENER_PROTOCOL = "PLAINTEXT"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class NamedAddress(NamedTuple):
    """``name://host:port``; an empty host is every interface, port 0 a free one."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def parse_listener(text: str) -> NamedAddress:
    """``NAME://host:port``, or ``host:port`` for PLAINTEXT; IPv6 addresses in brackets. Raises InvalidConfig."""
    name, separator, rest = text.rpartition("://")
    host, colon, port = rest.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise InvalidConfig(f"listener {text}: expected HOST:PORT with a port from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidConfig(f"listener {text}: an IPv6 address needs brackets, as in [::1]:9092")
    return NamedAddress(name if separator else LISTENER_PROTOCOL, host, int(port))


def _is_listener(value: object) -> bool:
    if not isinstance(value, tuple) or not value:
        return False
    try:
        for one in value:
            parse_listener(one)
    except InvalidConfig:
        return False
    return True


def _is_protocol_map(value: object) -> bool:
    return isinstance(value, tuple) and all(
        name and protocol in PROTOCOLS for name, _, protocol in (item.partition(":") for item in value)
    )


_LISTENER = Check("of the form PLAINTEXT://HOST:PORT,NAME://HOST:PORT", _is_listener)
_PORT = between(0, 65535)

NETWORK_SETTINGS: Table = {
    Setting("broker.id", "int", None, at_least(0), aliases=("node.id", "brokerid")): (
        "Unique id of the broker; it stays the same on another host.",
        "id in ZooKeeper and for clients",
    ),
    Setting("broker.rack", "string", None): (
        "Rack of the broker; replicas of a partition are spread over racks.",
        "replica assignment; shown to clients",
    ),
    Setting("listeners", "list", None, _LISTENER): (
        "Addresses to listen on, each as NAME://HOST:PORT; NAME is a security protocol, or one that "
        "listener.security.protocol.map maps. host.name and port, as PLAINTEXT, unless given.",
        "listening sockets",
    ),
    Setting("host.name", "string", "127.0.0.1"): (
        "Host to listen on if listeners is not given; by default only this machine.",
        "listening socket",
    ),
    Setting("port", "int", 9092, _PORT): (
        "Port to listen on if listeners is not given; 0 for a free one.",
        "listening socket",
    ),
    Setting("advertised.listeners", "list", None, _LISTENER): (
        "Addresses advertised, each as NAME://HOST:PORT of a listener; for brokers behind a load balancer.",
        "metadata and ZooKeeper",
    ),
    Setting("advertised.host.name", "string", None, aliases=("hostname",)): (
        "Host advertised to clients if advertised.listeners is not given.",
        "metadata and ZooKeeper",
    ),
    Setting("advertised.port", "int", None, between(1, 65535)): (
        "Port advertised to clients if advertised.listeners is not given.",
        "metadata and ZooKeeper",
    ),
    Setting(
        "listener.security.protocol.map",
        "list",
        tuple(f"{one}:{one}" for one in PROTOCOLS),
        Check("of the form NAME:PROTOCOL with a protocol out of " + ", ".join(PROTOCOLS), _is_protocol_map),
    ): (
        "Security protocol of each listener, as NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.",
        "who can connect, and how",
    ),
    Setting("inter.broker.listener.name", "string", None): (
        "Listener, of those in listeners, for connections between brokers; the first with the protocol of "
        "security.inter.broker.protocol unless given.",
        "replication and requests of the controller",
    ),
    Setting("security.inter.broker.protocol", "string", "PLAINTEXT", one_of(*PROTOCOLS)): (
        "Security protocol between brokers if inter.broker.listener.name is not given.",
        "replication and requests of the controller",
    ),
    Setting("queued.max.requests", "int", 500, at_least(1)): (
        "Requests that may wait in the broker before it stops reading from its connections.",
        "bounds the requests of one connection served together",
    ),
    Setting("queued.max.request.bytes", "bytes", None, at_least_or_off(1)): (
        "Memory for partly received requests, and the same amount for unsent answers; -1: unlimited, Kafka's default. "
        "Unless given, 1/32 of the machine's memory, at least 64 MiB and at most 1 GiB.",
        "above it the broker stops reading, and disconnects slow clients sooner",
    ),
    Setting("socket.send.buffer.bytes", "bytes", 102400, at_least(-1), aliases=("socket.send.buffer",)): (
        "Send buffer of a connection; -1 leaves it to the kernel.",
        "SO_SNDBUF",
    ),
    Setting("socket.receive.buffer.bytes", "bytes", 102400, at_least(-1), aliases=("socket.receive.buffer",)): (
        "Receive buffer of a connection; -1 leaves it to the kernel.",
        "SO_RCVBUF",
    ),
    Setting(
        "socket.request.max.bytes", "bytes", 104857600, between(1, INT_MAX), aliases=("max.socket.request.bytes",)
    ): ("Largest request; a connection that announces a larger one is closed.", "limit of a frame"),
    Setting("socket.listen.backlog.size", "int", -1, at_least_or_off(1)): (
        "Backlog of the listening socket; -1, unlike Kafka's 50, is the kernel's maximum.",
        "limited by net.core.somaxconn",
    ),
    Setting("max.connections", "int", INT_MAX, at_least(0)): (
        "Connections of a broker in total; as listener.name.NAME.max.connections, those of one listener. `ulimit -n` "
        "bounds the total as well.",
        "further connections wait; a broker's, on a listener for brokers, replaces the longest idle one",
    ),
    Setting("max.connection.creation.rate", "int", INT_MAX, at_least(1)): (
        "New connections per second, over the windows of quotas; as listener.name.NAME.max.connection.creation.rate, "
        "those of one listener. The rate of all does not hold for a listener for brokers.",
        "further connections wait",
    ),
    Setting("max.connections.per.ip", "int", INT_MAX, at_least(0)): (
        "Connections from one address.",
        "further connections are closed, and the log says so",
    ),
    Setting("max.connections.per.ip.overrides", "list", ()): (
        "Limits for single addresses, as host:number; an IPv6 address may have brackets.",
        "replaces max.connections.per.ip for them",
    ),
    Setting("connections.max.idle.ms", "ms", 600000, at_least_or_off(1)): (
        "Idle time after which a connection is closed.",
        "closes idle connections",
    ),
    Setting("controlled.shutdown.enable", "bool", True): (
        "Transfer leaderships before a broker stops.",
        "controlled shutdown",
    ),
    Setting("controlled.shutdown.max.retries", "int", 3, at_least(0)): (
        "Attempts of a controlled shutdown; afterwards the broker stops without it.",
        "requests to the controller",
    ),
    Setting("controlled.shutdown.retry.backoff.ms", "ms", 5000, at_least(0)): (
        "Back-off between attempts of a controlled shutdown.",
        "controlled shutdown",
    ),
    Setting("metrics.port", "int", 0, _PORT): (
        "Port for Prometheus metrics, on the host of klog.http.host; 0: no metrics. klog's own.",
        "HTTP endpoint",
    ),
    Setting("schema.registry.port", "int", 0, _PORT): (
        "Port for the schema registry over HTTP, on the host of klog.http.host; 0: only klog's own clients "
        "reach the registry. klog's own.",
        "HTTP endpoint",
    ),
    Setting("klog.http.host", "string", None): (
        "Host where metrics.port and schema.registry.port listen, which ask for no login: 127.0.0.1 keeps them "
        "to this machine; the listener's host if not given. klog's own.",
        "HTTP endpoints",
    ),
}
