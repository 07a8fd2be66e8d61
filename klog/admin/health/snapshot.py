"""The cluster at about one moment, asked of brokers and of ZooKeeper once, half dead or not. Nothing is judged here.

Whatever cannot be asked is a reason in words where the answer would stand, never an error: a check is for bad days.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from klog.admin import group_lag
from klog.admin.acts import ActRow, recent_acts
from klog.admin.brokers import describe_self
from klog.admin.group_lag import LagRow
from klog.admin.health.group_looks import GroupLook, group_looks
from klog.admin.health.local_brokers import LocalBroker, brokers_in, local_brokers, processes_at, start_command
from klog.admin.health.moving import watch_reassignments
from klog.admin.log_dirs import LogDirFact, log_dirs
from klog.admin.metrics import read_metrics
from klog.admin.partitions import CLEANUP_POLICY, replica_bytes
from klog.admin.quarantine import LostRow, list_lost
from klog.admin.settings import Described, describe_broker_settings, topic_values
from klog.admin.znode_acls import has_users, open_ones
from klog.client import leader_requests
from klog.client.bootstrap import parse_bootstrap
from klog.client.cluster import Cluster
from klog.client.metadata import Metadata, PartitionNode
from klog.client.other_ends import instead_of_a_zookeeper, instead_of_brokers
from klog.client.servers import Servers, zookeeper_of
from klog.clock import SYSTEM_CLOCK
from klog.config.topic import effective_min_isr
from klog.coordination import brokers, config_notices, controller_election, partition_states, paths, quotas, topics
from klog.coordination.cluster import cluster_id
from klog.coordination.connect_string import ConnectString, four_letter_word, mode_in
from klog.coordination.server_size import ServerSize, server_size
from klog.coordination.topics import Topic
from klog.coordination.zookeeper import ZooKeeper
from klog.coordination.zookeeper_access import access_of
from klog.errors import CannotConnect, KlogError, NoNode, UsageError
from klog.names import TopicPartition, host_port
from klog.net.channel import Channel
from klog.net.conversation import NoAnswer
from klog.protocol.apis import ApiKey
from klog.security.client_security import OPEN, ClientSecurity
from klog.security.errors import NotAllowedByZooKeeper

T = TypeVar("T")
ZOOKEEPER_TIMEOUT_S: Final = 2.5
SERVED_S: Final = 1.0
"""A topic that is registered is known to the brokers by then."""
PROBES_MAX: Final = 100
SOON_S: Final = 0.3
"""A broker that is well has answered by then."""
PROBE_S: Final = 2.2
"""What takes a connection and says nothing for so long hangs. With `SOON_S` it is the time that connecting takes."""
MIN_ISR: Final = "min.insync.replicas"
MAX_BYTES: Final = "max.message.bytes"
SIZE_SETTINGS: Final = ("fetch.max.bytes", "replica.fetch.max.bytes", "socket.request.max.bytes")
AFTER_MAX_MS: Final = "message.timestamp.after.max.ms"
ACTS_WITHIN_MS: Final = 3_600_000
ACTS_MAX: Final = 20
WARNING_DAYS: Final = "klog.certificate.warning.days"
"""A broker's setting: from so many days before a certificate's end on."""
NO_METADATA: Final = Metadata(None, None, {}, {}, {})
"""Of a cluster of which no broker answers."""
NO_BOUND_MS: Final = 1 << 61
"""From here on `AFTER_MAX_MS` asks for nothing."""
SHARED_SETTINGS: Final = (
    "auto.create.topics.enable",
    "auto.leader.rebalance.enable",
    "default.replication.factor",
    "delete.topic.enable",
    "leader.imbalance.per.broker.percentage",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.retention.hours",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
    "replica.lag.time.max.ms",
)
"""What every broker of a cluster should go by alike."""


@dataclass(frozen=True, slots=True)
class CertificateFact:
    """What a broker shows at a listener; ``days_left`` is negative once it has expired."""

    broker: int
    listener: str
    days_left: float
    warning_days: int


@dataclass(frozen=True, slots=True)
class ServerFact:
    """A ZooKeeper server; ``mode`` None: it does not serve, for the ``reason``."""

    address: str
    mode: str | None
    reason: str | None
    size: ServerSize = ServerSize()


@dataclass(slots=True)
class Snapshot:
    """Everything at about one moment. ``silent``: broker -> why it could not be asked."""

    now_ms: int = 0
    asked: tuple[str, ...] = ("topics", "groups", "brokers", "zookeeper")
    bootstrap: str | None = None
    """The brokers' addresses, as they were given."""
    metadata: Metadata = NO_METADATA
    no_brokers: str | None = None
    brokers_do: str | None = None
    """What to do about it, where something else answers at their address."""
    silent: dict[int, str] = field(default_factory=dict)
    hung: dict[int, str] = field(default_factory=dict)
    """Of the silent ones, those that take connections and do not answer -> HOST:PORT."""
    hung_addresses: list[str] = field(default_factory=list)
    """Where some brokers are dead, or none answers: HOST:PORT that was given for the cluster and is such a one's."""
    located: dict[int, str] = field(default_factory=dict)
    """Of dead brokers, where they were last registered, as far as that is known -> HOST:PORT."""
    here: dict[int, LocalBroker] = field(default_factory=dict)
    """Where brokers do not serve: those of a cluster that `klog up` made on this machine, dead or alive."""
    processes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """HOST:PORT of what hangs -> its processes, where they are on this machine."""
    zookeeper: str | None = None
    """Its address."""
    local_start: str | None = None
    """The command that starts what is missing of the cluster, where it is a local one."""
    min_isr: dict[str, int] = field(default_factory=dict)
    settings: dict[int, dict[str, str | None]] = field(default_factory=dict)
    """Broker -> its `SHARED_SETTINGS`, `SIZE_SETTINGS` and more."""
    log_dirs: list[LogDirFact] = field(default_factory=list)
    lost: list[LostRow] = field(default_factory=list)
    standing_still: dict[TopicPartition, list[int]] = field(default_factory=dict)
    """Partitions being reassigned whose new replicas get nothing."""
    watched_s: float = 0.0
    """For how long they were looked at."""
    servers: list[ServerFact] = field(default_factory=list)
    no_zookeeper: str | None = None
    no_chroot: bool = False
    """ZooKeeper serves, and has no cluster at the chroot."""
    zookeeper_do: str | None = None
    """What to do about it, or where something else answers at its address."""
    registered: set[int] | None = None
    ever_registered: set[int] | None = None
    """Also those that are away; None: not known."""
    has_controller: bool | None = None
    other_cluster: str | None = None
    """The cluster that ZooKeeper has, where that is not the brokers'; "": none."""
    own_zookeeper: str | None = None
    """The brokers' own, where they say another than the one that was asked."""
    topics: dict[str, Topic] = field(default_factory=dict)
    deletions: dict[str, int] = field(default_factory=dict)
    """Topic -> since when its deletion is asked for, in ms."""
    deleted: set[str] = field(default_factory=set)
    """Topics that can be restored; they are not among ``topics``."""
    damage: dict[str, str] = field(default_factory=dict)
    """Path in ZooKeeper -> the error in its data."""
    not_served: list[str] = field(default_factory=list)
    """Topics that ZooKeeper has and no broker knows."""
    ahead_max_ms: dict[str, int] = field(default_factory=dict)
    """Topic -> ``message.timestamp.after.max.ms``."""
    ahead: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """The first message of each partition that is further ahead of the clock than that: its offset and time in ms."""
    open_nodes: list[str] = field(default_factory=list)
    """Of the nodes that every cluster has, those that everybody may change."""
    has_users: bool = False
    """Whether the session can see that there are users who log in."""
    groups: list[LagRow] = field(default_factory=list)
    group_looks: list[GroupLook] = field(default_factory=list)
    no_groups: str | None = "they could not be asked"
    """Why groups are not known; None: they are."""
    acts: list[ActRow] = field(default_factory=list)
    """What was changed within the last `ACTS_WITHIN_MS`, the newest first; the last `ACTS_MAX`."""
    acts_in_all: int = 0
    max_bytes: dict[str, int] = field(default_factory=dict)
    """Topic -> ``max.message.bytes``."""
    uncompacted: dict[str, int] = field(default_factory=dict)
    """Topics whose ``cleanup.policy`` has compact -> bytes of all their replicas."""
    clocks: dict[int, int] = field(default_factory=dict)
    """Broker -> how far its clock is ahead of this machine's, in ms."""
    certificates: list[CertificateFact] = field(default_factory=list)

    @property
    def answers(self) -> bool:
        """Whether any broker answers."""
        return self.metadata is not NO_METADATA

    @property
    def addresses(self) -> str:
        """The brokers': those that live, or those that were given where these are more."""
        live = [one.address for one in self.metadata.brokers.values()]
        given = (self.bootstrap or self.zookeeper or "").split(",")
        return ",".join(live if len(live) >= len(given) else given)

    def is_away(self, broker: int) -> bool:
        """It is not alive, or does not answer."""
        return broker not in self.metadata.brokers or broker in self.silent

    def needed(self, topic: str, partition: PartitionNode) -> int:
        """The in-sync replicas without which a partition refuses acks=all."""
        return effective_min_isr(self.min_isr.get(topic, 1), len(partition.replicas))


Locate = Callable[["Cluster"], Awaitable[Mapping[int, str]]]
"""Where brokers were last registered."""


@dataclass(frozen=True, slots=True)
class Where:
    """A cluster to ask about: its addresses, at least one of them, and who gave them. ``home`` has the local clusters;
    ``local`` is the folder of the one that is meant; ``security``: how to connect to brokers that ZooKeeper names."""

    bootstrap: str | None
    zookeeper: str | None
    source: str = "the caller"
    home: Path | None = None
    local: Path | None = None
    security: ClientSecurity = OPEN
    timeout_s: float = 10.0


async def take_snapshot(where: Where, subjects: Collection[str], locate: Locate | None = None) -> Snapshot:
    """What these subjects (topics, groups, brokers, zookeeper) need. UsageError for a bad address.

    ``locate`` is asked only where brokers are dead, to tell those that hang.
    """
    snapshot = Snapshot(time.time_ns() // 1_000_000, tuple(subjects), where.bootstrap)
    zookeeper, home, local = where.zookeeper, where.home, where.local
    cluster: Cluster | None = None
    session: ZooKeeper | None = None
    asking: asyncio.Future[list[ServerFact]] | None = None
    other: CannotConnect | None = None
    try:
        if where.bootstrap is not None:
            cluster = await _connect(snapshot, where.bootstrap, where.source, where.timeout_s)
            if cluster is not None:
                try:
                    zookeeper = zookeeper or await _zookeeper_of(cluster)
                except KlogError as error:
                    snapshot.no_brokers = _or_raise(error)
        if zookeeper is not None:
            session = ZooKeeper(zookeeper, operation_timeout_s=where.timeout_s)
            if "zookeeper" in subjects:  # while the session is opened: a silent server is waited for once
                asking = asyncio.ensure_future(_servers(zookeeper))
            try:
                await asyncio.to_thread(session.start, ZOOKEEPER_TIMEOUT_S, patient=False)
                await asyncio.to_thread(_read_registries, snapshot, session)
            except NoNode as error:  # not even the chroot
                if snapshot.answers:
                    snapshot.other_cluster = ""
                else:
                    snapshot.no_zookeeper, snapshot.zookeeper_do, snapshot.no_chroot = error.message, error.hint, True
            except KlogError as error:
                other = await instead_of_a_zookeeper(zookeeper) if isinstance(error, CannotConnect) else None
                snapshot.no_zookeeper = _or_raise(other or error)
                snapshot.zookeeper_do = None if other is None else other.hint
            if cluster is None and snapshot.registered is not None:
                cluster = await _connect_registered(snapshot, session, where)
            if asking is not None and other is None:
                snapshot.servers = await asking
        snapshot.zookeeper = zookeeper
        if cluster is not None:
            if "brokers" in subjects:
                await ask_brokers(snapshot, cluster, locate, home)
            else:
                await _look_here(snapshot, home)
            if "topics" in subjects:
                await _ask_topics(snapshot, cluster)
            if snapshot.other_cluster is not None:
                own = await _zookeeper_of(cluster)
                snapshot.own_zookeeper = None if own == zookeeper else own
                snapshot.no_groups = "ZooKeeper does not have this cluster"
            elif "groups" in subjects and session is not None and snapshot.no_zookeeper is None:
                await _ask_groups(snapshot, cluster, session)
        if home is not None and local is not None:
            snapshot.local_start = start_command(home, local)
            if not snapshot.answers:
                snapshot.here = await asyncio.to_thread(brokers_in, home, local)
    finally:
        if asking is not None:
            asking.cancel()
        if cluster is not None:
            await cluster.close()
        if session is not None:
            await asyncio.to_thread(session.stop)
    snapshot.processes = await asyncio.to_thread(processes_at, [*snapshot.hung.values(), *snapshot.hung_addresses])
    return snapshot


async def _ask_groups(snapshot: Snapshot, cluster: Cluster, session: ZooKeeper) -> None:
    try:
        snapshot.groups = await group_lag.lag(cluster, session)
        snapshot.group_looks = await group_looks(cluster, session, snapshot.metadata.topics, snapshot.silent)
    except KlogError as error:
        snapshot.no_groups = _or_raise(error)
    else:
        snapshot.no_groups = None


def _or_raise(error: KlogError) -> str:
    if error.exit_code != 1:
        raise error
    return error.message


async def _connect(snapshot: Snapshot, bootstrap: str, source: str, timeout_s: float) -> Cluster | None:
    """The cluster, its metadata read; None, with the reason in the snapshot, where none of these servers answers."""

    async def reached() -> Cluster:
        cluster = await Cluster.connect(bootstrap, source=source, timeout_s=timeout_s)
        try:
            snapshot.metadata = await cluster.metadata()
        except BaseException:
            await cluster.close()
            raise
        return cluster

    servers = parse_bootstrap(bootstrap, source)
    found = await _answer_of(reached(), servers, min(PROBE_S, timeout_s))
    if not isinstance(found, _Silence):
        return found
    snapshot.hung_addresses = found.hung_addresses
    asks = isinstance(found.error, CannotConnect) and not found.hung_addresses
    other = await instead_of_brokers(bootstrap, source) if asks else None
    given = f" (addresses from {source})" if other is None else ""
    snapshot.no_brokers = _or_raise(other or found.error) + given
    snapshot.brokers_do = None if other is None else other.hint
    return None


async def _connect_registered(snapshot: Snapshot, session: ZooKeeper, where: Where) -> Cluster | None:
    """By the addresses in ZooKeeper, if there are others than those that were tried."""
    live = await asyncio.to_thread(brokers.live, session)
    if not live:
        none = await asyncio.to_thread(_why_none, session)
        snapshot.no_brokers = f"{snapshot.no_brokers}; {none}" if snapshot.hung_addresses else none
        return None
    try:
        addresses = Servers(brokers.client_addresses(live, where.security.protocol), where.security)
        tried = [] if where.bootstrap is None else parse_bootstrap(where.bootstrap, where.source)
        if tried and {*parse_bootstrap(addresses, "ZooKeeper")} <= {*tried}:
            return None
    except KlogError as error:
        snapshot.no_brokers = error.message
        return None
    return await _connect(snapshot, addresses, "ZooKeeper", where.timeout_s)


def _why_none(session: ZooKeeper) -> str:
    """Why no broker is registered: a chroot that was left out is named."""
    try:
        session.check_cluster()
    except NoNode as error:
        return f"{error.message}; {error.hint}"
    return "no broker is registered in ZooKeeper"


async def _zookeeper_of(cluster: Cluster) -> str | None:
    """As the first broker says that answers; None where none of them is klog's."""
    told = (await cluster.to_each(ApiKey.DESCRIBE_SELF, 0)).values()
    # Who may not describe the cluster gets an answer without an address.
    addresses = (str(one.zookeeper) for one in told if not isinstance(one, KlogError) and one.zookeeper)
    return next((zookeeper_of(cluster.bootstrap, address) for address in addresses), None)


# --- ZooKeeper --------------------------------------------------------------------------------------------------------


def _read_registries(snapshot: Snapshot, session: ZooKeeper) -> None:
    """In a thread."""
    if snapshot.answers:
        found_id = cluster_id(session) or ""
        snapshot.other_cluster = None if found_id == snapshot.metadata.cluster_id else found_id
        if snapshot.other_cluster is not None:
            return  # what it has is not about these brokers
    snapshot.open_nodes, snapshot.has_users = open_ones(session), has_users(session)
    snapshot.ever_registered = brokers.ever_registered(session)
    snapshot.registered = {entry.broker.broker_id for entry in brokers.live(session)}
    snapshot.has_controller = controller_election.current(session) is not None
    found = {topic.name: topic for topic in topics.read_all(session, snapshot.damage)}
    marked = topics.being_deleted(session)
    snapshot.deleted = {name for name, topic in found.items() if topic.deletion is not None and name not in marked}
    snapshot.topics = {name: topic for name, topic in found.items() if name not in snapshot.deleted}
    topics.configs(session, list(snapshot.topics), snapshot.damage)
    snapshot.damage |= config_notices.read(session, -1).damage
    try:
        snapshot.damage |= quotas.read_all(session).damage
    except NotAllowedByZooKeeper:
        pass  # quotas are beside credentials, which are for the owner alone; docs/security.md says so
    unreadable: dict[TopicPartition, str] = {}
    partition_states.read_many(
        session, [name for topic in snapshot.topics.values() for name in topic.topic_partitions], unreadable
    )
    snapshot.damage |= {paths.partition_state(*name): what for name, what in unreadable.items()}
    deletions = session.find_many(marked, paths.delete_topic)
    snapshot.deletions = {name: node.stat.created_ms for name, node in deletions.items()}
    snapshot.acts, snapshot.acts_in_all = recent_acts(session, snapshot.now_ms - ACTS_WITHIN_MS, ACTS_MAX)


async def _servers(zookeeper: str) -> list[ServerFact]:
    servers, context = ConnectString.parse(zookeeper).servers, access_of(zookeeper).context
    return list(await asyncio.gather(*(asyncio.to_thread(_server, host, port, context) for host, port in servers)))


def _server(host: str, port: int, context: ssl.SSLContext | None = None) -> ServerFact:
    address = host_port(host, port)
    try:
        answer = four_letter_word(host, port, b"srvr", ZOOKEEPER_TIMEOUT_S, context)
    except OSError as error:
        return ServerFact(
            address, None, "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        )
    mode = mode_in(answer)
    if mode is None and "whitelist" in answer:
        mode = "unknown"  # it serves, and keeps to itself how
    if mode is None:
        return ServerFact(address, None, answer.strip()[:120] or "closed the connection")
    try:
        size = server_size(host, port, ZOOKEEPER_TIMEOUT_S, context)
    except OSError:
        size = ServerSize()  # another's, perhaps: what it does not say is not judged
    return ServerFact(address, mode, None, size)


# --- Brokers ----------------------------------------------------------------------------------------------------------


async def ask_brokers(snapshot: Snapshot, cluster: Cluster, locate: Locate | None, home: Path | None) -> None:
    """How each broker is: settings, log dirs, clock, certificates; which are silent or hang, and where dead ones were.

    ``locate`` is as in `take_snapshot`, ``home`` has the local clusters.
    """
    await asyncio.gather(*(_ask_broker(snapshot, cluster, broker) for broker in snapshot.metadata.brokers))
    await _look_here(snapshot, home)
    await _probe_dead(snapshot, cluster, locate)


async def _look_here(snapshot: Snapshot, home: Path | None) -> None:
    """Where something is to be done on a broker's host: which brokers are this machine's."""
    is_ill = snapshot.metadata.dead or snapshot.silent or any(one.error is not None for one in snapshot.log_dirs)
    if home is not None and is_ill:
        snapshot.here = await asyncio.to_thread(local_brokers, home, snapshot.metadata.cluster_id)


async def _ask_topics(snapshot: Snapshot, cluster: Cluster) -> None:
    metadata = snapshot.metadata
    try:
        names = [MIN_ISR, AFTER_MAX_MS, MAX_BYTES, CLEANUP_POLICY]
        asking = []
        for topic, values in (await topic_values(cluster, list(metadata.topics), names)).items():
            snapshot.min_isr[topic] = int(values.get(MIN_ISR) or 1)
            snapshot.max_bytes[topic] = int(values.get(MAX_BYTES) or 0)
            snapshot.ahead_max_ms[topic] = int(values.get(AFTER_MAX_MS) or NO_BOUND_MS)
            if "compact" in (values.get(CLEANUP_POLICY) or "") and cluster.is_klog:
                asking.append(topic)
        snapshot.uncompacted = await replica_bytes(cluster, asking)
        await _look_ahead(snapshot, cluster, metadata)
        if cluster.is_klog:
            snapshot.lost = await list_lost(cluster, known=metadata, silent=snapshot.silent)
        kept = [topic for name, topic in snapshot.topics.items() if name not in snapshot.deletions]
        snapshot.standing_still, snapshot.watched_s = await watch_reassignments(
            cluster, metadata, kept, snapshot.max_bytes
        )
        await _watch_new_topics(snapshot, cluster, metadata)
    except KlogError as error:
        snapshot.no_brokers = _or_raise(error)


async def _look_ahead(snapshot: Snapshot, cluster: Cluster, metadata: Metadata) -> None:
    """Find messages from ahead of the clock. Brokers know each segment's largest time, and read nothing without any."""
    shares: dict[int, dict[TopicPartition, int]] = {}
    for topic in metadata.topics.values():
        ahead_max_ms = snapshot.ahead_max_ms.get(topic.name, NO_BOUND_MS)
        for number, one in topic.partitions.items():
            leader = one.leader
            if ahead_max_ms < NO_BOUND_MS and leader is not None and not snapshot.is_away(leader):
                later_ms = snapshot.now_ms + ahead_max_ms + 1
                shares.setdefault(leader, {})[TopicPartition(topic.name, number)] = later_ms

    async def ask(broker: int, share: dict[TopicPartition, int]) -> None:
        """Once: an answer that does not come is no finding, and the screen does not wait for it."""
        try:
            answers = await leader_requests.list_offsets(await cluster.channel(broker), share)
        except KlogError:
            return
        for name, found in answers.items():
            if not isinstance(found, KlogError) and found.offset is not None and found.timestamp_ms is not None:
                snapshot.ahead[name] = found.offset, found.timestamp_ms

    await asyncio.gather(*(ask(broker, share) for broker, share in shares.items()))


async def _ask_broker(snapshot: Snapshot, cluster: Cluster, broker: int) -> None:
    async def asked() -> tuple[list[Described], list[LogDirFact]]:
        names = [*SHARED_SETTINGS, *SIZE_SETTINGS, WARNING_DAYS]
        return await describe_broker_settings(cluster, broker, names=names), await log_dirs(cluster, broker)

    node = snapshot.metadata.brokers[broker]
    found = await _answer_of(asked(), [(node.host, node.port)])
    if isinstance(found, _Silence):
        snapshot.silent[broker] = _or_raise(found.error)
        if found.hung_addresses:
            snapshot.hung[broker] = node.address
        return
    told, dirs = found
    settings = snapshot.settings[broker] = {one.name: one.value for one in told}
    snapshot.log_dirs += dirs
    before_ms = SYSTEM_CLOCK.now_ms()
    own = await describe_self(cluster, broker)
    if own is not None:
        snapshot.clocks[broker] = int(own.now_ms) - (before_ms + SYSTEM_CLOCK.now_ms()) // 2
    warning_days = settings.get(WARNING_DAYS)
    if warning_days is not None:  # else it is an older broker, or Kafka's
        snapshot.certificates += await _certificates(cluster, broker, int(warning_days))


async def _certificates(cluster: Cluster, broker: int, warning_days: int) -> list[CertificateFact]:
    """Of the listeners that have one; none of a broker that does not say."""
    try:
        rows = await read_metrics(cluster, ["klog_certificate_days_left"], broker=broker)
    except KlogError:
        return []
    return [
        CertificateFact(broker, one.labels.get("listener", ""), one.value, warning_days)
        for one in rows
        if one.value is not None and one.error is None
    ]


async def _probe_dead(snapshot: Snapshot, cluster: Cluster, locate: Locate | None) -> None:
    """Find processes of dead brokers that still listen: a broker that hangs loses its entry in ZooKeeper."""
    metadata = snapshot.metadata
    dead = metadata.dead
    if not dead:
        return
    found = {broker: one.address for broker, one in snapshot.here.items()}
    if locate is not None and not dead <= found.keys():
        found = {**await locate(cluster), **found}
    snapshot.located = {broker: found[broker] for broker in sorted(dead & found.keys())}
    live = {(one.host, one.port) for one in metadata.brokers.values()}
    servers = parse_bootstrap(cluster.bootstrap, cluster.source)
    for address in snapshot.located.values():  # from events, which any client can write
        try:
            servers += [one for one in parse_bootstrap(address, "klog.events") if one not in servers]
        except UsageError:
            continue
    snapshot.hung_addresses = await _hung([one for one in servers if one not in live][:PROBES_MAX])


class _Silence(NamedTuple):
    """Instead of an answer: the error, and those of the servers that take connections and do not answer."""

    error: KlogError
    hung_addresses: list[str]


async def _answer_of(
    asking: Coroutine[Any, Any, T], servers: Sequence[tuple[str, int]], probe_s: float = PROBE_S
) -> T | _Silence:
    """What these servers answer. While they are silent it is looked which of them hang, and not after that."""
    answer = asyncio.ensure_future(asking)
    probing: asyncio.Future[list[str]] | None = None
    try:
        done, _ = await asyncio.wait({answer}, timeout=SOON_S)
        if not done:
            probing = asyncio.ensure_future(_hung(servers, probe_s))
        return await answer
    except KlogError as error:
        return _Silence(error, await probing if probing is not None else [])
    finally:
        answer.cancel()
        if probing is not None:
            probing.cancel()


async def _hung(servers: Sequence[tuple[str, int]], wait_s: float = PROBE_S) -> list[str]:
    """Those of these addresses that take a connection and do not answer."""

    async def hangs(host: str, port: int) -> bool:
        try:
            channel = await Channel.connect(host, port, connect_timeout_s=wait_s, timeout_s=wait_s)
        except KlogError as error:
            return isinstance(error, NoAnswer)
        await channel.close()
        return False

    answers = await asyncio.gather(*(hangs(*one) for one in servers))
    return [host_port(host, port) for (host, port), hung in zip(servers, answers, strict=True) if hung]


async def _watch_new_topics(snapshot: Snapshot, cluster: Cluster, metadata: Metadata) -> None:
    """Find topics that are registered and that brokers do not know, or that never had a leader: looked at twice, since
    one may be new."""
    missing = snapshot.topics.keys() - metadata.topics.keys() - snapshot.deletions.keys()
    unled = {
        name
        for name, topic in metadata.topics.items()
        if any(one.leader is None and not one.isr for one in topic.partitions.values())
    }
    if missing or unled:
        await asyncio.sleep(SERVED_S)
        later = (await cluster.metadata(fresh=True)).topics
        snapshot.not_served = sorted(missing - later.keys())
        topics = {name: later.get(name, topic) if name in unled else topic for name, topic in metadata.topics.items()}
        snapshot.metadata = metadata._replace(topics=topics)
