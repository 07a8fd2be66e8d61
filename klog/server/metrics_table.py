"""Every metric that a broker exposes to Prometheus and `klog metrics`: its name, help text, and source of its value.

Names are Kafka's, as the JMX exporter's own rules for Kafka write them (``kafka.server:type=ReplicaManager,
name=LeaderCount`` is ``kafka_server_replicamanager_leadercount``, a ``...PerSec`` meter is a counter that ends in
``_total``), so that dashboards and alerts made for Kafka find them. What Kafka has no name for begins with ``klog_``.

Everything is read in the scraping thread, from objects that belong to the event loop: see `klog.metrics` for the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from klog.coordination.group_slots import SLOTS
from klog.coordination.session import SessionState
from klog.groups.phases import Phase
from klog.metrics import Metric, RequestMeter, Sample, Throttled, counter, gauge, summary, times_of
from klog.protocol.apis import api_name
from klog.server.group_lag import GROUPS_MAX, LAGS_MAX, GroupLag, GroupLags

if TYPE_CHECKING:
    import psutil

    from klog.net.server import Server
    from klog.replication.led_partition import LedPartition
    from klog.server.controller.controller import Controller
    from klog.server.events import Events
    from klog.server.groups.coordinator import Coordinator
    from klog.server.image import ClusterImage, PartitionImage
    from klog.server.listener_security import ListenerSecurity
    from klog.server.purgatory import Purgatory
    from klog.server.replicas.replicas import Replicas
    from klog.server.runtime import Runtime
    from klog.storage.flusher import Flusher
    from klog.storage.log import Log
    from klog.storage.log_dir import LogDir, LogDirs


class Measured:
    """The parts of a broker that the table reads. The broker is one."""

    runtime: Runtime
    image: ClusterImage
    log_dirs: LogDirs
    replicas: Replicas
    controller: Controller
    groups: Coordinator
    group_lags: GroupLags
    events: Events
    flusher: Flusher
    purgatory: Purgatory
    server: Server
    listener_security: ListenerSecurity


Read = Callable[[Measured], Iterable[Sample]]
Number = Callable[[Measured], int]

# --- What is read -----------------------------------------------------------------------------------------------------


def _throttled(value: Callable[[Throttled], float]) -> Read:
    return lambda measured: [
        ((quota,), value(numbers)) for quota, numbers in measured.runtime.measures.throttled.items()
    ]


def _led(measured: Measured) -> list[LedPartition]:
    return list(measured.replicas.partitions.values())


def under_replicated(measured: Measured) -> int:
    """Partitions led here with a replica that is not in sync."""
    return sum(len(one.isr) < len(one.replicas) for one in _led(measured))


def _reassigning(measured: Measured) -> int:
    """Partitions led here that are being reassigned, by the controller's last update."""
    topics = measured.image.topics
    count = 0
    for name in list(measured.replicas.partitions):
        topic = topics.get(name.topic)
        found = topic.partitions.get(name.partition) if topic is not None else None
        count += found is not None and bool(found.adding or found.removing)
    return count


def _all(measured: Measured) -> list[PartitionImage]:
    return [found for topic in list(measured.image.topics.values()) for found in topic.partitions.values()]


def _requests(measured: Measured) -> Iterator[tuple[str, RequestMeter]]:
    """The requests that have been received at least once."""
    for key, meter in list(measured.runtime.measures.requests.items()):
        if meter.count:
            yield api_name(key), meter


def _memory_free(measured: Measured) -> float | None:
    free = measured.server.shared.memory_pool.free_bytes
    return None if math.isinf(free) else free


def _logs(number: Callable[[Log], int]) -> Read:
    def read(measured: Measured) -> Iterable[Sample]:
        return [
            ((log.topic_partition.topic, str(log.topic_partition.partition)), number(log))
            for log in measured.log_dirs.logs()
        ]

    return read


def _dirs(number: Callable[[LogDir], int]) -> Read:
    return lambda measured: [((where.path,), number(where)) for where in measured.log_dirs.dirs]


def _told(kind: str) -> Number:
    return lambda measured: measured.events.told[kind]


def max_lag(measured: Measured) -> int:
    """Bytes by which the slowest replica here is behind."""
    followers = list(measured.replicas.followed.values())
    return max((max(one.leader_high.address - one.log.end.address, 0) for one in followers), default=0)


def _replica_lags(measured: Measured) -> Iterable[Sample]:
    for led in _led(measured):
        topic, partition = led.topic_partition
        end = led.log.end.address
        for replica in led.replicas:
            position = led.position(replica)
            if position is not None:
                yield (topic, str(partition), str(replica)), max(0, end - position.end_address)


def _groups(phase: Phase) -> Number:
    return lambda measured: sum(group.phase is phase for group in measured.groups.cache.groups)


def _lags(number: Callable[[GroupLag], int | None]) -> Read:
    return lambda measured: [
        ((lag.group, lag.partition.topic, str(lag.partition.partition)), value)
        for lag in measured.group_lags.read()
        if (value := number(lag)) is not None
    ]


def _session(measured: Measured) -> Iterable[Sample]:
    now = measured.runtime.zookeeper.state
    return [((state.name,), int(state is now)) for state in SessionState]


# --- The table --------------------------------------------------------------------------------------------------------

_PARTITION = ("topic", "partition")
_GROUP_PARTITION = ("group", *_PARTITION)


def _traffic(name: str, field: str, doc: str) -> Metric[Measured]:
    """Kafka's two MBeans of one name: of all topics, without a label, and of each topic that was used."""

    def read(measured: Measured) -> Iterable[Sample]:
        traffic = measured.runtime.measures.traffic
        yield (), getattr(traffic.total(), field)
        for topic, numbers in list(traffic.topics.items()):
            yield (topic,), getattr(numbers, field)

    return counter(
        f"kafka_server_brokertopicmetrics_{name}_total", doc + " Without a label: of all topics.", read, "topic"
    )


def _request_times(name: str, field: str, doc: str) -> Metric[Measured]:
    def read(measured: Measured) -> Iterable[Sample]:
        return [((request,), times_of([getattr(meter, field)])) for request, meter in _requests(measured)]

    return summary(f"kafka_network_requestmetrics_{name}timems", doc, read, "request")


def _of_cluster(name: str, doc: str, count: Number) -> Metric[Measured]:
    """Only the controller reports facts of the cluster; other brokers report 0, so that a sum over brokers is right."""
    return gauge(
        f"kafka_controller_kafkacontroller_{name}count",
        doc,
        lambda measured: count(measured) if measured.controller.active else 0,
    )


def _table() -> tuple[Metric[Measured], ...]:
    return (
        # --- topics
        _traffic("messagesin", "messages_in", "Messages appended by producers."),
        _traffic("bytesin", "bytes_in", "Bytes of batches appended by producers."),
        _traffic("bytesout", "bytes_out", "Bytes of batches sent to consumers."),
        _traffic("totalproducerequests", "produces", "Produce requests, counted for each partition in them."),
        _traffic(
            "failedproducerequests",
            "failed_produces",
            "Produce requests that were refused, counted for each partition in them.",
        ),
        _traffic("totalfetchrequests", "fetches", "Fetch requests of consumers, counted for each partition in them."),
        _traffic(
            "failedfetchrequests",
            "failed_fetches",
            "Fetch requests that were refused, counted for each partition in them.",
        ),
        counter(
            "kafka_server_brokertopicmetrics_replicationbytesin_total",
            "Bytes of batches that this broker received as a follower.",
            lambda measured: measured.runtime.measures.replication_bytes_in,
        ),
        counter(
            "kafka_server_brokertopicmetrics_replicationbytesout_total",
            "Bytes of batches sent to followers.",
            lambda measured: measured.runtime.measures.replication_bytes_out,
        ),
        # --- requests
        counter(
            "klog_requests_denied_total",
            "Requests, or parts of them, that were denied for lack of a permission.",
            lambda measured: measured.runtime.measures.denied,
        ),
        counter(
            "klog_throttled_answers_total",
            "Answers that told a client to wait, and connections closed, beyond a quota; by the kind of quota.",
            _throttled(attrgetter("answers")),
            "quota",
        ),
        counter(
            "klog_throttled_seconds_total",
            "Throttle time of all those together.",
            _throttled(attrgetter("seconds")),
            "quota",
        ),
        gauge(
            "klog_quota_meters",
            "Users, client ids and addresses with a quota that this broker has seen lately.",
            _throttled(lambda one: len(one.meters)),
            "quota",
        ),
        counter(
            "klog_quota_meters_dropped_total",
            "Users, client ids and addresses forgotten before their time, since too many came: they can take more.",
            _throttled(lambda one: one.meters.cut_short),
            "quota",
        ),
        counter(
            "kafka_network_requestmetrics_requests_total",
            "Requests by kind.",
            lambda measured: [((name,), meter.count) for name, meter in _requests(measured)],
            "request",
        ),
        _request_times(
            "total",
            "total",
            "Milliseconds from the complete request to its complete answer; one in 64 of frequent requests is timed.",
        ),
        _request_times("local", "local", "Milliseconds of a request in its handler."),
        _request_times(
            "remote", "remote", "Milliseconds that a request waited: for a flush, for replicas, for bytes to read."
        ),
        _request_times(
            "requestqueue",
            "queued",
            "Milliseconds from the arrival of a request's last bytes until its handler begins.",
        ),
        _request_times(
            "responsesend",
            "sent",
            "Milliseconds from the filled answer until the kernel has all of it: also behind earlier answers, and for "
            "a client that is slow to take them.",
        ),
        gauge(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "Requests that wait: Produce with acks=all to be committed, Fetch for more bytes.",
            lambda measured: [(("Produce",), measured.purgatory.produces), (("Fetch",), measured.purgatory.fetches)],
            "delayedOperation",
        ),
        gauge(
            "kafka_server_socketservermetrics_connection_count",
            "Connections of clients and of other brokers.",
            lambda measured: len(measured.server.connections),
        ),
        gauge(
            "kafka_network_socketserver_expiredconnectionskilledcount",
            "Connections closed after connections.max.idle.ms.",
            lambda measured: measured.server.idle_closed,
        ),
        gauge(
            "kafka_network_socketserver_memorypoolused",
            "Bytes held of requests that have come in part (queued.max.request.bytes).",
            lambda measured: measured.server.shared.memory_pool.bytes,
        ),
        gauge(
            "kafka_network_socketserver_memorypoolavailable",
            "Bytes of queued.max.request.bytes that are free; none without a limit.",
            _memory_free,
        ),
        gauge(
            "klog_listener_connections",
            "Connections of each listener.",
            lambda measured: [((name,), count) for name, count in measured.server.admission.of_listener.copy().items()],
            "listener",
        ),
        gauge(
            "klog_listener_full",
            "1 for a listener that has as many connections as it may: new ones wait.",
            lambda measured: [((name,), 1) for name in measured.server.full_listeners],
            "listener",
        ),
        counter(
            "klog_listener_slowed_seconds_total",
            "How long a listener took no connection since more had come than max.connection.creation.rate.",
            lambda measured: [((name,), seconds) for name, seconds in measured.server.arrivals.slowed_s.copy().items()],
            "listener",
        ),
        counter(
            "klog_connections_refused_total",
            "Connections closed because there were too many: of their address, or in all, when another broker came.",
            lambda measured: [
                (("max.connections.per.ip",), measured.server.admission.refused),
                (("max.connections",), measured.server.admission.gave_way),
            ],
            "limit",
        ),
        counter(
            "klog_event_loop_cpu_seconds_total",
            "Processor seconds of the event loop: its rate is the share of one core in use, and 1 less that rate what "
            "Kafka shows as NetworkProcessorAvgIdlePercent and RequestHandlerAvgIdlePercent.",
            lambda measured: measured.runtime.measures.loop.cpu_seconds(),
        ),
        # --- replicas
        gauge(
            "kafka_server_replicamanager_leadercount",
            "Partitions that this broker leads.",
            lambda measured: len(measured.replicas.partitions),
        ),
        gauge(
            "kafka_server_replicamanager_partitioncount",
            "Replicas on this broker, led or followed.",
            lambda measured: sum(len(where.logs) for where in measured.log_dirs.dirs),
        ),
        gauge(
            "kafka_server_replicamanager_underreplicatedpartitions",
            "Partitions led here with a replica that is not in sync.",
            under_replicated,
        ),
        gauge(
            "kafka_server_replicamanager_underminisrpartitioncount",
            "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused.",
            lambda measured: sum(len(one.isr) < one.min_isr for one in _led(measured)),
        ),
        gauge(
            "kafka_server_replicamanager_atminisrpartitioncount",
            "Partitions led here that one more lost replica would stop.",
            lambda measured: sum(len(one.isr) == one.min_isr < len(one.replicas) for one in _led(measured)),
        ),
        gauge(
            "kafka_server_replicamanager_reassigningpartitions",
            "Partitions led here that are being reassigned.",
            _reassigning,
        ),
        gauge(
            "kafka_server_replicamanager_offlinereplicacount",
            "Replicas that this broker cannot serve: their disk is lost.",
            lambda measured: sum(
                measured.runtime.broker_id in found.replicas and measured.runtime.broker_id in found.offline
                for found in _all(measured)
            ),
        ),
        gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "Bytes (Kafka: messages) by which the slowest replica here is behind its leader's high watermark.",
            lambda measured: [(("Replica",), max_lag(measured))],
            "clientId",
        ),
        gauge(
            "klog_replica_lag_bytes",
            "Bytes by which a follower is behind the log of its leader, which reports it; none for a follower that has "
            "not fetched since this broker leads.",
            _replica_lags,
            "topic",
            "partition",
            "replica",
        ),
        counter(
            "kafka_server_replicamanager_isrshrinks_total",
            "Times a leader here has removed a follower from the in-sync set.",
            _told("isr-shrunk"),
        ),
        counter(
            "kafka_server_replicamanager_isrexpands_total",
            "Times a leader here has added a follower to the in-sync set.",
            _told("isr-expanded"),
        ),
        # --- the controller
        _of_cluster(
            "activecontroller",
            "1 on the controller, 0 on every other broker: the sum over a cluster is 1.",
            lambda _: 1,
        ),
        _of_cluster(
            "offlinepartitions",
            "Partitions without a leader; 0 on brokers that are not the controller, as in all metrics of this prefix.",
            lambda measured: sum(found.leader < 0 for found in _all(measured)),
        ),
        _of_cluster(
            "preferredreplicaimbalance",
            "Partitions that a replica other than the first one leads.",
            lambda measured: sum(found.leader != found.replicas[0] for found in _all(measured) if found.replicas),
        ),
        _of_cluster("globaltopic", "Topics of the cluster.", lambda measured: len(measured.image.topics)),
        _of_cluster("globalpartition", "Partitions of the cluster.", lambda measured: len(_all(measured))),
        _of_cluster("activebroker", "Brokers alive.", lambda measured: len(measured.image.brokers)),
        summary(
            "kafka_controller_controllerstats_leaderelectionrateandtimems",
            "Milliseconds from the need of new leaders until ZooKeeper has them, for all that are decided together.",
            lambda measured: times_of([measured.runtime.measures.elections]),
        ),
        counter(
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "Elections of a replica that was not in sync.",
            _told("unclean-election"),
        ),
        # --- groups
        gauge(
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "Groups that this broker coordinates and that have members, or were asked for in the last ten minutes; the "
            "others are in ZooKeeper alone.",
            lambda measured: len(measured.groups.cache.groups),
        ),
        *(
            gauge(
                f"kafka_coordinator_group_groupmetadatamanager_numgroups{phase.value.lower()}",
                f"Of those, the ones in the state {phase.value}.",
                _groups(phase),
            )
            for phase in (Phase.EMPTY, Phase.PREPARING, Phase.COMPLETING, Phase.STABLE)
        ),
        gauge(
            "klog_group_members",
            "Members of the groups that this broker coordinates.",
            lambda measured: sum(len(group.members) for group in measured.groups.cache.groups),
        ),
        gauge(
            "klog_group_slots",
            f"Of the {SLOTS} slots that groups belong to, those this broker coordinates: the sum over a cluster is "
            f"{SLOTS}.",
            lambda measured: len(measured.groups.cache.slots),
        ),
        counter(
            "kafka_server_groupcoordinatormetrics_group_completed_rebalance_total",
            "Rebalances that the groups coordinated here have completed.",
            _told("rebalance"),
        ),
        counter(
            "kafka_server_groupcoordinatormetrics_offset_commit_total",
            "Offsets committed through this broker, counted per partition.",
            lambda measured: measured.runtime.measures.offsets_committed,
        ),
        summary(
            "klog_group_committimems",
            "Milliseconds of a successful commit, until ZooKeeper has it; `_count` is their number.",
            lambda measured: times_of([measured.runtime.measures.group_commits]),
        ),
        gauge(
            "klog_group_lag_messages",
            "Messages behind the committed offset of a group, counted exactly by the partition's leader. `end - "
            "committed` does not count them: offsets are byte addresses.",
            _lags(attrgetter("messages")),
            *_GROUP_PARTITION,
        ),
        gauge(
            "klog_group_lag_bytes",
            "Bytes of the log behind the committed offset of a group.",
            _lags(attrgetter("bytes")),
            *_GROUP_PARTITION,
        ),
        gauge(
            "klog_group_lag_ms",
            "For how long the first message behind the committed offset of a group has been there, by its timestamp; 0 "
            "where there is none.",
            _lags(attrgetter("ms")),
            *_GROUP_PARTITION,
        ),
        gauge(
            "klog_group_lag_cut",
            f"1 where this broker leaves lags out: beyond {GROUPS_MAX:,} groups, or {LAGS_MAX:,} partitions of groups "
            "that it leads.",
            lambda measured: int(measured.group_lags.is_cut),
        ),
        # --- logs
        summary(
            "kafka_log_logflushstats_logflushrateandtimems",
            "Milliseconds of a flush; one flush serves every append before it.",
            lambda measured: times_of(measured.flusher.times()),
        ),
        gauge("kafka_log_log_size", "Bytes of a replica's files.", _logs(lambda log: log.size_bytes), *_PARTITION),
        gauge(
            "kafka_log_log_logstartoffset",
            "The first offset of a replica.",
            _logs(lambda log: log.start_offset),
            *_PARTITION,
        ),
        gauge(
            "kafka_log_log_logendoffset",
            "The offset after a replica's last message.",
            _logs(lambda log: log.end.offset),
            *_PARTITION,
        ),
        gauge(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log dirs that have failed.",
            lambda measured: (
                len(measured.log_dirs.offline) + sum(where.failure is not None for where in measured.log_dirs.dirs)
            ),
        ),
        gauge(
            "klog_log_dir_full",
            "1 while a log dir refuses appends because it is full.",
            _dirs(lambda where: int(where.is_full)),
            "dir",
        ),
        # --- who is there
        gauge(
            "klog_certificate_days_left",
            "Days until the first of a listener's own certificates expires; negative once it has.",
            lambda measured: [((name,), days) for name, days in measured.listener_security.days_left().items()],
            "listener",
        ),
        counter(
            "klog_connections_turned_away_total",
            "Connections closed for another protocol than the listener's, a failed handshake or login, or too many.",
            lambda measured: measured.server.shared.rejected_peers.count,
        ),
        # --- the broker
        gauge(
            "kafka_server_kafkaserver_brokerstate",
            "1 starting, 2 recovering, 3 running, 4 running as controller, 6 and 7 shutting down.",
            lambda measured: measured.runtime.state.number,
        ),
        gauge(
            "kafka_server_sessionexpirelistener_sessionstate",
            "1 for the state that the ZooKeeper session is in, 0 for the others.",
            _session,
            "state",
        ),
        counter(
            "kafka_server_sessionexpirelistener_zookeeperexpires_total",
            "Times the ZooKeeper session has expired, after which the broker registers again.",
            _told("session-expired"),
        ),
        counter(
            "klog_events_told_total",
            "Events that this broker has recorded, by kind.",
            lambda measured: [((kind,), count) for kind, count in list(measured.events.told.items())],
            "kind",
        ),
        counter(
            "klog_events_dropped_total",
            "Events for the topic klog.events that never reached it.",
            lambda measured: measured.events.dropped,
        ),
    )


METRICS: Final = _table()


def _process() -> psutil.Process:
    import psutil

    return psutil.Process()


def resident_bytes() -> int:
    """This process's resident memory. Any thread."""
    return int(_process().memory_info().rss)


OF_PROCESS: Final[tuple[Metric[Measured], ...]] = (
    gauge("process_resident_memory_bytes", "Resident memory in bytes.", lambda _: resident_bytes()),
    counter("process_cpu_seconds_total", "Processor seconds.", lambda _: sum(_process().cpu_times()[:2])),
    gauge("process_open_fds", "Open file descriptors.", lambda _: _process().num_fds()),
)
"""Prometheus' own library has these in a scrape; `klog metrics` shows them by its names."""
