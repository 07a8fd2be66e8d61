"""The broker registry: ``/brokers/ids/<id>``, ephemeral, with ``/klog/registrations/<id>`` beside it as its fence.

The entry is 0.8's ``{"jmx_port":-1,"timestamp":"ms","host":"h","version":1,"port":9092}`` and klog's own keys behind
it: ``log_dirs`` (UUIDs of the broker's log dirs, rule R7), ``bind`` (``host:port`` it listens on, where a probe goes:
rule R6), ``rack``, ``inter_broker`` (where brokers reach it, if not where clients do). Its listeners are under keys of
later Kafka: ``"endpoints":["SASL_SSL://h:9093"]``, ``"listener_security_protocol_map":{"SASL_SSL":"SASL_SSL"}``.
A broker's *incarnation* is the czxid of its entry: one registration.

Every registration raises the version of the persistent node in the same multi that makes the entry (rule Z1), so a
broker can tell at any time whether it is still the one registered, by a check that a re-created entry cannot pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from klog.coordination import entries, paths
from klog.coordination.zookeeper import Check, Create, Delete, Operation, SetData, Watch, ZNode, ZooKeeper
from klog.errors import BadVersion, BrokerIdInUse, BrokerNotAvailable, NodeExists, NoNode, SessionLost
from klog.names import host_port
from klog.security.client_security import PLAINTEXT

REGISTER_TRIES = 20
LEFT = "left"
"""Data of the node beside an entry that its broker has removed."""


class Endpoint(NamedTuple):
    """A broker's address for the clients of one listener, and the listener's protocol."""

    listener: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{host_port(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as registered. `host` and `port`: advertised to clients; `bind`: where it listens."""

    broker_id: int
    host: str
    port: int
    log_dirs: tuple[str, ...] = ()
    bind: str = ""
    rack: str = ""
    jmx_port: int = -1
    timestamp_ms: int = 0
    inter_broker: str = ""
    """``host:port`` where brokers reach it, if that differs from the address advertised to clients."""
    endpoints: tuple[Endpoint, ...] = ()
    """All its listeners; empty for an older broker, which has one plaintext listener for clients."""

    def client_address(self, protocol: str) -> tuple[str, int] | None:
        """Host and port for clients of ``protocol``; None without such a listener. Client listeners come first."""
        listening = self.endpoints or (Endpoint(PLAINTEXT, PLAINTEXT, self.host, self.port),)
        fitting = [(one.host, one.port) for one in listening if one.protocol == protocol]
        if (self.host, self.port) in fitting:
            return self.host, self.port
        return next((one for one in fitting if one != self.inter_address), fitting[0] if fitting else None)

    @property
    def inter_address(self) -> tuple[str, int]:
        """Host and port for other brokers."""
        host, _, port = self.inter_broker.rpartition(":")
        return (host, int(port)) if host else (self.host, self.port)

    @property
    def probe_address(self) -> tuple[str, int]:
        """Where to probe it: the address it listens on, where no load balancer answers in its place (rule R6).

        A wildcard or loopback address is useless on other machines: then the address where brokers reach it.
        """
        host, _, port = self.bind.rpartition(":")
        inter_host, inter_port = self.inter_address
        if not host or (_is_loopback(host) and not _is_loopback(inter_host)):
            return inter_host, inter_port
        return (inter_host if host in ("0.0.0.0", "::") else host), int(port)


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker's entry in ZooKeeper. `fence_version`: version of the node beside it."""

    broker: Broker
    incarnation: int
    session: int
    version: int
    fence_version: int

    @property
    def fence(self) -> Check:
        """Fails once this broker id is registered again."""
        return Check(paths.registration(self.broker.broker_id), self.fence_version)


def register(
    zookeeper: ZooKeeper, broker: Broker, ask_holder: Callable[[Registration], None] | None = None
) -> Registration:
    """Register the broker; the caller holds the locks of `broker.log_dirs`.

    An entry from our own earlier process is replaced, and with it a `/controller` of the same dead session. It is ours
    if we now hold the locks of all its log dirs, so that process is dead or has released them (rule R7). Any other
    entry is BrokerIdInUse, which names the holder; one without log dirs (not klog's) is never replaced.

    A copied log dir has the same UUIDs but another lock. So ``ask_holder`` gets an entry of another session before it
    is replaced: it returns if the holder is dead, and raises if it is alive.
    """
    stamped = broker.timestamp_ms or zookeeper.clock.now_ms()
    broker = replace(broker, log_dirs=tuple(sorted(broker.log_dirs)), timestamp_ms=stamped)
    path, beside = paths.broker(broker.broker_id), paths.registration(broker.broker_id)
    data = _encode(broker)
    for _ in range(REGISTER_TRIES):
        # Read the fence before the entry: it may be too old, which fails the multi, but never too new.
        fence, node = zookeeper.get_many([beside, path])
        if fence is None:
            zookeeper.ensure_paths([paths.REGISTRATIONS])
            zookeeper.create_missing([beside], entries.encode({"version": 1}))
            continue
        session = zookeeper.session_id
        if node is not None and node.data == data and node.stat.owner_session == session:
            return _registration(path, node, fence)
        operations: list[Operation] = [
            SetData(beside, entries.encode({"version": 1, "session": f"{session:#x}"}), fence.stat.version)
        ]
        if node is not None:
            holder = _decode(path, node.data)
            if not holder.log_dirs or not set(holder.log_dirs) <= set(broker.log_dirs):
                raise _in_use(path, holder, node)
            if ask_holder is not None and node.stat.owner_session != session:
                ask_holder(_registration(path, node, fence))
            operations += _controller_of(zookeeper, node.stat.owner_session)
            operations.append(Delete(path, node.stat.version))
        operations.append(Create(path, data, ephemeral=True))
        try:
            zookeeper.multi(operations)
        except (BadVersion, NodeExists, NoNode, SessionLost):
            pass
        # An answer may be lost, so success is decided by reading: the loop's start finds our own entry.
    raise SessionLost(f"{path} could not be made in {REGISTER_TRIES} tries at ZooKeeper {zookeeper.address}")


def unregister(zookeeper: ZooKeeper, registration: Registration) -> None:
    """Remove the entry if it is still this one, and note in the node beside it that the broker has left."""
    broker_id = registration.broker.broker_id
    left = SetData(
        paths.registration(broker_id), entries.encode({"version": 1, LEFT: True}), registration.fence_version
    )
    try:
        zookeeper.commit([left, Delete(paths.broker(broker_id))])
    except (BadVersion, NoNode):
        pass


def is_current(zookeeper: ZooKeeper, registration: Registration, watch: Watch | None = None) -> bool:
    """Whether this is still the last registration of the id; a broker whose entry was replaced stops (rule R7).

    The watch fires on another registration.
    """
    beside = zookeeper.exists(paths.registration(registration.broker.broker_id), watch)
    return beside is not None and beside.version == registration.fence_version


def find(zookeeper: ZooKeeper, broker_id: int) -> Registration | None:
    """The broker's registration, or None."""
    fence, node = zookeeper.get_many([paths.registration(broker_id), paths.broker(broker_id)])
    return None if node is None else _registration(paths.broker(broker_id), node, fence)


def live(zookeeper: ZooKeeper, watch: Watch | None = None) -> list[Registration]:
    """All registered brokers by id; the watch fires when one comes or goes, but perhaps not when one is replaced."""
    ids = sorted(int(name) for name in zookeeper.find_children(paths.BROKER_IDS, watch) if name.isdigit())
    fences = zookeeper.find_many(ids, paths.registration)
    nodes = zookeeper.find_many(ids, paths.broker)
    return [_registration(paths.broker(one), node, fences.get(one)) for one, node in nodes.items()]


def ever_registered(zookeeper: ZooKeeper) -> set[int]:
    """The ids of all brokers that the cluster has had, by the nodes that registrations leave."""
    names, live_ids = zookeeper.children_many([paths.REGISTRATIONS, paths.BROKER_IDS])
    return {int(name) for name in (*names, *live_ids) if name.isdigit()}


def left_in_order(zookeeper: ZooKeeper) -> set[int]:
    """The brokers whose last shutdown was clean."""
    nodes = zookeeper.find_many(ever_registered(zookeeper), paths.registration)
    return {one for one, node in nodes.items() if entries.JsonNode(paths.registration(one), node.data).flag(LEFT)}


def bootstrap_of(zookeeper: ZooKeeper, protocol: str) -> str:
    """`client_addresses` of all registered brokers. Raises BrokerNotAvailable without any, NoNode without a cluster."""
    registered = live(zookeeper)
    if not registered:
        zookeeper.check_cluster()
        raise BrokerNotAvailable(
            f"no broker is registered in ZooKeeper {zookeeper.address}",
            hint="start one with `klog broker start` or `klog up`",
        )
    return client_addresses(registered, protocol)


def client_addresses(registered: Sequence[Registration], protocol: str) -> str:
    """``host:port,...``: these brokers' addresses for clients that speak ``protocol``.

    Raises BrokerNotAvailable where there are brokers, and none of them has such a listener.
    """
    found = [address for one in registered if (address := one.broker.client_address(protocol)) is not None]
    if registered and not found:
        spoken = dict.fromkeys(each.protocol for one in registered for each in one.broker.endpoints) or (PLAINTEXT,)
        raise BrokerNotAvailable(
            f"no registered broker has a listener with {protocol}",
            hint=f"security.protocol must be one that they speak: {', '.join(spoken)}",
        )
    return ",".join(host_port(host, port) for host, port in found)


def _controller_of(zookeeper: ZooKeeper, session: int) -> list[Operation]:
    """The operations that remove a `/controller` of the dead session, fenced by its epoch (rule Z1)."""
    epoch, controller = zookeeper.get_many([paths.CONTROLLER_EPOCH, paths.CONTROLLER])
    if epoch is None or controller is None or controller.stat.owner_session != session:
        return []
    return [Check(paths.CONTROLLER_EPOCH, epoch.stat.version), Delete(paths.CONTROLLER)]


def _in_use(path: str, holder: Broker, node: ZNode) -> BrokerIdInUse:
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(node.stat.created_ms / 1000))
    return BrokerIdInUse(
        f"broker id {holder.broker_id} is in use by {host_port(holder.host, holder.port)} since {since} "
        f"({path}, session {node.stat.owner_session:#x}, log dirs {', '.join(holder.log_dirs) or 'unknown'})",
        hint="choose another --id; an entry that a dead broker left goes with its ZooKeeper session",
    )


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _encode(broker: Broker) -> bytes:
    fields: dict[str, object] = {
        "jmx_port": broker.jmx_port,
        "timestamp": str(broker.timestamp_ms),
        "host": broker.host,
        "version": 1,
        "port": broker.port,
        "log_dirs": list(broker.log_dirs),
        "bind": broker.bind,
    }
    if broker.rack:
        fields["rack"] = broker.rack
    if broker.inter_broker:
        fields["inter_broker"] = broker.inter_broker
    if broker.endpoints:
        fields["endpoints"] = [str(one) for one in broker.endpoints]
        fields["listener_security_protocol_map"] = {one.listener: one.protocol for one in broker.endpoints}
    return entries.encode(fields)


def _decode(path: str, data: bytes) -> Broker:
    entry = entries.JsonNode(path, data)
    return Broker(
        broker_id=int(path.rpartition("/")[2]),
        host=entry.text("host"),
        port=entry.integer("port"),
        log_dirs=entry.texts("log_dirs"),
        bind=entry.text("bind", ""),
        rack=entry.text("rack", ""),
        jmx_port=entry.integer("jmx_port", -1),
        timestamp_ms=entry.integer("timestamp", 0),
        inter_broker=entry.text("inter_broker", ""),
        endpoints=_endpoints(entry),
    )


def _endpoints(entry: entries.JsonNode) -> tuple[Endpoint, ...]:
    protocols = entry.fields.get("listener_security_protocol_map")
    found = []
    for text in entry.texts("endpoints"):
        name, _, rest = text.partition("://")
        host, _, port = rest.rpartition(":")
        if port.isdecimal():
            protocol = protocols.get(name, name) if isinstance(protocols, dict) else name
            found.append(Endpoint(name, str(protocol), host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(found)


def _registration(path: str, node: ZNode, fence: ZNode | None) -> Registration:
    return Registration(
        broker=_decode(path, node.data),
        incarnation=node.stat.created_zxid,
        session=node.stat.owner_session,
        version=node.stat.version,
        fence_version=fence.stat.version if fence is not None else -1,
    )
