"""A broker: one process, one event loop, some log dirs, one ZooKeeper session.

Start, in this order, each step resting on the one before:

    1. lock the log dirs; meanwhile the ZooKeeper session begins
    2. cluster id and broker id: a log dir of another cluster or another broker is refused
    3. open every log, recovering what lies past the recovery point
    4. listen, so that whoever sees the registration can connect (rule R6)
    5. register the broker id; take over one's own dead entry (rule R7)
    6. find the controller, or be elected; obey what it says of the partitions

Stop (SIGTERM, StopBroker): have others lead, refuse new connections, answer what waits, flush and checkpoint the logs,
end the session.

A lost session is said so; what is committed is read on. When it has expired nothing is appended until the broker has
registered again, as a new incarnation, which leads under new epochs only (rule R1).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from klog.config import BrokerConfig, LogConfig
from klog.coordination import brokers, cluster, topics
from klog.coordination import controller as election_registry
from klog.coordination.session import SessionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import (
    BadVersion,
    BrokerIdInUse,
    KlogError,
    LeaderNotAvailable,
    NoNode,
    NotLeader,
    StorageError,
    UnknownTopicOrPartition,
)
from klog.metrics import Measures
from klog.names import TopicPartition
from klog.replication.partition import Partition
from klog.secret import Secret
from klog.server import belonging, handlers
from klog.server.authority import Authority
from klog.server.auto_create import AutoCreation
from klog.server.batch_order import BatchOrder
from klog.server.collector import Collector
from klog.server.controller import Controller
from klog.server.deletions import Deletions
from klog.server.departed import Departed
from klog.server.descriptors import share_out
from klog.server.disk_watch import DiskWatch
from klog.server.dispatch import Dispatcher
from klog.server.entry import Entry
from klog.server.events import Events
from klog.server.executors import Executors, Purpose
from klog.server.forward import CLIENT_ID_PREFIX
from klog.server.groups.coordinator import Coordinator
from klog.server.image import ClusterImage, apply
from klog.server.knocks import Knocks
from klog.server.listening import Listening, server_of
from klog.server.log_care import LogCare
from klog.server.look_ups import LookUps
from klog.server.office import Office
from klog.server.producer_ids import ProducerIds
from klog.server.purgatory import Purgatory
from klog.server.reassignment_throttle import ReassignmentThrottle
from klog.server.registry import BrokerRegistry
from klog.server.registry_copies import RegistryCopies
from klog.server.replicas import Replicas
from klog.server.reports import Reports
from klog.server.state_log import StateLog
from klog.server.watchdog import Watchdog
from klog.signals import Asked
from klog.storage.filesystem import OsFileSystem
from klog.storage.flusher import Flusher
from klog.storage.log import Log, LogEnd
from klog.storage.log_dir import LogDirs

if TYPE_CHECKING:
    from klog.server.metrics_endpoint import MetricsEndpoint
    from klog.server.schema_endpoint import SchemaEndpoint

log = logging.getLogger(__name__)

assert handlers  # imported for what it registers

DRAIN_S = 5.0
"""How long a controlled shutdown waits for requests that are being handled."""
REGISTER_AGAIN_EVERY_S = 1.0
TOLD_WITHIN_S = 10.0
"""After that a broker that waits for the controller's word says so, and waits on."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class BrokerState(Enum):
    """0.8's names (SYSTEM: broker states)."""

    STARTING = "Starting"
    RUNNING = "RunningAsBroker"
    CONTROLLER = "RunningAsController"
    STOPPING = "BrokerShuttingDown"


class Broker:
    """See the module. Event loop only, but for what says otherwise."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.broker_id = config.integer("broker.id")
        self.zookeeper_connect = config.text("zookeeper.connect")
        self.fetch_bytes_max = config.integer("fetch.max.bytes")
        self.state = BrokerState.STARTING
        self.started_at_ms = time.time_ns() // 1_000_000
        self.image = ClusterImage()
        self.executors = Executors()
        self.look_ups = LookUps(self.executors)
        self.deletions = Deletions(self.executors)
        self.measures = Measures()
        self.doubts = 0
        """Metadata requests that wait for another leader in place of one that refuses connections."""
        self.client_id = f"{CLIENT_ID_PREFIX}{self.broker_id}"
        """What it calls itself where it is a client of other brokers."""
        self.registration: brokers.Registration | None = None
        self.fenced: KlogError | None = None
        """Why nothing may be appended now (the session has expired); None when it may."""
        self._stopping = asyncio.Event()
        self._stop_reason = ""
        self._failure: KlogError | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lost_session = False
        self._knows_cluster = asyncio.Event()
        self.has_image = asyncio.Event()
        """The controller has said once what there is in the cluster: `image` is not empty any more."""
        self._connected = asyncio.Event()
        """There is a connection with ZooKeeper."""
        self.producer_ids = ProducerIds(self)
        self._metrics: MetricsEndpoint | None = None
        self._schema_endpoint: SchemaEndpoint | None = None

    # --- start ----------------------------------------------------------------------------------------------------

    async def start(self) -> tuple[str, int]:
        """Serve. The (host, port) that clients are told; raises KlogError, having undone what it had done."""
        self.loop = asyncio.get_running_loop()
        self.purgatory = Purgatory(self.loop)
        self.batch_order = BatchOrder(self.loop.time)
        self.knocks = Knocks(self.broker_id, self.config.integer("zookeeper.session.timeout.ms") / 1000)
        self.departed = Departed(self.loop.time)
        self.zookeeper = ZooKeeper(
            self.zookeeper_connect,
            self.config.integer("zookeeper.session.timeout.ms"),
            lambda state: self.from_thread(self._session_changed, state),
        )
        self.registry = BrokerRegistry(self.zookeeper)
        self.entry = Entry(self)
        self.authority = Authority(self.zookeeper, self.executors, lambda: self.incarnation)
        connecting = asyncio.create_task(self.executors.run(Purpose.OTHER, self._connect))
        try:
            file_system = OsFileSystem()
            self._descriptors = share_out()
            self.log_dirs = await self.executors.run(
                Purpose.OTHER, LogDirs, file_system, self.config.log_dirs, open_files_max=self._descriptors.files
            )
        except BaseException:
            connecting.cancel()
            await asyncio.wait((connecting,))
            self.zookeeper.stop()
            self.executors.close()
            raise
        try:
            cluster_id, secret, overrides = await connecting
            if cluster_id is None:
                cluster_id = await self.executors.run(
                    Purpose.OTHER, belonging.found_cluster, self.zookeeper, self.log_dirs
                )
            self.image.cluster_id = cluster_id
            self.log_dirs.claim(cluster_id, self.broker_id)
            self.secret = await self.executors.run(Purpose.OTHER, self._know_secret, secret)
            self.flusher = Flusher(self._post_outcomes, self._flushed, file_system)
            await self.executors.run(
                Purpose.OTHER,
                self.log_dirs.load,
                lambda name: LogConfig.of(self.config, overrides.get(name.topic, {})),
            )
            self.log_dirs.start()
            self.state_log = StateLog(self.log_dirs.dirs[0].path)
            self.events = Events(self, self.state_log, to_topic=self.config.flag("klog.events.enable"))
            for path in self.log_dirs.offline.keys() - {one.path for one in self.log_dirs.dirs}:
                self.tell("log-dir-offline", dir=path, reason=self.log_dirs.offline[path].message)
            self.replicas = Replicas(self)
            self._reassignment_throttle = ReassignmentThrottle(self.broker_id, self.replicas.fetchers.throttle)
            self.office = Office(self)
            self.controller = Controller(self)
            self.groups = Coordinator(self)
            self.auto_creation = AutoCreation(self)
            self.reports = Reports(self)
            self.registry_copies = RegistryCopies(self)
            self._listen()
            if self.config.integer("metrics.port"):
                from klog.server.metrics_endpoint import MetricsEndpoint  # some milliseconds, for those who want it

                self._metrics = await MetricsEndpoint.serve(self)
            if self.config.integer("schema.registry.port"):
                from klog.server.schema_endpoint import SchemaEndpoint

                self._schema_endpoint = await SchemaEndpoint.serve(self)
            await self._enter()
        except BaseException as error:
            if isinstance(error, BrokerIdInUse):
                # It says to choose another id: the folders must not have become this one's by asking.
                await self.executors.run(Purpose.OTHER, self.log_dirs.disclaim)
            await self._abandon_start()
            raise
        self.care = LogCare(self)
        self.care.start()
        self._disk_watch = DiskWatch(self)
        self._disk_watch.start()
        self.registry_copies.start()
        self.events.start()
        self.producer_ids.stock_up()
        self._watchdog = Watchdog(self.zookeeper.session_timeout_ms / 1000)
        self._watchdog.start()
        self._collector = Collector()
        self._collector.start()
        _share_the_interpreter()
        log.info(
            "broker %d serves at %s:%d: %d partitions led, cluster %s, ZooKeeper %s",
            self.broker_id,
            *self.address,
            len(self.partitions),
            self.image.cluster_id,
            self.zookeeper_connect,
        )
        return self.address

    def _connect(self) -> tuple[str | None, Secret | None, dict[str, dict[str, str]]]:
        """In a thread: the session, the cluster's id (None: none is known), its secret, every topic's own settings."""
        self.zookeeper.start(self.config.integer("zookeeper.connection.timeout.ms") / 1000, create_chroot=True)
        damage: topics.Damage = {}  # the controller says what it is
        configs = topics.configs(self.zookeeper, topics.names(self.zookeeper), damage)
        overrides = {name: config.settings for name, config in configs.items()}
        return cluster.cluster_id(self.zookeeper), cluster.secret(self.zookeeper), overrides

    def _know_secret(self, found: Secret | None) -> Secret:
        """In a thread: what the cluster's brokers know one another by (rule R10), kept in each log dir.

        Where ZooKeeper has lost it, or the cluster is new, a log dir's, or a new one, is put there.
        """
        if found is None:
            found = cluster.ensure_secret(self.zookeeper, self.log_dirs.secret or Secret.random())
        self.log_dirs.keep_secret(found)
        return found

    def _listen(self) -> None:
        """Open the ports. Requests are answered from now on, with no partition led yet."""
        self.dispatcher = Dispatcher(self)
        self.server = server_of(self.config, self.dispatcher.on_frame, self._descriptors)
        self.listening = Listening.begin(self.config, self.server)

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) that clients are told."""
        return self.listening.address

    async def _enter(self) -> None:
        """Register, find the controller or be elected, and obey it: at the start, and after the session expired."""
        is_current = await self.executors.run(Purpose.ELECTIONS, self._register)
        self.fenced = None
        if not is_current:
            self.entry.look()
        self._knows_cluster.clear()
        await self.office.enter()
        while not await self._told_by_controller():
            log.warning("the controller, broker %d, has not said yet what this broker is to do", self.office.holder)
        self.state = BrokerState.CONTROLLER if self.controller.active else BrokerState.RUNNING

    async def _told_by_controller(self) -> bool:
        try:
            async with asyncio.timeout(TOLD_WITHIN_S):
                await self._knows_cluster.wait()
        except TimeoutError:
            return False
        return True

    def _register(self) -> bool:
        """In a thread: whether nobody has done so since."""
        host, port = self.address
        rack = self.config["broker.rack"]
        self.registration, is_current = self.entry.register(
            brokers.Broker(
                self.broker_id,
                host,
                port,
                log_dirs=tuple(str(one) for one in self.log_dirs.uuids),
                bind=self.listening.bind,
                rack=rack if isinstance(rack, str) else "",
                inter_broker=self.listening.inter_broker,
                timestamp_ms=self.started_at_ms,
            )
        )
        return is_current

    async def _stop_telling(self) -> None:
        if hasattr(self, "events"):
            await self.events.close()
            await self.executors.run(Purpose.OTHER, self.state_log.close)
        if self._metrics is not None:
            self._metrics.close()
        if self._schema_endpoint is not None:
            self._schema_endpoint.close()

    async def _abandon_start(self) -> None:
        await self._stop_telling()
        if hasattr(self, "groups"):
            self.groups.close()
        if hasattr(self, "server"):
            self.server.close()
        self.registry.close()
        if hasattr(self, "flusher"):
            self.flusher.stop()
        await self.executors.run(Purpose.OTHER, self.log_dirs.close)
        await self.executors.run(Purpose.OTHER, self.zookeeper.stop)
        self.executors.close()

    # --- what the handlers ask --------------------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int) -> Partition:
        """The partition, if this broker leads it; else the error that makes a client look elsewhere or give up."""
        found = self.partitions.get(TopicPartition(topic, partition))
        if found is not None:
            return found
        known = self.image.topics.get(topic)
        if known is None or partition not in known.partitions:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{partition}")
        if known.partitions[partition].leader < 0:
            raise LeaderNotAvailable(f"nobody leads {topic}-{partition}")
        raise NotLeader(f"broker {self.broker_id} does not lead {topic}-{partition}")

    @property
    def incarnation(self) -> int:
        """The czxid of the registration, -1 without one."""
        return self.registration.incarnation if self.registration is not None else -1

    def take_metadata(self, update: Any) -> None:
        """Know of the cluster what the controller says in an UpdateMetadata request."""
        brokers_before = self.image.brokers
        for name in apply(self.image, update):
            config = LogConfig.of(self.config, self.image.topics[name].overrides)
            for partition in self.image.topics[name].partitions:
                there = self.log_dirs.log(TopicPartition(name, partition))
                if there is not None:
                    there.reconfigure(config)
        if self.image.brokers != brokers_before:
            self.departed.note(brokers_before, self.image.brokers)
            self.replicas.brokers_changed()
        self._reassignment_throttle.take(update)
        if update.slots:
            self.groups.slots_changed()
        self.has_image.set()
        self.registry_copies.changed()

    def told_replicas(self) -> None:
        """The controller has said what every replica of this broker is to do."""
        self._knows_cluster.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def tell(self, kind: str, **facts: Any) -> None:
        """Note an event of the cluster's life."""
        self.events.tell(kind, **facts)

    def tell_facts(self, kind: str, facts: Mapping[str, Any]) -> None:
        """The same, for `from_thread`."""
        self.events.tell(kind, **facts)

    def stop_soon(self, reason: str) -> None:
        """Begin the controlled shutdown."""
        if not self._stopping.is_set():
            self._stop_reason = reason
            self._stopping.set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something to its end beside the requests; what goes wrong is logged."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the broker failed", exc_info=error)

    # --- partitions -------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> dict[TopicPartition, Partition]:
        """The partitions that this broker leads."""
        return self.replicas.partitions

    def _post_outcomes(self, deliver: Any, outcomes: Any) -> None:
        """In the flusher's thread. One flush commits requests of many connections: each is sent its answers at once."""
        self.loop.call_soon_threadsafe(self.server.shared.together, deliver, outcomes)

    def _flushed(self, flushed_log: Log, outcome: LogEnd | StorageError) -> None:
        self.replicas.flushed(flushed_log, outcome)

    # --- the session ------------------------------------------------------------------------------------------------

    def from_thread(self, function: Any, *arguments: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(functools.partial(function, *arguments))
        except RuntimeError:
            pass  # the loop is gone: the broker has stopped

    async def pause(self, seconds: float) -> None:
        """Before what ZooKeeper did not answer is asked again: so long, and until there is a connection."""
        await asyncio.sleep(seconds)
        await self._connected.wait()

    def _session_changed(self, state: SessionState) -> None:
        if self._stopping.is_set():
            return
        if state is SessionState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
        if hasattr(self, "groups"):
            self.groups.session_changed(state)
        if state is SessionState.SUSPENDED:
            log.warning(
                "the connection to ZooKeeper %s is lost; serving on until the session ends", self.zookeeper.address
            )
        elif state is SessionState.EXPIRED:
            log.error(
                "the ZooKeeper session has expired: nothing is appended until the broker has registered again; "
                "what is committed is read on"
            )
            self.fenced = NotLeader("the broker's ZooKeeper session has expired; it is registering again")
            self.tell("session-expired")
            self.office.leave()
            self.replicas.suspend(self.fenced)
            self._lost_session = True
        elif self._lost_session:
            self._lost_session = False
            self.spawn(self._enter_again())
        elif self.registration is not None:
            log.info("connected to ZooKeeper again, the session is the same")

    def displaced(self, failure: KlogError, fenced: KlogError) -> None:
        """Another process has this broker's entry (rule R7): append nothing more, and stop."""
        self._failure, self.fenced = failure, fenced
        self.office.leave()
        self.replicas.suspend(fenced)
        self.stop_soon("its id is another's now")

    async def _enter_again(self) -> None:
        """Register under the new session, and lead under new epochs."""
        told = ""
        while not self._stopping.is_set() and not self._lost_session:
            try:
                await self.executors.run(
                    Purpose.ELECTIONS, belonging.check_cluster, self.zookeeper, self.image.cluster_id
                )
                await self._enter()
            except BrokerIdInUse as error:  # rule R7: whoever replaced our entry is the broker now
                log.critical("another process has this broker's id: stopping (%s)", error.message)
                self._failure = error.bare()
                self.stop_soon("its id is another's now")
            except KlogError as error:
                reason = f"{error.message} ({error.hint})" if error.hint else error.message
                if reason != told:
                    log.error("registering again failed, and is tried every second: %s", reason)
                    told = reason
                await asyncio.sleep(REGISTER_AGAIN_EVERY_S)
                continue
            else:
                log.info("registered again as broker %d, incarnation %d", self.broker_id, self.incarnation)
            return

    # --- stop -------------------------------------------------------------------------------------------------------

    async def run_until_stopped(self) -> None:
        """Serve until `stop_soon`, then stop in order. Raises what ended it, if that was a fault."""
        await self._stopping.wait()
        log.info("stopping: %s", self._stop_reason)
        self.state = BrokerState.STOPPING
        await self.reports.have_others_lead()
        self.server.stop_accepting()
        self._watchdog.stop()
        self._collector.stop()
        await self.care.stop()
        await self.registry_copies.close()
        await self._stop_telling()
        self.groups.close()
        await self.dispatcher.drain(DRAIN_S)
        for name in list(self.partitions):
            self.partitions[name].finish()
        await self.executors.run(Purpose.OTHER, self.flusher.stop)
        await asyncio.sleep(0)  # what the last flush committed is answered
        self.replicas.close()
        await self.replicas.fetchers.let_go(list(self.replicas.followed))
        await self.server.drain(DRAIN_S)
        self.server.close()
        self.registry.close()
        self.purgatory.close()
        term = self.office.close()
        for task in list(self._tasks):
            task.cancel()
        await self.executors.run(Purpose.OTHER, self.log_dirs.close)
        if self.registration is not None and self.zookeeper.state is SessionState.CONNECTED:
            try:
                # In this order the next controller never counts on this broker.
                await self.executors.run(Purpose.ELECTIONS, brokers.unregister, self.zookeeper, self.registration)
                if term is not None:
                    with contextlib.suppress(BadVersion, NoNode):  # somebody has seen us go, and is it already
                        await self.executors.run(Purpose.ELECTIONS, election_registry.resign, self.zookeeper, term)
            except KlogError as error:
                log.warning("the registration stays until the session ends: %s", error.message)
        await self.executors.run(Purpose.OTHER, self.zookeeper.stop)
        self.executors.close()
        log.info("stopped")
        if self._failure is not None:
            raise self._failure.bare()


def _share_the_interpreter() -> None:
    """Let the flusher's thread have its turn soon.

    A thread that comes back from fdatasync waits for the loop to give the interpreter up, by default for 5 ms: longer
    than the flush. With half a millisecond, one message a request went a third faster, and p99 of a message's way to
    its consumer fell.
    """
    sys.setswitchinterval(0.0005)


def run(config: BrokerConfig, *, ready_fd: int | None = None) -> int:
    """Run a broker in this process until it is told to stop; the exit code. Raises KlogError if it cannot start.

    ``ready_fd``: a file descriptor on which ``ready HOST:PORT`` is written when the first request would succeed.
    """
    return asyncio.run(_run(config, ready_fd))


async def _run(config: BrokerConfig, ready_fd: int | None) -> int:
    broker = Broker(config)
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(broker.start())

    asked = Asked()

    def stop(number: signal.Signals) -> None:
        if not asked.again():
            return
        if broker._stopping.is_set() and number == signal.SIGINT:
            log.warning("interrupted again: ending at once")
            os._exit(130)
        broker.stop_soon(number.name)
        starting.cancel()

    def heard(number: int, _: object) -> None:
        loop.call_soon_threadsafe(stop, signal.Signals(number))

    # Not the loop's own handlers: closing it gives the signals their default back, and one more SIGTERM in these last
    # milliseconds would make a clean stop look like a death. These hold until both are ignored, for good.
    for number in STOP_SIGNALS:
        signal.signal(number, heard)
    try:
        host, port = await starting
    except asyncio.CancelledError:
        log.info("stopped while starting")
        _stop_listening_to_signals()
        return 0
    if ready_fd is not None:
        try:
            with os.fdopen(ready_fd, "w") as ready:
                print(f"ready {host}:{port}", file=ready)
        except BrokenPipeError:  # a `klog up` that was killed: the next one finds this broker running
            log.info("whoever started this broker has gone; it serves on")
    await broker.run_until_stopped()
    _stop_listening_to_signals()
    return 0


def _stop_listening_to_signals() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
