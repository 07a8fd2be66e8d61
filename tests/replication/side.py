"""Brokers without a cluster: real logs, flushers, listeners and connections, and no controller but the test.

A `Side` has of a broker what leading and following partitions needs, in this process and on this loop.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from klog.config import BrokerConfig, LogConfig
from klog.coordination import brokers
from klog.coordination.partition_states import PartitionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError, NotLeader, StorageError
from klog.names import TopicPartition
from klog.net.connection import Connection, Reply
from klog.net.server import Server
from klog.net.shared import SocketLimits
from klog.protocol.apis import ApiKey
from klog.record.records import Record, encode_batch
from klog.replication.follower import Follower
from klog.replication.led_partition import LedPartition
from klog.secret import Secret
from klog.server import handlers
from klog.server.broker_probes import BrokerProbes
from klog.server.dispatch import ROUTES, BoundRoutes, Dispatcher, OpenRequests
from klog.server.executors import Executors
from klog.server.image import BrokerImage, ClusterImage
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.fetchers import Fetchers
from klog.server.replicas.led_partitions import LedPartitions
from klog.server.replicas.opening import Assignment
from klog.server.runtime import Identity, Runtime
from klog.storage.filesystem import FileSystem, OsFileSystem
from klog.storage.flusher import Flusher
from klog.storage.log import Log, LogEnd
from klog.storage.log_dir import LogDirs

assert handlers  # imported for what it registers

TOPIC_ID = uuid.UUID(int=7)
NAME = TopicPartition("t", 0)
CLUSTER = "c-1"
SECRET = Secret(bytes(range(32)))


def batch(count: int = 1, size: int = 20, mark: int = 0) -> memoryview:
    """A batch of records that differ by ``mark``."""
    value = (b"%d." % mark).ljust(size, b"x")
    return memoryview(bytearray(encode_batch([Record(at, 1000 + at, None, value, ()) for at in range(count)])))


class Waiter:
    """Waits for one append to be committed, which is told once: a second time is an error."""

    def __init__(self) -> None:
        self.told: asyncio.Future[KlogError | None] = asyncio.get_running_loop().create_future()

    def committed(self, error: KlogError | None) -> None:
        if not self.told.cancelled():  # by a time-out
            self.told.set_result(error)


SERVED = (ApiKey.API_VERSIONS, ApiKey.GREET, ApiKey.PROVE, ApiKey.REPLICA_FETCH)


class Side:
    """See the module. Make it inside a running loop; `start` before use, `stop` at the end."""

    def __init__(
        self,
        folder: Path,
        broker_id: int,
        *,
        incarnation: int | None = None,
        cluster_id: str = CLUSTER,
        secret: Secret = SECRET,
        **settings: str,
    ) -> None:
        properties = {name.replace("_", "."): value for name, value in settings.items()}
        properties = {
            "broker.id": str(broker_id),
            "log.dirs": str(folder),
            "replica.fetch.backoff.ms": "50",
        } | properties
        self.config = BrokerConfig.parse(properties)
        self.broker_id = broker_id
        self.secret = secret
        self.loop = asyncio.get_running_loop()
        self.image = ClusterImage(cluster_id=cluster_id)
        self.executors = Executors()
        self.runtime = Runtime(self.config, Identity(broker_id), self.executors, ZooKeeper("127.0.0.1:1"), self.loop)
        self.identity = self.runtime.identity
        self.runtime.on_event = self._on_event
        self.measures = self.runtime.measures
        self.incarnation = broker_id * 100 if incarnation is None else incarnation
        self.deletions = Deletions(self.executors)
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.partitions = LedPartitions(broker_id, self.image)
        self.outcomes: list[tuple[Log, LogEnd | StorageError]] = []
        self.asked_for_isr = 0
        self._file_system: FileSystem = OsFileSystem()
        self._folder = folder
        self._open_logs()
        routes = BoundRoutes()
        routes.bind({key: ROUTES[key] for key in SERVED}, self)
        self.dispatcher = Dispatcher(
            routes,
            executors=self.executors,
            meters=self.measures.requests,
            open_requests=OpenRequests(),
            forwarding=cast(Any, None),
        )
        self.server = self._new_server()
        self.flusher = Flusher(self._post, self._flushed, self._file_system)
        self.probes = BrokerProbes(self.runtime.identity, 60.0)
        self.fetchers = Fetchers(self.runtime, self.image, secret, self.flusher, self.deletions, self.probes)
        self.port = -1

    def _open_logs(self) -> None:
        self.log_dirs = LogDirs(self._file_system, (str(self._folder),))
        self.log_dirs.record_owner(self.image.cluster_id, self.broker_id)
        self.log_dirs.load(lambda name: LogConfig.of(self.config, {}))

    def _new_server(self) -> Server:
        limits = SocketLimits(frame_bytes_max=100 << 20)
        return Server(self._on_frame, limits=limits, idle_max_s=600)

    def restart_server(self) -> None:
        """After `server.close`: listen again, at another port."""
        self.server = self._new_server()
        self.port = self.server.listen("127.0.0.1", 0)

    async def damage(self, *addresses: int) -> None:
        """Flip a bit at each address, and open the logs as a start does that has no checkpoints."""
        await asyncio.to_thread(self.log_dirs.close)
        for path in self._folder.glob("*checkpoint"):
            path.unlink()
        for address in addresses:
            path = max(one for one in self._folder.rglob("*.log") if int(one.stem) <= address)
            data = bytearray(path.read_bytes())
            data[address - int(path.stem)] ^= 1
            path.write_bytes(data)
        self._open_logs()

    def start(self) -> Side:
        self.port = self.server.listen("127.0.0.1", 0)
        return self

    async def stop(self) -> None:
        self.fetchers.close()
        await self.fetchers.let_go(list(self.fetchers.followed))
        for name in list(self.partitions):
            self.resign(name)
        self.server.close()
        await asyncio.to_thread(self.flusher.stop)
        self.runtime.cancel_tasks()
        await asyncio.to_thread(self.log_dirs.close)

    @property
    def incarnation(self) -> int:
        return self.runtime.identity.incarnation

    @incarnation.setter
    def incarnation(self, incarnation: int) -> None:
        """Be registered as this incarnation from now on."""
        described = brokers.Broker(self.broker_id, "127.0.0.1", 1)
        self.runtime.identity.registration = brokers.Registration(described, incarnation, 0, 0, 0)

    @property
    def entry(self) -> BrokerImage:
        return BrokerImage(self.broker_id, "127.0.0.1", self.port, None, self.incarnation, "127.0.0.1", self.port)

    def knows(self, *sides: Side) -> None:
        """What UpdateMetadata would say of who lives."""
        self.image.brokers = {one.broker_id: one.entry for one in sides}
        self.fetchers.brokers_changed()

    def _on_frame(self, connection: Connection, frame: memoryview, reply: Reply) -> None:
        self.dispatcher.on_frame(connection, frame, reply)

    # --- what happens -------------------------------------------------------------------------------------------------

    def _on_event(self, kind: str, facts: Mapping[str, Any]) -> None:
        self.events.append((kind, facts))

    def _post(self, deliver: Callable[..., object], outcomes: object) -> None:
        self.loop.call_soon_threadsafe(self.server.shared.together, deliver, outcomes)

    def _flushed(self, log: Log, outcome: LogEnd | StorageError) -> None:
        self.outcomes.append((log, outcome))
        partition = self.partitions.get(log.topic_partition)
        if partition is not None and partition.log is log:
            if isinstance(outcome, StorageError):
                partition.failed(outcome)
            else:
                partition.flushed(outcome)
        else:
            self.fetchers.flushed(log, outcome)

    # --- what a controller would say ----------------------------------------------------------------------------------

    def log(self, name: TopicPartition = NAME, **config: int) -> Log:
        return self.log_dirs.log_or_create(
            name, TOPIC_ID, LogConfig(**config) if config else LogConfig.of(self.config, {})
        )

    def lead(
        self,
        epoch: int,
        replicas: tuple[int, ...] = (1, 2, 3),
        isr: tuple[int, ...] | None = None,
        name: TopicPartition = NAME,
        high_watermark: LogEnd | None = None,
    ) -> LedPartition:
        self.fetchers.unfollow(name)
        self.resign(name)
        log = self.log(name)
        log.begin_epoch(epoch)

        def want_isr(partition: LedPartition) -> None:
            self.asked_for_isr += 1

        partition = self.partitions[name] = LedPartition(
            name,
            log,
            want_flush=self.flusher.want,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            replicas=replicas,
            state=PartitionState(self.broker_id, epoch, isr or (self.broker_id,), 0, version=0),
            high_watermark=high_watermark,
            want_isr=want_isr,
        )
        return partition

    def resign(self, name: TopicPartition = NAME) -> None:
        partition = self.partitions.pop(name, None)
        if partition is not None:
            partition.resign(NotLeader("the test says so"))

    def follow(
        self,
        leader: int,
        epoch: int,
        name: TopicPartition = NAME,
        high_watermark: int = 0,
        *,
        keep_truncated: bool = False,
    ) -> Follower:
        self.resign(name)
        return self.fetchers.follow(
            assigned(leader, epoch, name), self.log(name), high_watermark, keep_truncated=keep_truncated
        )


def assigned(leader: int, epoch: int, name: TopicPartition = NAME, topic_id: uuid.UUID = TOPIC_ID) -> Assignment:
    return Assignment(name, topic_id, (), PartitionState(leader, epoch, (), 0, version=0))


def fill(side: Side, *epochs: int, mark: int = 0) -> list[int]:
    """One batch of each epoch; where each begins."""
    return [side.log().append(batch(2, 30, mark), epoch).base_offset for epoch in epochs]


def files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.rglob(pattern))


async def append(partition: LedPartition, records: memoryview) -> KlogError | None:
    """Append and wait until that is committed."""
    waiter = Waiter()
    if partition.when_committed(partition.append(records).end.address, waiter):
        return None
    return await asyncio.wait_for(waiter.told, 20)


def content(log: Log) -> dict[int, bytes]:
    """Every batch of the log, by its address: what a replica must have the same."""
    found: dict[int, bytes] = {}
    for segment in log.segments:
        for address, header in segment.walk(segment.base_address):
            found[address] = segment.file.read_at(address - segment.base_address, header.size_bytes)
    return found


@asynccontextmanager
async def two_sides(tmp_path: Path, **settings: str) -> AsyncIterator[tuple[Side, Side]]:
    """Two sides that know each other: 1 and 2."""
    one = Side(tmp_path / "1", 1, **settings).start()
    two = Side(tmp_path / "2", 2, **settings).start()
    try:
        one.knows(one, two)
        two.knows(one, two)
        yield one, two
    finally:
        await two.stop()
        await one.stop()
