"""The settings of a broker as a server: who it is, where it listens, what it limits, which ZooKeeper it belongs to."""

from __future__ import annotations

from typing import NamedTuple

from klog.config.setting import INT_MAX, Check, Setting, at_least, at_least_or_off, between, not_empty
from klog.errors import InvalidConfig

LISTENER_PROTOCOL = "PLAINTEXT"


class Listener(NamedTuple):
    """``name://host:port``; an empty host is every interface, port 0 a free one."""

    name: str
    host: str
    port: int


def parse_listener(text: str) -> Listener:
    """``NAME://host:port``, or ``host:port`` for PLAINTEXT's; IPv6 addresses in brackets. Raises InvalidConfig."""
    name, separator, rest = text.rpartition("://")
    host, colon, port = rest.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise InvalidConfig(f"listener {text}: expected HOST:PORT with a port from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidConfig(f"listener {text}: an IPv6 address needs brackets, as in [::1]:9092")
    return Listener(name if separator else LISTENER_PROTOCOL, host, int(port))


def parse_listeners(texts: tuple[str, ...], inter_broker_name: str) -> tuple[Listener, Listener | None]:
    """The clients' listener, and the brokers' own where ``inter_broker_name`` names another. Raises InvalidConfig."""
    found = [parse_listener(text) for text in texts]
    names = [one.name for one in found]
    for one in found:
        if one.name not in (LISTENER_PROTOCOL, inter_broker_name):
            raise InvalidConfig(
                f"expected {LISTENER_PROTOCOL}://HOST:PORT, and for brokers among themselves the name that "
                f"inter.broker.listener.name gives; {one.name} is not served"
            )
    if len(set(names)) < len(names):
        raise InvalidConfig(
            f"expected exactly one for clients, and a second one for brokers under the name that "
            f"inter.broker.listener.name gives; two have the name {names[0]}"
        )
    clients = next((one for one in found if one.name != inter_broker_name), found[0])
    between = next((one for one in found if one is not clients), None)
    return clients, between


def _is_listener(value: object) -> bool:
    if not isinstance(value, tuple) or not 1 <= len(value) <= 2:
        return False
    try:
        for one in value:
            parse_listener(one)
    except InvalidConfig:
        return False
    return True


_LISTENER = Check("of the form PLAINTEXT://HOST:PORT, with a second one if brokers have their own", _is_listener)
_PORT = between(0, 65535)

NETWORK_SETTINGS = (
    Setting(
        "broker.id",
        "int",
        None,
        "Unique id of the broker; it stays the same on another host.",
        "id in ZooKeeper and for clients",
        at_least(0),
        ("node.id", "brokerid"),
    ),
    Setting(
        "broker.rack",
        "string",
        None,
        "Rack of the broker; replicas of a partition are spread over racks.",
        "replica assignment; shown to clients",
    ),
    Setting(
        "listeners",
        "list",
        None,
        "Addresses to listen on: PLAINTEXT://HOST:PORT for clients, NAME://HOST:PORT for other brokers; "
        "host.name and port unless given.",
        "listening sockets",
        _LISTENER,
    ),
    Setting(
        "host.name",
        "string",
        "127.0.0.1",
        "Host to listen on if listeners is not given; by default only this machine.",
        "listening socket",
    ),
    Setting(
        "port",
        "int",
        9092,
        "Port to listen on if listeners is not given; 0 for a free one.",
        "listening socket",
        _PORT,
    ),
    Setting(
        "advertised.listeners",
        "list",
        None,
        "Address advertised to clients as PLAINTEXT://HOST:PORT, and to brokers as NAME://HOST:PORT; for "
        "brokers behind a load balancer.",
        "metadata and ZooKeeper",
        _LISTENER,
    ),
    Setting(
        "advertised.host.name",
        "string",
        None,
        "Host advertised to clients if advertised.listeners is not given.",
        "metadata and ZooKeeper",
        aliases=("hostname",),
    ),
    Setting(
        "advertised.port",
        "int",
        None,
        "Port advertised to clients if advertised.listeners is not given.",
        "metadata and ZooKeeper",
        between(1, 65535),
    ),
    Setting(
        "listener.security.protocol.map",
        "list",
        ("PLAINTEXT:PLAINTEXT",),
        "Security protocol of each listener; klog serves plain connections only.",
    ),
    Setting(
        "inter.broker.listener.name",
        "string",
        LISTENER_PROTOCOL,
        "Listener, of those in listeners, for connections between brokers.",
        "replication and requests of the controller",
    ),
    Setting(
        "security.inter.broker.protocol",
        "string",
        "PLAINTEXT",
        "Security protocol between brokers; klog has plain connections only.",
    ),
    Setting(
        "inter.broker.protocol.version",
        "string",
        None,
        "Protocol version between brokers; klog negotiates it.",
    ),
    Setting(
        "log.message.format.version",
        "string",
        None,
        "Stored message format; klog stores record batches of version 2 only.",
    ),
    Setting(
        "num.network.threads",
        "int",
        3,
        "Threads that read and write sockets; klog's broker has one event loop.",
        check=at_least(1),
    ),
    Setting(
        "num.io.threads",
        "int",
        8,
        "Threads that serve requests; klog's broker has one event loop.",
        check=at_least(1),
        aliases=("num.threads",),
    ),
    Setting(
        "background.threads", "int", 10, "Threads for background tasks; klog starts them as needed.", check=at_least(1)
    ),
    Setting(
        "queued.max.requests",
        "int",
        500,
        "Requests that may wait in the broker before it stops reading from its connections.",
        "bounds the requests of one connection served together",
        at_least(1),
    ),
    Setting(
        "queued.max.request.bytes",
        "bytes",
        268435456,
        "Memory for partly received requests, and the same amount for unsent answers; -1: unlimited, Kafka's default.",
        "above it the broker stops reading, and disconnects slow clients sooner",
        at_least_or_off(1),
    ),
    Setting(
        "socket.send.buffer.bytes",
        "bytes",
        102400,
        "Send buffer of a connection; -1 leaves it to the kernel.",
        "SO_SNDBUF",
        at_least(-1),
        ("socket.send.buffer",),
    ),
    Setting(
        "socket.receive.buffer.bytes",
        "bytes",
        102400,
        "Receive buffer of a connection; -1 leaves it to the kernel.",
        "SO_RCVBUF",
        at_least(-1),
        ("socket.receive.buffer",),
    ),
    Setting(
        "socket.request.max.bytes",
        "bytes",
        104857600,
        "Largest request; a connection that announces a larger one is closed.",
        "limit of a frame",
        between(1, INT_MAX),
        ("max.socket.request.bytes",),
    ),
    Setting(
        "socket.listen.backlog.size",
        "int",
        -1,
        "Backlog of the listening socket; -1, unlike Kafka's 50, is the kernel's maximum.",
        "limited by net.core.somaxconn",
        at_least_or_off(1),
    ),
    Setting(
        "max.connections", "int", INT_MAX, "Connections of a broker in total.", "further connections wait", at_least(0)
    ),
    Setting(
        "max.connections.per.ip",
        "int",
        INT_MAX,
        "Connections from one address.",
        "further connections are closed",
        at_least(0),
    ),
    Setting(
        "max.connections.per.ip.overrides",
        "list",
        (),
        "Limits for single addresses, as host:number.",
        "replaces max.connections.per.ip for them",
    ),
    Setting(
        "connections.max.idle.ms",
        "ms",
        600000,
        "Idle time after which a connection is closed.",
        "closes idle connections",
        at_least_or_off(1),
    ),
    Setting("request.timeout.ms", "ms", 30000, "Time limit of another broker's answer.", check=at_least(1)),
    Setting(
        "controlled.shutdown.enable",
        "bool",
        True,
        "Transfer leaderships before a broker stops.",
        "controlled shutdown",
    ),
    Setting(
        "controlled.shutdown.max.retries",
        "int",
        3,
        "Attempts of a controlled shutdown; afterwards the broker stops without it.",
        "requests to the controller",
        at_least(0),
    ),
    Setting(
        "controlled.shutdown.retry.backoff.ms",
        "ms",
        5000,
        "Back-off between attempts of a controlled shutdown.",
        "controlled shutdown",
        at_least(0),
    ),
    Setting(
        "metrics.port",
        "int",
        0,
        "Port for Prometheus metrics, on the host of the listener; 0: no metrics. klog's own.",
        "HTTP endpoint",
        _PORT,
    ),
    Setting(
        "schema.registry.port",
        "int",
        0,
        "Port for the schema registry over HTTP, on the host of the listener; 0: only klog's own clients "
        "reach the registry. klog's own.",
        "HTTP endpoint",
        _PORT,
    ),
    Setting("metric.reporters", "list", (), "Java classes that report metrics; klog runs no Java."),
    Setting(
        "zookeeper.connect",
        "string",
        None,
        "ZooKeeper's servers and chroot, as host:port,host:port/chroot; the same for all brokers and clients.",
        "the broker registers there",
        not_empty("at least one host:port"),
        ("zk.connect",),
    ),
    Setting(
        "zookeeper.session.timeout.ms",
        "ms",
        6000,
        "Session timeout, after which ZooKeeper considers the broker dead.",
        "ZooKeeper session",
        between(100, INT_MAX),
        ("zk.sessiontimeout.ms",),
    ),
    Setting(
        "zookeeper.connection.timeout.ms",
        "ms",
        None,
        "Time limit of the first connection to ZooKeeper; the session timeout unless given.",
        "start-up",
        at_least(1),
        ("zk.connectiontimeout.ms",),
        (("zookeeper.session.timeout.ms", 1),),
    ),
    Setting(
        "zookeeper.sync.time.ms",
        "ms",
        2000,
        "How far a ZooKeeper follower may lag; ZooKeeper decides that itself.",
        check=at_least(0),
        aliases=("zk.synctime.ms",),
    ),
    Setting(
        "enable.zookeeper",
        "enum",
        "true",
        "Registration in ZooKeeper, always done. From Kafka 0.7.",
        check=Check("out of true: brokers cannot do without ZooKeeper", lambda value: value == "true"),
    ),
    Setting("zookeeper.set.acl", "bool", False, "Set access lists on znodes; klog's znodes are open."),
    Setting(
        "zookeeper.max.in.flight.requests",
        "int",
        10,
        "Unanswered requests to ZooKeeper; kazoo pipelines by itself.",
        check=at_least(1),
    ),
)
