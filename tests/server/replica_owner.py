"""A broker's replicas without the broker around them: real logs, flusher, ZooKeeper and registration; no sockets.

The test is the controller. `isr_reports` and `offline_reports` keep what the replicas report to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from klog.config import BrokerConfig, LogConfig
from klog.coordination import brokers, cluster, partition_states, paths, topics
from klog.coordination.partition_states import PartitionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.secret import Secret
from klog.server.authority import Authority
from klog.server.broker_probes import BrokerProbes
from klog.server.controller.reports import Reports
from klog.server.executors import Executors
from klog.server.image import BrokerImage, ClusterImage
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.fetchers import Fetchers
from klog.server.replicas.led_partitions import LedPartitions
from klog.server.replicas.replicas import Replicas
from klog.server.runtime import Identity, Runtime
from klog.storage.filesystem import FileSystem, OsFileSystem
from klog.storage.flusher import Flusher
from klog.storage.log import Log
from klog.storage.log_dir import LogDirs
from tests.replication.side import Waiter, batch

ME = 1
CONTROLLER_EPOCH = 4


class OwnController:
    """The controller, to this broker: it keeps what is reported to it."""

    holder = ME

    def __init__(self) -> None:
        self.isr_reports: asyncio.Queue[list[TopicPartition]] = asyncio.Queue()
        self.offline_reports: asyncio.Queue[tuple[list[TopicPartition], bool]] = asyncio.Queue()

    async def ask(self, entity: Any, *, within_s: float) -> Any:
        names = [TopicPartition(topic.name, number) for topic in entity.topics for number in topic.partitions]
        if entity.__api_key__ == ApiKey.REPORT_ISR:
            self.isr_reports.put_nowait(names)
        else:
            self.offline_reports.put_nowait((names, entity.may_follow))
        return SimpleNamespace(error_code=0)


class Owner:
    """`Replicas` and what they work with. Brokers 2 and 3 are registered too, but no process listens there."""

    def __init__(self, zookeeper: ZooKeeper, folder: Path, file_system: FileSystem, **settings: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.zookeeper = zookeeper
        self.config = BrokerConfig.parse(
            {"broker.id": "1", "log.dirs": str(folder), "zookeeper.connect": str(zookeeper.address), **settings}
        )
        self.image = ClusterImage()
        self.identity = Identity(ME)
        self.runtime = Runtime(self.config, self.identity, Executors(), zookeeper, self.loop)
        self.runtime.on_event = self._on_event
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.log_dirs = LogDirs(file_system, self.config.log_dirs)
        self.log_dirs.load(lambda name: LogConfig.of(self.config, {}))
        self.flusher = Flusher(self.runtime.from_thread, self._flushed, file_system)
        self.authority = Authority(self.runtime)
        self.times_assigned = 0
        self.is_killed = False
        self._controller = OwnController()
        self.isr_reports = self._controller.isr_reports
        self.offline_reports = self._controller.offline_reports
        self.reports = Reports(self.runtime, cast(Any, self._controller))
        self.deletions = Deletions(self.runtime.executors)
        self.replicas = Replicas(
            self.runtime,
            self.image,
            self.log_dirs,
            self.flusher,
            self.authority,
            self.reports.isr,
            self.reports.offline,
            Fetchers(
                self.runtime,
                self.image,
                Secret.random(),
                self.flusher,
                self.deletions,
                BrokerProbes(self.identity, 60.0),
            ),
            self._on_assigned,
        )

    def _flushed(self, log: Log, outcome: Any) -> None:
        self.replicas.flushed(log, outcome)

    def _on_event(self, kind: str, facts: Mapping[str, Any]) -> None:
        self.events.append((kind, facts))

    def _on_assigned(self) -> None:
        self.times_assigned += 1

    @property
    def incarnation(self) -> int:
        return self.identity.incarnation

    @property
    def partitions(self) -> LedPartitions:
        return self.replicas.partitions

    # --- what a test does -----------------------------------------------------------------------------------------

    async def register(self) -> None:
        """Be another incarnation, and know 2 and 3."""
        await asyncio.to_thread(self._register)

    def _register(self) -> None:
        cluster.ensure_cluster(self.zookeeper)
        self.write_controller_epoch(CONTROLLER_EPOCH)
        old = self.identity.registration
        if old is not None:
            brokers.unregister(self.zookeeper, old)
        alive = {}
        for one in (ME, 2, 3):
            found = brokers.find(self.zookeeper, one)
            if found is None:
                found = brokers.register(self.zookeeper, brokers.Broker(one, "127.0.0.1", 1, (f"dir-{one}",)))
            alive[one] = found
        self.identity.registration = alive[ME]
        self.image.brokers = {
            one: BrokerImage(one, "127.0.0.1", 1, None, found.incarnation) for one, found in alive.items()
        }

    def write_controller_epoch(self, epoch: int) -> None:
        """A controller of that epoch has been elected."""
        if self.zookeeper.exists(paths.CONTROLLER_EPOCH) is None:
            self.zookeeper.create(paths.CONTROLLER_EPOCH, b"0")
        self.zookeeper.set(paths.CONTROLLER_EPOCH, str(epoch).encode())

    async def make_topic(
        self, name: str, partitions: int = 1, isr: tuple[int, ...] = (1, 2, 3), *, new: bool = True, epoch: int = 0
    ) -> Topic:
        """A topic led by us in ZooKeeper, as a controller writes it."""
        return await asyncio.to_thread(self._make_topic, name, partitions, isr, new, epoch)

    def _make_topic(self, name: str, partitions: int, isr: tuple[int, ...], new: bool, epoch: int) -> Topic:
        made = topics.create(self.zookeeper, name, dict.fromkeys(range(partitions), (1, 2, 3)), {}, [])
        state = PartitionState(ME, epoch, isr, CONTROLLER_EPOCH, new, incarnations=self.incarnations(isr))
        states = {TopicPartition(name, one): state for one in range(partitions)}
        return Topic(self, made, partition_states.create_many(self.zookeeper, states, made.fence))

    def incarnations(self, isr: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.image.brokers[one].incarnation for one in isr)

    async def say(
        self, *told: Topic, is_full: bool = False, epoch: int = CONTROLLER_EPOCH, incarnation: int = 0
    ) -> Any:
        """LeaderAndIsr; the answer's values."""
        request = codec.request(
            ApiKey.LEADER_AND_ISR,
            0,
            controller_id=9,
            controller_epoch=epoch,
            incarnation=incarnation or self.incarnation,
            is_full=is_full,
            topics=[one.as_told() for one in told],
        )
        return await _answered(self.replicas.leader_and_isr(request))

    async def say_stop(
        self,
        topic: Topic,
        *,
        epoch: int = -2,
        delete: bool = True,
        topic_id: UUID | None = None,
        with_id: bool = True,
        controller_epoch: int = CONTROLLER_EPOCH,
    ) -> Any:
        """StopReplica of partition 0; the answer's values."""
        partition = {"partition_index": 0, "leader_epoch": epoch, "delete": delete}
        request = codec.request(
            ApiKey.STOP_REPLICA,
            0,
            controller_id=9,
            controller_epoch=controller_epoch,
            incarnation=self.incarnation,
            topics=[
                {
                    "name": topic.name,
                    "topic_id": (topic_id or topic.topic_id) if with_id else None,
                    "partitions": [partition],
                }
            ],
        )
        return await _answered(self.replicas.stop_replica(request))

    def log(self, topic: Topic) -> Log:
        found = self.log_dirs.log(TopicPartition(topic.name, 0))
        assert found is not None
        return found

    def append(self, topic: Topic) -> Waiter:
        """A batch, with somebody who waits for its acknowledgement."""
        partition = self.partitions[TopicPartition(topic.name, 0)]
        end = partition.append(batch()).end
        waiter = Waiter()
        if partition.when_committed(end.address, waiter):
            waiter.committed(None)
        return waiter

    def fetched(self, topic: Topic, broker_id: int) -> None:
        """That follower has everything, flushed."""
        partition = self.partitions[TopicPartition(topic.name, 0)]
        end = partition.log.end
        partition.replica_fetched(broker_id, self.image.brokers[broker_id].incarnation, end.address, end, 0.0)

    async def close(self) -> None:
        """The end: in good order, or with nothing flushed or written where `is_killed` is set."""
        self.replicas.close()
        self.runtime.cancel_tasks()
        await asyncio.to_thread(self.flusher.stop)
        if self.is_killed:
            for one in self.log_dirs.dirs:
                one.abandon()
        else:
            await asyncio.to_thread(self.log_dirs.close)
        self.runtime.executors.close()


class Topic:
    """A topic as the controller knows it: what it says of it is changed here."""

    def __init__(self, owner: Owner, made: topics.Topic, states: dict[TopicPartition, PartitionState]) -> None:
        self._owner = owner
        self.name = made.name
        self.topic_id = made.topic_id
        self.fence_version = made.fence_version
        self.fence = made.fence
        self.states = states
        self.replicas = (1, 2, 3)

    @property
    def first(self) -> TopicPartition:
        return TopicPartition(self.name, 0)

    def change(self, **fields: Any) -> None:
        """What is said of every partition, without writing it to ZooKeeper."""
        self.states = {name: replace(state, **fields) for name, state in self.states.items()}

    async def write(self, **fields: Any) -> None:
        """Another hand writes the states, on top of whatever stands there."""
        self.states = {name: state for name, state in (await self.read()).items() if state is not None}
        self.change(**fields)
        self.states = await asyncio.to_thread(
            partition_states.write_many, self._owner.zookeeper, self.states, self.fence
        )

    async def read(self) -> dict[TopicPartition, PartitionState | None]:
        return await asyncio.to_thread(partition_states.read_many, self._owner.zookeeper, list(self.states))

    async def state(self) -> PartitionState:
        """Of partition 0, as it stands in ZooKeeper."""
        found = (await self.read())[self.first]
        assert found is not None
        return found

    def as_told(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "topic_id": self.topic_id,
            "fence_version": self.fence_version,
            "partitions": [
                {
                    "partition_index": name.partition,
                    "controller_epoch": state.controller_epoch,
                    "leader": state.leader,
                    "leader_epoch": state.leader_epoch,
                    "isr": state.isr,
                    "incarnations": state.incarnations,
                    "state_version": state.version,
                    "replicas": self.replicas,
                    "is_new": state.new,
                    "unclean_epoch": state.unclean_epoch,
                }
                for name, state in self.states.items()
            ],
        }


@asynccontextmanager
async def owning(
    zookeeper: ZooKeeper, folder: Path, file_system: FileSystem | None = None, **settings: str
) -> AsyncIterator[Owner]:
    """An owner that is registered. ``settings`` with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    owner = Owner(zookeeper, folder, file_system or OsFileSystem(), **named)
    try:
        await owner.register()
        yield owner
    finally:
        await owner.close()


async def _answered(values: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """As the request's route answers."""
    try:
        return {"error_code": 0, **await values}
    except KlogError as error:
        return {"error_code": error.wire, "failed": []}
