"""A process that was killed may accept connections for a moment more, and ends them: a broker that saw its end connects
again until it is refused, without a pause."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from klog.config import BrokerConfig
from klog.coordination.brokers import Broker, Registration
from klog.coordination.controller_election import ControllerTerm
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import CannotConnect, TimedOut
from klog.net.channel import Channel
from klog.server import peer_probe
from klog.server.authority import Authority
from klog.server.broker_probes import BrokerProbes
from klog.server.controller import broker_channels, controller_election
from klog.server.controller.broker_channels import BrokerChannel
from klog.server.controller.context import KnownBroker
from klog.server.controller.controller import Controller
from klog.server.controller.controller_election import ControllerElection
from klog.server.controller.controller_state import ControllerState
from klog.server.controller.liveness import Liveness
from klog.server.controller.metadata_updates import MetadataUpdates
from klog.server.controller.peers import Peers
from klog.server.executors import Executors
from klog.server.former_brokers import FormerBrokers
from klog.server.image import ClusterImage
from klog.server.runtime import Identity, Runtime

FOR_EVER_S = 3600.0
"""A rest that no test outlasts."""
WITHIN_S = 30.0
ENDINGS = 4
"""Connections that are let in before they are refused."""
INCARNATION = 77


class Dying:
    """Ends so many connections without a word, and then listens no more."""

    def __init__(self) -> None:
        self.visits = 0
        self._server: asyncio.Server | None = None

    async def listen(self) -> Registration:
        self._server = await asyncio.start_server(self._visited, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return Registration(Broker(2, "127.0.0.1", port, bind=f"127.0.0.1:{port}"), INCARNATION, 5, 0, 0)

    def _visited(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        if self.visits == ENDINGS:
            self.close()
        writer.transport.abort()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


class Connection:
    """Answers as that broker, until it ends."""

    address = "broker 2"

    def __init__(self) -> None:
        self._ended = asyncio.Event()

    async def request(self, _: object, *, timeout_s: float | None = None) -> Any:
        return SimpleNamespace(broker_id=2, incarnation=INCARNATION, error_code=0, replicas=(), partitions=())

    async def wait_closed(self) -> None:
        await self._ended.wait()

    async def close(self) -> None:
        return

    def end(self) -> None:
        self._ended.set()


def first(connection: Connection) -> Any:
    """That connection, and after it whatever there is at the broker's own address."""
    connections = [connection]

    async def reach(there: Broker, /, *, timeout_s: float) -> Any:
        if connections:
            return connections.pop()
        return await Channel.connect(*there.probe_address, timeout_s=timeout_s)

    return reach


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes are answered in time however loaded the machine is, and every pause lasts."""
    monkeypatch.setattr(peer_probe, "ANSWER_WITHIN_S", FOR_EVER_S)
    monkeypatch.setattr(broker_channels, "AGAIN_S", FOR_EVER_S)
    monkeypatch.setattr(broker_channels, "PROBE_EVERY_S", FOR_EVER_S)
    monkeypatch.setattr(controller_election, "AGAIN_S", FOR_EVER_S)


class Doubts(BrokerProbes):
    """Notes which brokers are doubted."""

    def __init__(self) -> None:
        super().__init__(1, FOR_EVER_S)
        self.doubted: list[int] = []

    def doubt(self, broker_id: int) -> None:
        self.doubted.append(broker_id)


def runtime_of() -> Runtime:
    """Of broker 1, which asks ZooKeeper nothing."""
    config = BrokerConfig.parse({"broker.id": "1", "zookeeper.connect": "127.0.0.1:1"})
    zookeeper = ZooKeeper("127.0.0.1:1", 6000, lambda _: None)
    return Runtime(config, Identity(1), Executors(), zookeeper, asyncio.get_running_loop())


async def nothing(_: object) -> Any:
    raise AssertionError("this broker asks itself nothing")


def channel_to(registration: Registration, reach: Any, seen: Seen) -> BrokerChannel:
    runtime = runtime_of()
    peers = Peers(reach, Doubts(), nothing)
    state = ControllerState(runtime, lambda: None)
    updates = MetadataUpdates(state.context, runtime.broker_id, 1)
    return BrokerChannel(runtime, peers, state, cast(Any, seen), 1, registration, updates)


def election_of(runtime: Runtime, reach: Any, probes: BrokerProbes) -> ControllerElection:
    peers = Peers(reach, probes, nothing)
    authority = Authority(runtime)
    controller = Controller(runtime, ClusterImage(), authority, peers, FormerBrokers(runtime.loop.time))
    return ControllerElection(runtime, authority, peers, controller)


class Seen:
    """In place of `Liveness`: notes what the channel sees."""

    def __init__(self) -> None:
        self.has_answered, self.is_refused = asyncio.Event(), asyncio.Event()

    def refused(self, _: Registration) -> None:
        self.is_refused.set()

    def answered(self, _: Registration) -> None:
        self.has_answered.set()

    def disconnected(self, _: Registration) -> None: ...

    def described(self, _: Registration, __: object) -> None: ...


async def test_the_controller_learns_of_an_end_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    dying, connection, seen = Dying(), Connection(), Seen()
    monkeypatch.setattr(broker_channels, "SHORT_S", -1.0)  # however soon it ends here, it has lasted
    monkeypatch.setattr(BrokerChannel, "_send", lambda *_: asyncio.sleep(0))
    channel = channel_to(await dying.listen(), first(connection), seen)
    channel.start()
    try:
        async with asyncio.timeout(WITHIN_S):
            await seen.has_answered.wait()
            connection.end()
            await seen.is_refused.wait()
    finally:
        channel.close()
        dying.close()
    assert dying.visits == ENDINGS


async def test_between_connections_that_end_at_once_there_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    dying, connection, seen = Dying(), Connection(), Seen()
    pauses = asyncio.Event()

    async def reach(_: Broker, /, *, timeout_s: float) -> Any:
        assert not pauses.is_set()
        return connection

    async def pause(seconds: float) -> None:
        if seconds >= FOR_EVER_S:
            pauses.set()
            await asyncio.Event().wait()

    connection.end()
    monkeypatch.setattr(broker_channels, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": pause}))
    monkeypatch.setattr(BrokerChannel, "_send", lambda *_: asyncio.sleep(0))
    channel = channel_to(await dying.listen(), reach, seen)
    channel.start()
    try:
        async with asyncio.timeout(WITHIN_S):
            await pauses.wait()
    finally:
        channel.close()
        dying.close()


async def test_a_controller_that_is_ending_is_dead_as_soon_as_it_refuses() -> None:
    dying, connection, probes = Dying(), Connection(), Doubts()
    registration = await dying.listen()
    connection.end()
    try:
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(CannotConnect) as raised:
                await election_of(runtime_of(), first(connection), probes)._converse(registration)
    finally:
        dying.close()
    assert raised.value.is_refused and probes.doubted == [2] and dying.visits == ENDINGS


async def test_a_succession_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper may be slow just then; without another try the dead one is controller until its session ends."""
    dead = ControllerTerm(2, 1, 0, 0, session=5)
    registration = Registration(Broker(2, "127.0.0.1", 1, bind="127.0.0.1:1"), INCARNATION, dead.session, 0, 0)
    tries, enough = 0, asyncio.Event()

    async def refused(_: Broker, /, *, timeout_s: float) -> Any:
        raise CannotConnect("refused", is_refused=True)

    async def run(_: object, act: Any, *arguments: object) -> Any:
        return act(*arguments)

    def elect(_: ControllerElection, instead_of: ControllerTerm | None) -> ControllerTerm:
        nonlocal tries
        if instead_of is not None:
            tries += 1
            if tries == 1:
                raise TimedOut("ZooKeeper did not answer")
            enough.set()
        return dead

    monkeypatch.setattr(controller_election, "AGAIN_S", 0.001)
    monkeypatch.setattr(controller_election, "brokers", SimpleNamespace(find=lambda *_: registration))
    monkeypatch.setattr(ControllerElection, "_elect", elect)
    runtime = runtime_of()
    monkeypatch.setattr(runtime.executors, "run", run)
    elected = election_of(runtime, refused, Doubts())
    elected._term = dead
    attending = asyncio.create_task(elected._attend(dead))
    try:
        async with asyncio.timeout(WITHIN_S):
            await enough.wait()
    finally:
        attending.cancel()


async def test_a_broker_that_refuses_counts_as_dead_however_its_registration_was_read() -> None:
    """A read that meets a broker's registering finds its fence too old; later reads of the same one do not."""
    early = Registration(Broker(2, "127.0.0.1", 1, bind="127.0.0.1:1"), INCARNATION, 5, 0, fence_version=0)
    events: list[str] = []
    runtime = runtime_of()
    runtime.on_event = lambda kind, _: events.append(kind)
    state = ControllerState(runtime, lambda: None)
    liveness = Liveness(runtime, ClusterImage(), state, FormerBrokers(runtime.loop.time))
    context = state.context
    context.brokers = {2: KnownBroker(replace(early, fence_version=1))}
    liveness.described(early, ())
    assert context.brokers[2].facts == {}
    liveness.refused(early)
    assert not context.is_live(2)
    assert events == ["broker-down"]
    context.brokers[2].is_refused = False
    liveness.refused(replace(early, incarnation=INCARNATION - 1))
    assert context.is_live(2), "an earlier incarnation says nothing of this one"
