"""What `klog check` looks at: asked of brokers and of ZooKeeper once, half dead or not. Nothing is judged here.

Whatever cannot be asked is a reason in words where the answer would stand, never an error: a check is for bad days.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from klog.errors import KlogError, UsageError
from klog.names import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from klog.admin.check_groups import GroupLook, GroupOffset
    from klog.admin.quarantine import LostRow
    from klog.client.cluster import Cluster
    from klog.client.metadata import Metadata
    from klog.coordination.topics import Topic
    from klog.coordination.zookeeper import ZooKeeper

ZOOKEEPER_TIMEOUT_S: Final = 3.0
MOVING_S: Final = 1.0
"""How long a replica that is being filled may stand still before it counts as stalled. A throttle slows it, but not to
nothing for so long."""
KNOCKS_MAX: Final = 100
SOON_S: Final = 0.3
"""A broker that is well has answered by then."""
KNOCK_S: Final = 3.0
"""What takes a connection and says nothing for so long hangs."""
MIN_ISR: Final = "min.insync.replicas"
MAX_BYTES: Final = "max.message.bytes"
SIZE_SETTINGS: Final = ("fetch.max.bytes", "replica.fetch.max.bytes", "socket.request.max.bytes")
AFTER_MAX_MS: Final = "message.timestamp.after.max.ms"
NO_BOUND_MS: Final = 1 << 61
"""From here on `AFTER_MAX_MS` asks for nothing."""
SHARED_SETTINGS: Final = (
    "auto.create.topics.enable",
    "auto.leader.rebalance.enable",
    "default.replication.factor",
    "delete.topic.enable",
    "leader.imbalance.per.broker.percentage",
    "log.flush.interval.messages",
    "log.retention.hours",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
)
"""What every broker of a cluster should go by alike."""


@dataclass(frozen=True, slots=True)
class LogDirFact:
    """A broker's log dir; ``error`` None: it serves. ``free_bytes`` None: not known."""

    broker: int
    path: str
    error: str | None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ServerFact:
    """A ZooKeeper server; ``mode`` None: it does not serve, for the ``reason``."""

    address: str
    mode: str | None
    reason: str | None
    nodes: int | None = None
    data_bytes: int | None = None
    """What it keeps; None where it does not say."""
    heap_bytes: int | None = None
    """The most that its JVM may take."""


@dataclass(slots=True)
class Facts:
    """Everything at about one moment. ``silent``: broker -> why it could not be asked."""

    now_ms: int = 0
    metadata: Metadata | None = None
    no_brokers: str | None = None
    silent: dict[int, str] = field(default_factory=dict)
    hung: dict[int, str] = field(default_factory=dict)
    """Of the silent ones, those that take connections and do not answer -> HOST:PORT."""
    hung_addresses: list[str] = field(default_factory=list)
    """Where some brokers are dead, or none answers: HOST:PORT that was given for the cluster and is such a one's."""
    located: dict[int, str] = field(default_factory=dict)
    """Of dead brokers, where they were last registered, as far as that is known -> HOST:PORT."""
    min_isr: dict[str, int] = field(default_factory=dict)
    settings: dict[int, dict[str, str | None]] = field(default_factory=dict)
    log_dirs: list[LogDirFact] = field(default_factory=list)
    lost: list[LostRow] = field(default_factory=list)
    standing_still: dict[TopicPartition, list[int]] = field(default_factory=dict)
    """Partitions being reassigned whose new replicas get nothing."""
    servers: list[ServerFact] = field(default_factory=list)
    no_zookeeper: str | None = None
    registered: set[int] | None = None
    has_controller: bool | None = None
    topics: dict[str, Topic] = field(default_factory=dict)
    deletions: dict[str, int] = field(default_factory=dict)
    """Topic -> since when its deletion is asked for, in ms."""
    trashed: dict[str, UUID] = field(default_factory=dict)
    """Topics in the trash: name -> topic id; of several of a name, the last one."""
    damage: dict[str, str] = field(default_factory=dict)
    """Path in ZooKeeper -> the error in its data."""
    not_served: list[str] = field(default_factory=list)
    """Topics that ZooKeeper has and no broker knows."""
    ahead_max_ms: dict[str, int] = field(default_factory=dict)
    """Topic -> ``message.timestamp.after.max.ms``."""
    ahead: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """The first message of each partition that is further ahead of the clock than that: its offset and time in ms."""
    groups: list[GroupOffset] = field(default_factory=list)
    group_looks: list[GroupLook] = field(default_factory=list)
    """Groups with members."""
    max_bytes: dict[str, int] = field(default_factory=dict)
    """Topic -> ``max.message.bytes``."""
    sizes: dict[int, dict[str, str | None]] = field(default_factory=dict)
    """Broker -> its `SIZE_SETTINGS`."""


Locate = Callable[["Cluster"], Awaitable[Mapping[int, str]]]
"""Where brokers were last registered."""


async def gather(
    bootstrap: str | None,
    zookeeper: str | None,
    subjects: Collection[str],
    *,
    timeout_s: float = 10.0,
    locate: Locate | None = None,
) -> Facts:
    """The facts that these subjects (topics, groups, brokers, zookeeper) need. UsageError for a bad address.

    ``locate`` is asked only where brokers are dead, to tell those that hang.
    """
    from klog.coordination.zookeeper import ZooKeeper as Session

    facts = Facts(now_ms=time.time_ns() // 1_000_000)
    cluster: Cluster | None = None
    session: ZooKeeper | None = None
    try:
        if bootstrap is not None:
            cluster = await _connect(facts, bootstrap, "the caller", timeout_s)
            if cluster is not None:
                try:
                    zookeeper = zookeeper or await _zookeeper_of(cluster, facts)
                except KlogError as error:
                    facts.no_brokers = _or_raise(error)
        if zookeeper is not None:
            session = Session(zookeeper, operation_timeout_s=timeout_s)
            try:
                await asyncio.to_thread(session.start, ZOOKEEPER_TIMEOUT_S, patient=False)
                await asyncio.to_thread(_read_registries, facts, session)
            except KlogError as error:
                facts.no_zookeeper = _or_raise(error)
            if cluster is None and facts.registered is not None:
                cluster = await _connect_registered(facts, session, timeout_s)
            if "zookeeper" in subjects:
                facts.servers = await _servers(zookeeper)
        if cluster is not None:
            await _ask_cluster(facts, cluster, subjects)
            if "brokers" in subjects:
                await _knock(facts, cluster, locate)
            if "groups" in subjects and session is not None and facts.no_zookeeper is None:
                from klog.admin.check_groups import group_looks, group_offsets

                facts.groups = await group_offsets(cluster, session, facts.now_ms)
                if facts.metadata is not None:
                    facts.group_looks = await group_looks(cluster, session, facts.metadata.topics, facts.silent)
    finally:
        if cluster is not None:
            await cluster.close()
        if session is not None:
            await asyncio.to_thread(session.stop)
    return facts


def _or_raise(error: KlogError) -> str:
    if error.exit_code != 1:
        raise error
    return error.message


async def _connect(facts: Facts, bootstrap: str, source: str, timeout_s: float) -> Cluster | None:
    """The cluster, its metadata read; None, with the reason in the facts, where none of these servers answers.

    While they are silent it is looked at the same time which of them hang, and not after each has had its time.
    """
    from klog.client.bootstrap import parse_bootstrap
    from klog.client.cluster import Cluster

    async def reached() -> Cluster:
        cluster = await Cluster.connect(bootstrap, source=source, timeout_s=timeout_s)
        try:
            facts.metadata = await cluster.metadata()
        except BaseException:
            await cluster.close()
            raise
        return cluster

    connecting = asyncio.ensure_future(reached())
    knocking: asyncio.Future[list[str]] | None = None
    try:
        done, _ = await asyncio.wait({connecting}, timeout=SOON_S)
        if not done:
            knocking = asyncio.ensure_future(_hung(parse_bootstrap(bootstrap, source)))
        return await connecting
    except KlogError as error:
        facts.no_brokers = _or_raise(error)
        facts.hung_addresses = await knocking if knocking is not None else []
        return None
    finally:
        connecting.cancel()
        if knocking is not None:
            knocking.cancel()


async def _connect_registered(facts: Facts, session: ZooKeeper, timeout_s: float) -> Cluster | None:
    from klog.coordination import brokers

    live = await asyncio.to_thread(brokers.live, session)
    if not live:
        none = "no broker is registered in ZooKeeper"
        facts.no_brokers = f"{facts.no_brokers}; {none}" if facts.hung_addresses else none
        return None
    addresses = ",".join(f"{entry.broker.host}:{entry.broker.port}" for entry in live)
    return await _connect(facts, addresses, "ZooKeeper", timeout_s)


async def _zookeeper_of(cluster: Cluster, facts: Facts) -> str | None:
    from klog.admin.brokers import list_brokers

    return next((row.zookeeper for row in await list_brokers(cluster) if row.zookeeper), None)


# --- ZooKeeper --------------------------------------------------------------------------------------------------------


def _read_registries(facts: Facts, session: ZooKeeper) -> None:
    """In a thread."""
    from klog.coordination import brokers, controller_election, partition_states, paths, topics, trash

    facts.registered = {entry.broker.broker_id for entry in brokers.live(session)}
    facts.has_controller = controller_election.current(session) is not None
    facts.topics = {topic.name: topic for topic in topics.read_all(session, facts.damage)}
    topics.configs(session, list(facts.topics), facts.damage)
    facts.damage |= topics.config_changes(session, -1).damage
    unreadable: dict[TopicPartition, str] = {}
    partition_states.read_many(
        session, [name for topic in facts.topics.values() for name in topic.topic_partitions], unreadable
    )
    facts.damage |= {paths.partition_state(*name): what for name, what in unreadable.items()}
    marked = topics.being_deleted(session)
    nodes = session.get_many([paths.delete_topic(name) for name in marked])
    waiting = [one for one in trash.read_all(session, facts.damage) if one.state in (trash.WHOLE, trash.DELETING)]
    facts.trashed = {one.name: one.topic_id for one in waiting}
    facts.deletions = {name: node.stat.created_ms for name, node in zip(marked, nodes, strict=True) if node is not None}


async def _servers(zookeeper: str) -> list[ServerFact]:
    from klog.coordination.connect_string import ConnectString

    servers = ConnectString.parse(zookeeper).servers
    return list(await asyncio.gather(*(asyncio.to_thread(_server, host, port) for host, port in servers)))


def _server(host: str, port: int) -> ServerFact:
    from klog.coordination.connect_string import four_letter_word, mode_in

    address = f"{host}:{port}"
    try:
        answer = four_letter_word(host, port, b"srvr", ZOOKEEPER_TIMEOUT_S)
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
        kept = four_letter_word(host, port, b"mntr", ZOOKEEPER_TIMEOUT_S)
        runs_in = four_letter_word(host, port, b"envi", ZOOKEEPER_TIMEOUT_S)
    except OSError:
        kept = runs_in = ""  # another's, perhaps: what it does not say is not judged
    heap_mb = _number(r"^os\.memory\.max=(\d{1,15})MB$", runs_in)
    return ServerFact(
        address,
        mode,
        None,
        _number(r"^zk_znode_count\t(\d{1,15})$", kept),
        _number(r"^zk_approximate_data_size\t(\d{1,15})$", kept),
        None if heap_mb is None else heap_mb << 20,
    )


def _number(pattern: str, answer: str) -> int | None:
    found = re.search(pattern, answer, re.MULTILINE)
    return None if found is None else int(found[1])


# --- Brokers ----------------------------------------------------------------------------------------------------------


async def _ask_cluster(facts: Facts, cluster: Cluster, subjects: Collection[str]) -> None:
    metadata = facts.metadata
    assert metadata is not None
    if "brokers" in subjects:
        await asyncio.gather(*(_ask_broker(facts, cluster, broker) for broker in metadata.brokers))
    if "topics" in subjects:
        from klog.admin.settings import describe_settings

        try:
            told = await describe_settings(cluster, list(metadata.topics), names=[MIN_ISR, AFTER_MAX_MS, MAX_BYTES])
            for topic, settings in told.items():
                values = {one.name: one.value for one in settings}
                facts.min_isr[topic] = int(values.get(MIN_ISR) or 1)
                facts.max_bytes[topic] = int(values.get(MAX_BYTES) or 0)
                facts.ahead_max_ms[topic] = int(values.get(AFTER_MAX_MS) or NO_BOUND_MS)
            await _look_ahead(facts, cluster, metadata)
            if cluster.is_klog:
                from klog.admin.quarantine import list_lost

                facts.lost = await list_lost(cluster)
            await _watch_reassignments(facts, cluster, metadata)
            await _watch_new_topics(facts, cluster, metadata)
        except KlogError as error:
            facts.no_brokers = _or_raise(error)


async def _look_ahead(facts: Facts, cluster: Cluster, metadata: Metadata) -> None:
    """Find messages from ahead of the clock. Brokers know each segment's largest time, and read nothing without any."""
    from klog.client import leader_requests

    shares: dict[int, dict[TopicPartition, int]] = {}
    for topic in metadata.topics.values():
        ahead_max_ms = facts.ahead_max_ms.get(topic.name, NO_BOUND_MS)
        for number, one in topic.partitions.items():
            leader = one.leader
            if ahead_max_ms < NO_BOUND_MS and leader in metadata.brokers and leader not in facts.silent:
                assert leader is not None
                later_ms = facts.now_ms + ahead_max_ms + 1
                shares.setdefault(leader, {})[TopicPartition(topic.name, number)] = later_ms

    async def ask(broker: int, share: dict[TopicPartition, int]) -> None:
        try:
            answers = await leader_requests.list_offsets(await cluster.channel(broker), share)
        except KlogError:
            return
        for name, found in answers.items():
            if not isinstance(found, KlogError) and found.offset is not None and found.timestamp_ms is not None:
                facts.ahead[name] = found.offset, found.timestamp_ms

    await asyncio.gather(*(ask(broker, share) for broker, share in shares.items()))


async def _ask_broker(facts: Facts, cluster: Cluster, broker: int) -> None:
    from klog.admin.log_dirs import free_bytes
    from klog.admin.settings import describe_broker_settings
    from klog.protocol.apis import ApiKey

    try:
        told = await describe_broker_settings(cluster, broker, names=[*SHARED_SETTINGS, *SIZE_SETTINGS])
        facts.settings[broker] = {one.name: one.value for one in told if one.name in SHARED_SETTINGS}
        facts.sizes[broker] = {one.name: one.value for one in told if one.name in SIZE_SETTINGS}
        answer = await cluster.to_broker(broker, ApiKey.DESCRIBE_LOG_DIRS, 4, 1, topics=[])
    except KlogError as error:
        facts.silent[broker] = _or_raise(error)
        assert facts.metadata is not None
        node = facts.metadata.brokers[broker]
        if await _hung([(node.host, node.port)]):
            facts.hung[broker] = node.address
        return
    for one in answer.results:
        failed = one.error_code.name if int(one.error_code) else None
        facts.log_dirs.append(LogDirFact(broker, str(one.log_dir), failed, free_bytes(one)))


async def _knock(facts: Facts, cluster: Cluster, locate: Locate | None) -> None:
    """Find processes of dead brokers that still listen: a broker that hangs loses its entry in ZooKeeper."""
    from klog.client.bootstrap import parse_bootstrap

    metadata = facts.metadata
    assert metadata is not None
    partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
    dead = {broker for one in partitions for broker in one.replicas if broker not in metadata.brokers}
    if not dead:
        return
    if locate is not None:
        found = await locate(cluster)
        facts.located = {broker: found[broker] for broker in sorted(dead & found.keys())}
    live = {(one.host, one.port) for one in metadata.brokers.values()}
    servers = parse_bootstrap(cluster.bootstrap, cluster.source)
    for address in facts.located.values():  # from events, which any client can write
        try:
            servers += [one for one in parse_bootstrap(address, "klog.events") if one not in servers]
        except UsageError:
            continue
    facts.hung_addresses = await _hung([one for one in servers if one not in live][:KNOCKS_MAX])


async def _hung(servers: Sequence[tuple[str, int]]) -> list[str]:
    """Those of these addresses that take a connection and do not answer."""
    from klog.net.channel import Channel, NoAnswer

    async def hangs(host: str, port: int) -> bool:
        try:
            channel = await Channel.connect(host, port, connect_timeout_s=KNOCK_S, timeout_s=KNOCK_S)
        except KlogError as error:
            return isinstance(error, NoAnswer)
        await channel.close()
        return False

    answers = await asyncio.gather(*(hangs(*one) for one in servers))
    return [f"{host}:{port}" for (host, port), hung in zip(servers, answers, strict=True) if hung]


async def _watch_reassignments(facts: Facts, cluster: Cluster, metadata: Metadata) -> None:
    """Find new replicas that get nothing although their broker lives: looked at twice."""
    filling: dict[TopicPartition, list[int]] = {}
    for topic in facts.topics.values():
        known = metadata.topics.get(topic.name)
        for number, adding in topic.adding.items():
            in_sync = known.partitions[number].isr if known is not None and number in known.partitions else ()
            waiting = [one for one in adding if one in metadata.brokers and one not in in_sync]
            if waiting:
                filling[TopicPartition(topic.name, number)] = waiting
    if not filling or not cluster.is_klog:
        return
    before = await _ends(cluster, filling)
    await asyncio.sleep(MOVING_S)
    after = await _ends(cluster, filling)
    for name, brokers in filling.items():
        still = [one for one in brokers if before.get((one, name)) == after.get((one, name))]
        if still:
            facts.standing_still[name] = still


async def _watch_new_topics(facts: Facts, cluster: Cluster, metadata: Metadata) -> None:
    """Find topics that are registered and that brokers do not know: looked at twice, since one may be new."""
    missing = facts.topics.keys() - metadata.topics.keys() - facts.deletions.keys()
    if missing:
        await asyncio.sleep(MOVING_S)
        facts.not_served = sorted(missing - (await cluster.metadata(fresh=True)).topics.keys())


async def _ends(
    cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[int]]
) -> dict[tuple[int, TopicPartition], int]:
    """Where the logs of these replicas end; those that cannot be asked are left out."""
    from klog.protocol.apis import ApiKey

    shares: dict[int, list[TopicPartition]] = {}
    for name, brokers in wanted.items():
        for broker in brokers:
            shares.setdefault(broker, []).append(name)
    found: dict[tuple[int, TopicPartition], int] = {}

    async def ask(broker: int, share: Sequence[TopicPartition]) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for name in share:
            asked = {"partition_index": name.partition, "probe_address": -1, "ranges": []}
            topics.setdefault(name.topic, []).append(asked)
        try:
            answer = await cluster.to_broker(
                broker,
                ApiKey.CHECKSUM_RANGES,
                0,
                topics=[{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
            )
        except KlogError:
            return
        for topic in answer.topics:
            for one in topic.partitions:
                if not int(one.error_code):
                    found[broker, TopicPartition(str(topic.name), int(one.partition_index))] = int(one.end_address)

    await asyncio.gather(*(ask(broker, share) for broker, share in shares.items()))
    return found
