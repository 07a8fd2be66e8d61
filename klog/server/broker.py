"""A broker: one process, one event loop, some log dirs, one ZooKeeper session.

Start, in this order:

    1. lock the log dirs; meanwhile the ZooKeeper session begins
    2. check cluster id and broker id: a log dir of another cluster or another broker is refused
    3. open every log, recovering what lies past the recovery point
    4. listen, so that clients and brokers that see the registration can connect (rule R6)
    5. register the broker id; replace an entry of this broker's own dead process (rule R7)
    6. find the controller, or be elected; obey its requests about partitions

Stop (SIGTERM, StopBroker): move leaderships to other brokers, refuse new connections, answer waiting requests, flush
and checkpoint the logs, end the session.

After a lost connection to ZooKeeper the broker serves on. After the session has expired, it still serves reads of
committed messages, and appends nothing until it has registered again, as a new incarnation, which leads in new epochs
only (rule R1).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from functools import partial
from typing import Any

from klog.client.zookeeper_access import servers_of
from klog.config import BrokerConfig, LogConfig
from klog.coordination import brokers, cluster, topics
from klog.coordination import controller_election as election_registry
from klog.coordination.process import RESTART_CODE, show_stopping
from klog.coordination.session import SessionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import BadVersion, BrokerIdInUse, KlogError, NoNode, NotLeader, StorageError, WrongCluster
from klog.host.collector import Collector
from klog.host.limits import share_out
from klog.host.watchdog import Watchdog
from klog.names import host_port
from klog.secret import Secret
from klog.server.access import Access
from klog.server.authority import Authority
from klog.server.auto_create import AutoCreation
from klog.server.broker_probes import BrokerProbes
from klog.server.controller.controller import Controller
from klog.server.controller.controller_election import ControllerElection
from klog.server.controller.peers import Peers
from klog.server.controller.reports import Reports
from klog.server.credentials import UserCredentials
from klog.server.dispatch import BoundRoutes, Dispatcher, Forwarding, OpenRequests
from klog.server.events import Events, EventsTopic
from klog.server.executors import Executors, Purpose, share_the_interpreter
from klog.server.former_brokers import FormerBrokers
from klog.server.full_disks import FullDisks
from klog.server.group_lag import GroupLags
from klog.server.groups.coordinator import Coordinator
from klog.server.handlers import ROUTES
from klog.server.history import HistoryKeeper
from klog.server.image import ClusterImage
from klog.server.listener_security import ListenerSecurity
from klog.server.listening import Listening, server_of
from klog.server.parts import Parts
from klog.server.peer_clocks import PeerClocks
from klog.server.peer_probe import reach
from klog.server.producer_ids import ProducerIds
from klog.server.purgatory import Purgatory
from klog.server.quota_keeper import QuotaKeeper
from klog.server.registration import OwnRegistration
from klog.server.registry_copies import RegistryCopies
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.disk_watch import DiskWatch
from klog.server.replicas.fetchers import Fetchers
from klog.server.replicas.local_replicas import LocalReplicas
from klog.server.replicas.log_maintenance import LogMaintenance
from klog.server.replicas.replicas import Replicas
from klog.server.runtime import BrokerState, Identity, Runtime
from klog.server.schema_registry import BrokerRegistry
from klog.server.zookeeper_admission import Kind, ZooKeeperAdmission
from klog.signals import StopRequest
from klog.storage.filesystem import OsFileSystem
from klog.storage.flusher import Flusher
from klog.storage.log import Log, LogEnd
from klog.storage.log_dir import LogDirs

log = logging.getLogger(__name__)

DRAIN_S = 5.0
"""How long a controlled shutdown waits for open requests."""
REGISTER_AGAIN_EVERY_S = 1.0
ASSIGNED_WITHIN_S = 10.0
"""How long a broker waits for the controller's requests before it logs that; it continues to wait."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Broker(Parts):
    """See the module. Event loop only, except methods that state otherwise."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._collector = Collector()
        self.image = ClusterImage()
        self.executors = Executors()
        self.identity = Identity(config.integer("broker.id"))
        self.routes = BoundRoutes()
        self.open_requests = OpenRequests()
        self.zookeeper = ZooKeeper(
            servers_of(config),
            config.integer("zookeeper.session.timeout.ms"),
            lambda state: self.runtime.from_thread(self._session_changed, state),
        )
        self.runtime = Runtime(config, self.identity, self.executors, self.zookeeper, asyncio.get_running_loop())
        self.credentials = UserCredentials(self.runtime)
        self.listener_security = ListenerSecurity(self.runtime, self.credentials)
        self.deletions = Deletions(self.executors)
        self.producer_ids = ProducerIds(self.runtime)
        self.purgatory = Purgatory(self.runtime.loop)
        self.probes = BrokerProbes(self.identity, config.integer("zookeeper.session.timeout.ms") / 1000)
        self.former_brokers = FormerBrokers(self.runtime.loop.time)
        self.history = HistoryKeeper(self)
        self.zookeeper_admission = ZooKeeperAdmission(self.runtime)
        self.registry = BrokerRegistry(self.runtime, partial(self.zookeeper_admission.admit, Kind.SCHEMAS))
        self.authority = Authority(self.runtime)
        self.access = Access.of(self.runtime, self.image)
        self.quota_keeper = QuotaKeeper(self.runtime)
        self._has_parts = False
        """All parts exist. A session lost earlier affects no part."""
        self._lost_session = False
        self._knows_cluster = asyncio.Event()
        self._endpoints = contextlib.ExitStack()
        """Closes the HTTP endpoints."""

    # --- start ----------------------------------------------------------------------------------------------------

    async def start(self) -> tuple[str, int]:
        """Serve; returns the advertised (host, port). Undoes its steps before it raises KlogError."""
        async with contextlib.AsyncExitStack() as undo:
            undo.callback(self.executors.close)
            undo.push_async_callback(self.executors.run, Purpose.OTHER, self.zookeeper.stop)
            await self._open(undo)
            undo.pop_all()
        self._begin_upkeep()
        log.info(
            "broker %d serves at %s:%d: %d partitions led, cluster %s, ZooKeeper %s",
            self.identity.broker_id,
            *self.address,
            len(self.partitions),
            self.image.cluster_id,
            self.zookeeper.address,
        )
        return self.address

    async def _open(self, undo: contextlib.AsyncExitStack) -> None:
        """The steps of a start that block. ``undo`` gets the undo of each."""
        connecting = asyncio.create_task(self.executors.run(Purpose.OTHER, self._connect))
        file_system = OsFileSystem()
        self._descriptors = share_out()
        try:
            self.log_dirs = await self.executors.run(
                Purpose.OTHER, LogDirs, file_system, self.config.log_dirs, open_files_max=self._descriptors.files
            )
        except BaseException:
            connecting.cancel()
            await asyncio.wait((connecting,))
            raise
        undo.push_async_callback(self.executors.run, Purpose.OTHER, self.log_dirs.close)
        try:
            cluster_id, secret, overrides = await connecting
            if cluster_id is None:
                cluster_id = await self.executors.run(Purpose.OTHER, _create_cluster, self.zookeeper, self.log_dirs)
            self.image.cluster_id = cluster_id
            self.log_dirs.record_owner(cluster_id, self.identity.broker_id)
            await self.listener_security.load()
            self.secret = await self.executors.run(Purpose.OTHER, self._know_secret, secret)
            self.own_registration = OwnRegistration(self.runtime, self.secret, self.displaced)
            self.flusher = Flusher(self._post_outcomes, self._flushed, file_system, soon=self.runtime.loop.call_soon)
            undo.callback(self.flusher.stop)
            await self.executors.run(
                Purpose.OTHER,
                self.log_dirs.load,
                lambda name: LogConfig.of(self.config.of_topic(name.topic), overrides.get(name.topic, {})),
            )
            self.log_dirs.start()
            self.events = Events(self.identity, to_topic=self.config.flag("klog.events.enable"))
            self.runtime.on_event = self.events.record
            self.runtime.on_events_awaited = self.events.sent
            for path in self.log_dirs.offline.keys() - {one.path for one in self.log_dirs.dirs}:
                self.runtime.tell("log-dir-offline", dir=path, reason=self.log_dirs.offline[path].message)
            peers = Peers(partial(reach, self.identity, self.secret), self.probes, self.routes.answer)
            self.controller = Controller(self.runtime, self.image, self.authority, peers, self.former_brokers)
            self.election = ControllerElection(self.runtime, self.authority, peers, self.controller)
            self.reports = Reports(self.runtime, self.election)
            fetchers = Fetchers(self.runtime, self.image, self.secret, self.flusher, self.deletions, self.probes)
            self.replicas = Replicas(
                self.runtime,
                self.image,
                self.log_dirs,
                self.flusher,
                self.authority,
                self.reports.isr,
                self.reports.offline,
                fetchers,
                self._knows_cluster.set,
            )
            self.partitions = self.replicas.partitions
            self.local_replicas = LocalReplicas(self.runtime, self.image, self.log_dirs, self.replicas)
            self.groups = Coordinator(self.runtime, self.image, self.zookeeper_admission)
            self.group_lags = GroupLags(self.zookeeper, self.partitions)
            undo.callback(self.groups.close)
            self.auto_creation = AutoCreation(self.runtime, self.controller, self.election)
            self.registry_copies = RegistryCopies(
                self.runtime, self.image, self.log_dirs, self.authority, self.producer_ids
            )
            if self.access is not None:
                await self.access.acl_keeper.start()
            self._has_parts = True
            self._listen()
            await self.quota_keeper.start(self.dispatcher, self.server.arrivals)
            undo.callback(self.server.close)
            undo.callback(self._endpoints.close)
            await self._serve_http()
            await self._enter()
        except BrokerIdInUse:
            # The error tells the operator to choose another id: the folders must not keep this one.
            await self.executors.run(Purpose.OTHER, self.log_dirs.forget_owner)
            raise

    async def _serve_http(self) -> None:
        """Serve metrics and the schema registry, each imported only if it is configured: an import takes
        milliseconds."""
        if self.config.integer("metrics.port"):
            from klog.server import metrics_endpoint

            self._endpoints.callback((await metrics_endpoint.serve(self)).close)
        if self.config.integer("schema.registry.port"):
            self._endpoints.callback((await self.registry.serve()).close)

    def _begin_upkeep(self) -> None:
        """Start the periodic work of a serving broker."""
        self._log_maintenance = LogMaintenance(self.runtime, self.image, self.log_dirs, self.deletions, self.replicas)
        self._log_maintenance.start()
        self._disk_watch = DiskWatch(self.runtime, self.log_dirs, self.flusher, self.replicas)
        self._disk_watch.start()
        self.zookeeper_admission.start()
        self.runtime.spawn(PeerClocks(self.runtime, self.image, self.secret).run())
        full = FullDisks(self.runtime, self.image, self.log_dirs, self.controller, self.election)
        self.runtime.spawn(full.run())
        self.registry_copies.start()
        self.runtime.spawn(self.listener_security.keep())
        leads, answer = (lambda: self.controller.active), self.routes.answer
        events_topic = EventsTopic(self.runtime, self.image, self.secret, self.producer_ids, leads, answer)
        self.events.start(self.runtime, events_topic)
        self.runtime.spawn(self.history.run())
        self.producer_ids.stock_up()
        self._watchdog = Watchdog(self.zookeeper.session_timeout_ms / 1000)
        self._watchdog.start()
        self._collector.start()
        share_the_interpreter()

    def _connect(self) -> tuple[str | None, Secret | None, dict[str, dict[str, str]]]:
        """In a thread: connect; returns the cluster's id (None: unknown), its secret, every topic's own settings."""
        self.zookeeper.start(self.config.integer("zookeeper.connection.timeout.ms") / 1000, create_chroot=True)
        damage: topics.Damage = {}  # the controller reports it
        configs = topics.configs(self.zookeeper, topics.names(self.zookeeper), damage)
        overrides = {name: config.settings for name, config in configs.items()}
        return cluster.entered_id(self.zookeeper), cluster.secret(self.zookeeper), overrides

    def _know_secret(self, found: Secret | None) -> Secret:
        """In a thread: the secret by which the brokers recognize one another (rule R10), stored in each log dir.

        If ZooKeeper has lost it, or the cluster is new, this writes a log dir's secret there, or a new one.
        """
        if found is None:
            found = cluster.ensure_secret(self.zookeeper, self.log_dirs.secret or Secret.random())
        self.log_dirs.keep_secret(found)
        return found

    def _listen(self) -> None:
        """Open the ports. Requests are answered from now on; no partition is led yet."""
        self.routes.bind(ROUTES, self)
        self.dispatcher = Dispatcher(
            self.routes,
            executors=self.executors,
            meters=self.runtime.measures.requests,
            open_requests=self.open_requests,
            forwarding=Forwarding(lambda: self.controller.active, self.election.ask, self.identity.client_id),
            permits=None if self.access is None else self.access.answer,
        )
        self.server = server_of(self.config, self.dispatcher.on_frame, self._descriptors, self.runtime.tell)
        self.server.shared.on_handed_on = self.flusher.begin
        self.listening = Listening.begin(
            self.config,
            self.server,
            lambda listener: self.listener_security.setup(listener, self.dispatcher.on_frame, self.secret),
        )

    @property
    def address(self) -> tuple[str, int]:
        """The advertised (host, port)."""
        return self.listening.address

    async def _enter(self) -> None:
        """Register, find the controller or be elected, and obey it: at the start, and after the session expired."""
        is_current = await self.executors.run(Purpose.ELECTIONS, self._register)
        self.identity.fenced = None
        if not is_current:
            self.own_registration.look()
        self._knows_cluster.clear()
        await self.election.enter()
        while not await self._assigned_by_controller():
            log.warning("the controller, broker %d, has not sent this broker its requests yet", self.election.holder)
        self.runtime.state = BrokerState.CONTROLLER if self.controller.active else BrokerState.RUNNING

    async def _assigned_by_controller(self) -> bool:
        try:
            async with asyncio.timeout(ASSIGNED_WITHIN_S):
                await self._knows_cluster.wait()
        except TimeoutError:
            return False
        return True

    def _register(self) -> bool:
        """In a thread: register; returns whether no other process has registered this id since."""
        host, port = self.address
        rack = self.config["broker.rack"]
        self.identity.registration, is_current = self.own_registration.register(
            brokers.Broker(
                self.identity.broker_id,
                host,
                port,
                log_dirs=tuple(str(one) for one in self.log_dirs.uuids),
                bind=self.listening.bind,
                rack=rack if isinstance(rack, str) else "",
                inter_broker=self.listening.inter_broker,
                endpoints=self.listening.endpoints,
                timestamp_ms=self.identity.started_at_ms,
            )
        )
        return is_current

    def _post_outcomes(self, deliver: Any, outcomes: Any) -> None:
        """In the flusher's thread. One flush commits requests of many connections, answered together on the loop."""
        self.runtime.loop.call_soon_threadsafe(self.server.shared.together, deliver, outcomes)

    def _flushed(self, flushed_log: Log, outcome: LogEnd | StorageError) -> None:
        self.replicas.flushed(flushed_log, outcome)

    # --- the session ------------------------------------------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        if self.runtime.is_stopping:
            return
        if state is SessionState.CONNECTED:
            self.runtime.connected.set()
        else:
            self.runtime.connected.clear()
        if not self._has_parts:
            return
        if state is SessionState.SUSPENDED:
            log.warning(
                "the connection to ZooKeeper %s is lost; serving on until the session ends", self.zookeeper.address
            )
        elif state is SessionState.EXPIRED:
            self.groups.cache.drop_all()
            log.error(
                "the ZooKeeper session has expired: the broker appends nothing until it has registered again; "
                "committed messages can still be read"
            )
            self.identity.fenced = NotLeader("the broker's ZooKeeper session has expired; it is registering again")
            self.runtime.tell("session-expired")
            self.election.leave()
            self.replicas.suspend(self.identity.fenced)
            self._lost_session = True
        elif self._lost_session:
            self._lost_session = False
            self.runtime.spawn(self._enter_again())
        elif self.identity.registration is not None:
            log.info("connected to ZooKeeper again, the session is the same")

    def displaced(self, failure: KlogError, fenced: KlogError) -> None:
        """Another process has replaced this broker's entry (rule R7): stop appending, and stop the broker."""
        self.identity.fenced = fenced
        self.election.leave()
        self.replicas.suspend(fenced)
        self.runtime.stop_soon("another process has this broker's id", failure)

    async def _enter_again(self) -> None:
        """Register under the new session, and lead in new epochs."""
        last_reason = ""
        while not self.runtime.is_stopping and not self._lost_session:
            try:
                await self.executors.run(Purpose.ELECTIONS, _check_cluster, self.zookeeper, self.image.cluster_id)
                await self._enter()
            except BrokerIdInUse as error:  # rule R7: the process that replaced our entry is the broker now
                log.critical("another process has this broker's id: stopping (%s)", error.message)
                self.runtime.stop_soon("another process has this broker's id", error.bare())
            except KlogError as error:
                reason = f"{error.message} ({error.hint})" if error.hint else error.message
                if reason != last_reason:
                    log.error("the broker could not register again, and retries every second: %s", reason)
                    last_reason = reason
                await asyncio.sleep(REGISTER_AGAIN_EVERY_S)
                continue
            else:
                log.info(
                    "registered again as broker %d, incarnation %d", self.identity.broker_id, self.identity.incarnation
                )
            return

    # --- stop -------------------------------------------------------------------------------------------------------

    async def run_until_stopped(self) -> None:
        """Serve until `stop_soon`, then shut down. Raises the fault that ended the broker, if there was one."""
        await self.runtime.stopping.wait()
        self.runtime.state = BrokerState.STOPPING
        await self.reports.leave()
        self.server.stop_accepting()
        self._watchdog.stop()
        self._collector.stop()
        await self._log_maintenance.stop()
        await self.registry_copies.close()
        await self.events.close()
        self._endpoints.close()
        self.groups.close()
        await self.open_requests.drain(DRAIN_S)
        for name in list(self.partitions):
            self.partitions[name].finish()
        await self.executors.run(Purpose.OTHER, self.flusher.stop)
        await asyncio.sleep(0)  # lets the answers to the last flush go out
        self.replicas.close()
        await self.replicas.fetchers.let_go(list(self.replicas.followed))
        await self.server.drain(DRAIN_S)
        await self._leave_registry()
        self.server.close()
        self.purgatory.close()
        self.runtime.cancel_tasks()
        await self.executors.run(Purpose.OTHER, self.log_dirs.close)
        await self.executors.run(Purpose.OTHER, self.zookeeper.stop)
        self.executors.close()
        log.info("stopped")
        if self.runtime.failure is not None:
            raise self.runtime.failure.bare()

    async def _leave_registry(self) -> None:
        """End the registration and the term, in this order and before the connections.

        The next controller never considers this broker alive, and none is elected for the end of its connections, which
        would take it for dead.
        """
        term = self.election.close()
        if self.identity.registration is None or self.zookeeper.state is not SessionState.CONNECTED:
            return
        try:
            await self.executors.run(Purpose.ELECTIONS, brokers.unregister, self.zookeeper, self.identity.registration)
            if term is not None:
                with contextlib.suppress(BadVersion, NoNode):  # another broker has taken over already
                    await self.executors.run(Purpose.ELECTIONS, election_registry.resign, self.zookeeper, term)
        except KlogError as error:
            log.warning("the registration stays until the session ends: %s", error.message)


def _create_cluster(zookeeper: ZooKeeper, log_dirs: LogDirs) -> str:
    """In a thread: create a cluster if ZooKeeper has none, and return its id.

    Raises WrongCluster if a log dir belongs to a cluster: ZooKeeper has lost it.
    """
    for one in log_dirs.dirs:
        if one.meta.cluster_id is not None:
            raise _forgotten(zookeeper, f"log dir {one.path} belongs to cluster {one.meta.cluster_id}")
    return cluster.ensure_cluster(zookeeper)


def _check_cluster(zookeeper: ZooKeeper, cluster_id: str) -> None:
    """In a thread: raise WrongCluster if ZooKeeper no longer belongs to this broker's cluster."""
    found = cluster.cluster_id(zookeeper)
    if found is None:
        raise _forgotten(zookeeper, f"this broker belongs to cluster {cluster_id}")
    if found != cluster_id:
        raise WrongCluster(
            f"ZooKeeper {zookeeper.address} now belongs to cluster {found}, this broker to cluster {cluster_id}"
        )


def _forgotten(zookeeper: ZooKeeper, ours: str) -> WrongCluster:
    return WrongCluster(
        f"{ours}, and ZooKeeper {zookeeper.address} knows no cluster",
        hint="is the address right, with its chroot? where ZooKeeper's data are lost: klog zookeeper rebuild",
    )


def run(config: BrokerConfig, *, ready_fd: int | None = None, parent: socket.socket | None = None) -> int:
    """Run a broker in this process until it is asked to stop; the exit code. Raises KlogError if it cannot start.

    ``ready_fd``: a file descriptor to which ``ready HOST:PORT`` is written when requests succeed. ``parent``: gets that
    line, too; the broker stops when its other end is closed (klog.server.processes).
    """
    return asyncio.run(_run(config, ready_fd, parent))


async def _run(config: BrokerConfig, ready_fd: int | None, parent: socket.socket | None) -> int:
    broker = Broker(config)
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(broker.start())
    stopping = asyncio.ensure_future(broker.runtime.stopping.wait())
    stopping.add_done_callback(lambda _: show_stopping())

    asked = StopRequest()

    def stop(number: signal.Signals) -> None:
        if not asked.again():
            return
        if broker.runtime.is_stopping and number == signal.SIGINT:
            log.warning("interrupted again: ending at once")
            os._exit(130)
        broker.runtime.stop_soon(number.name)
        starting.cancel()

    def heard(number: int, _: object) -> None:
        loop.call_soon_threadsafe(stop, signal.Signals(number))

    # Not the loop's own handlers: closing the loop restores the signals' defaults, and another SIGTERM in the last
    # milliseconds would then kill the process. These handlers last until both signals are ignored.
    for number in STOP_SIGNALS:
        signal.signal(number, heard)

    def left_alone() -> None:
        assert parent is not None
        loop.remove_reader(parent)
        broker.runtime.stop_soon("the process that started this broker has ended")
        starting.cancel()

    if parent is not None:
        loop.add_reader(parent, left_alone)  # it sends nothing: readable means closed
    try:
        host, port = await starting
    except asyncio.CancelledError:
        log.info("stopped while starting")
        _stop_listening_to_signals()
        return 0
    if ready_fd is not None:
        try:
            with os.fdopen(ready_fd, "w") as ready:
                print(f"ready {host_port(host, port)}", file=ready)
        except BrokenPipeError:  # a `klog up` that was killed: the next one finds this broker running
            log.info("the process that started this broker has ended; the broker serves on")
    if parent is not None:
        with contextlib.suppress(ConnectionError):  # its end is noticed by then
            parent.sendall(f"ready {host_port(host, port)}\n".encode())
    await broker.run_until_stopped()
    _stop_listening_to_signals()
    return RESTART_CODE if broker.runtime.restart else 0


def _stop_listening_to_signals() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
