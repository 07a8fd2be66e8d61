"""Modelled brokers: they obey the controller as a broker does, as far as time and ZooKeeper are concerned.

A broker answers after the time that decoding takes on a real one, one request after the other. A follower that is sent
its leader has everything after `Assumed.catch_up_s`; its leaders then write the in-sync sets, each with its own session
and fences, and report that to the controller. What a broker does with its disk is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, cast

from bench.simulation.costs import Assumed, Measured
from bench.simulation.link import Link
from bench.simulation.virtual_time import VirtualLoop
from bench.simulation.zookeeper import ModelledZooKeeper, Server
from klog.coordination import brokers as registry
from klog.coordination import entries, paths
from klog.coordination.brokers import Broker, Registration
from klog.coordination.zookeeper import Check, SetData
from klog.errors import CannotConnect, TimedOut
from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.codec import EncodedRequest
from klog.server.image import ClusterImage, apply

AGAIN_S = 0.05
OPERATIONS_MAX = 1000
"""Of a leader's in-sync sets in one multi."""


class Surroundings(Protocol):
    """What a modelled broker uses of the cluster that it belongs to."""

    measured: Measured
    assumed: Assumed
    loop: VirtualLoop
    server: Server
    link: Link
    leaders_writes: int
    longest_update_s: float

    def facts_of(self, broker_id: int) -> list[dict[str, Any]]: ...

    def caught_up(self, broker_id: int, incarnation: int, names: list[TopicPartition]) -> None: ...

    def report_isr(self, names: list[TopicPartition]) -> None: ...

    def count_request(self, entity: Any, size_bytes: int) -> None: ...

    def decoded(self, request: EncodedRequest) -> Any: ...


class ModelBroker:
    """See the module. Its parts of the model are uncounted."""

    def __init__(self, cluster: Surroundings, broker_id: int, host: str) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.host = host
        self.zookeeper = ModelledZooKeeper(cluster.server)
        self.registration: Registration | None = None
        self.connections: set[Connection] = set()
        self.is_up = False
        self.led: dict[TopicPartition, tuple[int, float]] = {}
        """Partition -> the epoch that this broker leads it in, and since when."""
        self.image: ClusterImage | None = None
        """Of a witness: the cluster as its updates tell it."""
        self.updates = 0
        self.has_everything = False
        """The first full update has come."""
        self.on_end: Callable[[], None] | None = None
        self._free_s = 0.0

    @property
    def incarnation(self) -> int:
        return -1 if self.registration is None else self.registration.incarnation

    def register(self) -> None:
        """In a thread, or while the cluster is set up."""
        entry = Broker(self.broker_id, self.host, 9092 + self.broker_id, (f"dir-{self.broker_id}",))
        self.registration = registry.register(self.zookeeper, entry)
        self.is_up = True

    def die(self, *, session_ends_s: float | None) -> None:
        """All connections end and further ones are refused; the session ends so much later (None: now)."""
        loop = self.cluster.loop
        self.is_up = False
        self.led.clear()
        self.has_everything = False
        for connection in list(self.connections):
            loop.call_later(self.cluster.assumed.network_s, connection.end)
        self.connections.clear()
        if self.on_end is not None:
            self.on_end()
        if session_ends_s is None:
            self.zookeeper.end()
        else:
            loop.call_later(session_ends_s, self.zookeeper.end)

    def start_again(self) -> None:
        """A new session; `register` follows."""
        self.zookeeper = ModelledZooKeeper(self.cluster.server)
        self._free_s = 0.0

    # --- obeying ------------------------------------------------------------------------------------------------------

    def answer(self, entity: Any) -> tuple[Any, float]:
        """What a request is answered, and when: the broker handles one after the other."""
        costs, loop = self.cluster.measured, self.cluster.loop
        key = int(entity.__api_key__)
        took_s = 0.0
        answer: dict[str, Any] = {"error_code": 0}
        if key == ApiKey.UPDATE_METADATA:
            took_s = self._take_metadata(entity)
        elif key == ApiKey.LEADER_AND_ISR:
            took_s = costs.lead_partition_s * sum(len(topic.partitions) for topic in entity.topics)
            answer["failed"] = []
        elif key == ApiKey.STOP_REPLICA:
            for topic in entity.topics:
                for one in topic.partitions:
                    self.led.pop(TopicPartition(topic.name, one.partition_index), None)
            answer["failed"] = []
        elif key == ApiKey.DESCRIBE_REPLICAS:
            answer["replicas"] = self.cluster.facts_of(self.broker_id)
        elif key == ApiKey.DESCRIBE_SELF:
            answer |= {"broker_id": self.broker_id, "incarnation": self.incarnation, "now_ms": 0, "started_at_ms": 0}
            answer |= dict.fromkeys(("cluster_id", "zookeeper", "state", "version"), "")
            answer |= dict.fromkeys(("leaders", "replicas"), 0)
        else:
            raise AssertionError(f"a modelled broker knows no request {key}")
        self._free_s = max(self._free_s, loop.time()) + took_s
        if key == ApiKey.LEADER_AND_ISR:
            self._lead(entity, self._free_s)
        return codec.response(key, 0, **answer), self._free_s

    def _take_metadata(self, entity: Any) -> float:
        costs = self.cluster.measured
        self.updates += 1
        self.has_everything = self.has_everything or entity.is_full
        if self.image is not None:
            apply(self.image, entity)
        partitions = sum(len(topic.partitions) for topic in entity.topics)
        took_s = partitions * costs.apply_partition_s + len(entity.brokers) * costs.apply_broker_s
        self.cluster.longest_update_s = max(self.cluster.longest_update_s, took_s)
        return took_s

    def _lead(self, entity: Any, since_s: float) -> None:
        """Lead what is given; what it follows with a new incarnation it catches up with."""
        if entity.is_full:
            self.led.clear()
        behind: list[TopicPartition] = []
        for topic in entity.topics:
            for one in topic.partitions:
                name = TopicPartition(topic.name, one.partition_index)
                if one.leader == self.broker_id:
                    if self.led.get(name, (-1, 0.0))[0] < one.leader_epoch:
                        self.led[name] = one.leader_epoch, since_s
                    continue
                self.led.pop(name, None)
                if (self.broker_id, self.incarnation) not in zip(one.isr, one.incarnations, strict=False):
                    behind.append(name)
        if behind:
            wait_s = since_s + self.cluster.assumed.catch_up_s
            self.cluster.loop.call_at(wait_s, self.cluster.caught_up, self.broker_id, self.incarnation, behind)

    # --- leading ------------------------------------------------------------------------------------------------------

    def let_in(self, follower: int, incarnation: int, names: Iterable[TopicPartition]) -> None:
        """As a leader: write these in-sync sets with the follower in it, and report it."""
        cluster, registration = self.cluster, self.registration
        if not self.is_up or registration is None:
            return
        writes: list[Any] = []
        written: list[TopicPartition] = []
        left: list[TopicPartition] = []
        fences: dict[str, Check] = {}
        for name in names:
            path = paths.partition_state(*name)
            node = cluster.server.nodes[path]
            state = entries.JsonNode(path, node.data)
            if state.integer("leader") != self.broker_id:
                continue
            known = dict(zip(state.integers("isr"), state.integers("incarnations"), strict=True))
            if known.get(follower) == incarnation:
                continue
            if len(writes) >= OPERATIONS_MAX:
                left.append(name)
                continue
            known[follower] = incarnation
            fields = {**state.fields, "isr": list(known), "incarnations": list(known.values())}
            writes.append(SetData(path, entries.encode(fields), node.version))
            epoch = paths.topic_epoch(name.topic)
            fences[epoch] = Check(epoch, cluster.server.nodes[epoch].version)
            written.append(name)
        if not writes:
            return
        asked = self.zookeeper.model.write_async([*fences.values(), registration.fence, *writes])
        cluster.leaders_writes += len(writes)

        def done(of: Any) -> None:
            if any(isinstance(one, Exception) for one in of.value):
                cluster.loop.call_later(AGAIN_S, self._again, follower, incarnation, [*written, *left])
                return
            cluster.loop.call_later(cluster.assumed.network_s, cluster.report_isr, written)
            if left:
                self._again(follower, incarnation, left)

        asked.rawlink(done)

    def _again(self, follower: int, incarnation: int, names: list[TopicPartition]) -> None:
        with self.cluster.loop.uncounted():
            self.let_in(follower, incarnation, names)


class Connection:
    """To a modelled broker: what `klog.net.channel.Channel` is. Encoding and decoding are the real ones."""

    versions: ClassVar[Mapping[int, tuple[int, int]]] = {}

    def __init__(self, cluster: Surroundings, there: ModelBroker, client_id: str) -> None:
        self.address = f"{there.host}:{9092 + there.broker_id}"
        self._cluster = cluster
        self._there = there
        self._client_id = client_id
        self._ended = asyncio.Event()
        self._waiting: set[asyncio.Future[Any]] = set()
        there.connections.add(self)

    async def request(self, entity: Any, *, timeout_s: float | None = None, client_id: str | None = None) -> Any:
        cluster, loop = self._cluster, self._cluster.loop
        if self._ended.is_set():
            raise CannotConnect(f"{self.address}: the connection is closed")
        frame_bytes = len(codec.encode_request(entity, 1, client_id or self._client_id))
        loop.meter.charge(cluster.measured.channel_request_s)
        cluster.count_request(entity, frame_bytes)
        arrives_s = cluster.link.arrives_s(frame_bytes)
        future: asyncio.Future[bytes] = loop.create_future()
        self._waiting.add(future)
        loop.call_at(arrives_s, self._arrive, entity, future)
        try:
            async with asyncio.timeout(timeout_s):
                frame = await future
        except TimeoutError:
            raise TimedOut(f"{self.address}: no answer within {timeout_s:g} s") from None
        finally:
            self._waiting.discard(future)
        return codec.decode_response(frame, int(entity.__api_key__), 0)[1]

    def _arrive(self, entity: Any, future: asyncio.Future[bytes]) -> None:
        loop = self._cluster.loop
        with loop.uncounted():
            if future.done() or not self._there.is_up:
                return
            whole = self._cluster.decoded(entity) if isinstance(entity, EncodedRequest) else entity
            answer, at_s = self._there.answer(whole)
            head = SimpleNamespace(key=int(entity.__api_key__), correlation_id=1)
            frame = codec.encode_response(cast(Any, head), answer)[4:]
            at_s += self._cluster.assumed.network_s
        loop.call_at(at_s, lambda: None if future.done() else future.set_result(frame))

    def end(self) -> None:
        """The broker has closed it."""
        self._ended.set()
        for future in self._waiting:
            if not future.done():
                future.set_exception(CannotConnect(f"{self.address}: the broker closed the connection"))

    async def wait_closed(self) -> None:
        await self._ended.wait()

    async def close(self) -> None:
        self._ended.set()
        self._there.connections.discard(self)
