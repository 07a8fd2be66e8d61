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
        raise InvalidConfig(f"listener {text}: an IPv6 address stands in brackets, as in [::1]:9092")
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
        "The broker's number, unique in the cluster; it stays when the broker moves to another host.",
        "names the broker in ZooKeeper and to clients",
        at_least(0),
        ("node.id", "brokerid"),
    ),
    Setting(
        "broker.rack",
        "string",
        None,
        "The rack the broker stands in; replicas of a partition are spread over racks where they are named.",
        "registered and shown to clients",
    ),
    Setting(
        "listeners",
        "list",
        None,
        "The address to listen on, as PLAINTEXT://HOST:PORT, and NAME://HOST:PORT for brokers among themselves; "
        "without it host.name and port decide.",
        "the sockets the broker listens on",
        _LISTENER,
    ),
    Setting(
        "host.name",
        "string",
        "127.0.0.1",
        "The address to listen on where listeners is not given; klog listens on this machine alone unless told.",
        "the host of the socket where listeners is not given",
    ),
    Setting(
        "port",
        "int",
        9092,
        "The port where listeners is not given; 0 takes a free one.",
        "the port of the socket where listeners is not given",
        _PORT,
    ),
    Setting(
        "advertised.listeners",
        "list",
        None,
        "The address that clients are told to connect to, as PLAINTEXT://HOST:PORT, and NAME://HOST:PORT for brokers; "
        "for brokers behind a balancer.",
        "the addresses in metadata and in ZooKeeper",
        _LISTENER,
    ),
    Setting(
        "advertised.host.name",
        "string",
        None,
        "The host that clients are told where advertised.listeners is not given.",
        "the host in metadata and in ZooKeeper",
    ),
    Setting(
        "advertised.port",
        "int",
        None,
        "The port that clients are told where advertised.listeners is not given.",
        "the port in metadata and in ZooKeeper",
        between(1, 65535),
    ),
    Setting(
        "listener.security.protocol.map",
        "list",
        ("PLAINTEXT:PLAINTEXT",),
        "Which security each listener has; klog serves plain connections only.",
    ),
    Setting(
        "inter.broker.listener.name",
        "string",
        LISTENER_PROTOCOL,
        "The listener that brokers use among themselves, of those in listeners.",
        "where replicas fetch and the controller speaks",
    ),
    Setting(
        "security.inter.broker.protocol",
        "string",
        "PLAINTEXT",
        "The security among brokers; klog has plain connections only.",
    ),
    Setting(
        "inter.broker.protocol.version",
        "string",
        None,
        "The protocol among brokers of mixed versions; klog asks its peers.",
    ),
    Setting(
        "log.message.format.version",
        "string",
        None,
        "The stored message format; klog stores record batches of version 2 only.",
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
        "background.threads", "int", 10, "Threads for chores; klog takes them as it needs them.", check=at_least(1)
    ),
    Setting(
        "queued.max.requests",
        "int",
        500,
        "Requests that may wait in the broker before it stops reading from its connections.",
        "requests of one connection served at once before it is not read from",
        at_least(1),
    ),
    Setting(
        "queued.max.request.bytes",
        "bytes",
        268435456,
        "Memory for all requests that have arrived in part, and as much for all answers that clients have not taken; "
        "-1: unlimited, which is Kafka's default.",
        "above it the broker stops reading from connections, and closes slow ones sooner",
        at_least_or_off(1),
    ),
    Setting(
        "socket.send.buffer.bytes",
        "bytes",
        102400,
        "The kernel's send buffer of a connection; -1 leaves it to the kernel.",
        "SO_SNDBUF of each connection",
        at_least(-1),
        ("socket.send.buffer",),
    ),
    Setting(
        "socket.receive.buffer.bytes",
        "bytes",
        102400,
        "The kernel's receive buffer of a connection; -1 leaves it to the kernel.",
        "SO_RCVBUF of each connection",
        at_least(-1),
        ("socket.receive.buffer",),
    ),
    Setting(
        "socket.request.max.bytes",
        "bytes",
        104857600,
        "The largest request taken; a connection that announces more is closed.",
        "limit of a frame",
        between(1, INT_MAX),
        ("max.socket.request.bytes",),
    ),
    Setting(
        "socket.listen.backlog.size",
        "int",
        -1,
        "Connections the kernel holds while the broker is busy; -1, unlike Kafka's 50, is all that it can.",
        "backlog of the listening socket; the kernel allows net.core.somaxconn",
        at_least_or_off(1),
    ),
    Setting(
        "max.connections", "int", INT_MAX, "Connections a broker takes in all.", "further connections wait", at_least(0)
    ),
    Setting(
        "max.connections.per.ip",
        "int",
        INT_MAX,
        "Connections taken from one address.",
        "further ones are closed",
        at_least(0),
    ),
    Setting(
        "max.connections.per.ip.overrides",
        "list",
        (),
        "Limits for single addresses, as host:number.",
        "limit for these addresses",
    ),
    Setting(
        "connections.max.idle.ms",
        "ms",
        600000,
        "How long a connection may say nothing before it is closed.",
        "idle connections are closed",
        at_least_or_off(1),
    ),
    Setting(
        "request.timeout.ms", "ms", 30000, "How long a broker waits for an answer of another one.", check=at_least(1)
    ),
    Setting(
        "controlled.shutdown.enable",
        "bool",
        True,
        "Whether a broker hands its leaderships over before it stops.",
        "others lead before a broker that is told to stop stops",
    ),
    Setting(
        "controlled.shutdown.max.retries",
        "int",
        3,
        "Tries of a controlled shutdown before the broker stops without.",
        "how often the controller is asked to have others lead",
        at_least(0),
    ),
    Setting(
        "controlled.shutdown.retry.backoff.ms",
        "ms",
        5000,
        "The wait between these tries.",
        "the wait after a try that failed",
        at_least(0),
    ),
    Setting(
        "metrics.port",
        "int",
        0,
        "The port for Prometheus, at the host that is listened on; 0 serves no metrics. klog's own.",
        "metrics are served",
        _PORT,
    ),
    Setting(
        "schema.registry.port",
        "int",
        0,
        "The port for the registry of schemas over HTTP, at the host that is listened on; 0 serves it to klog's own "
        "clients alone. klog's own.",
        "the registry of schemas is served over HTTP",
        _PORT,
    ),
    Setting("metric.reporters", "list", (), "Java classes that report metrics; klog has no Java."),
    Setting(
        "zookeeper.connect",
        "string",
        None,
        "ZooKeeper's servers and chroot, as host:port,host:port/chroot; the same string for every broker and client.",
        "the ZooKeeper this broker registers in",
        not_empty("at least one host:port"),
        ("zk.connect",),
    ),
    Setting(
        "zookeeper.session.timeout.ms",
        "ms",
        6000,
        "Silence after which ZooKeeper takes the broker for dead.",
        "time-out of the session",
        between(100, INT_MAX),
        ("zk.sessiontimeout.ms",),
    ),
    Setting(
        "zookeeper.connection.timeout.ms",
        "ms",
        None,
        "How long to wait for ZooKeeper at start; the session's time-out unless given.",
        "wait for the first connection",
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
    Setting("zookeeper.set.acl", "bool", False, "Whether znodes get access lists; klog's are open."),
    Setting(
        "zookeeper.max.in.flight.requests",
        "int",
        10,
        "Unanswered requests to ZooKeeper; kazoo pipelines by itself.",
        check=at_least(1),
    ),
)
