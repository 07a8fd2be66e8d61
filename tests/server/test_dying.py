"""A process that was killed may let connections in for a moment more, and ends them: whoever saw its end asks until it
refuses, and rests for nothing meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from klog.coordination.brokers import Broker, Registration
from klog.coordination.controller import ControllerTerm
from klog.errors import CannotConnect, TimedOut
from klog.net.channel import Channel
from klog.server import office as office_module
from klog.server import reach as reach_module
from klog.server.controller import links as links_module
from klog.server.controller.context import Context
from klog.server.controller.controller import Controller
from klog.server.controller.links import Link
from klog.server.office import Office

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
    """In place of `reach`: that connection, and after it whatever there is at the broker's own address."""
    connections = [connection]

    async def reach(_: object, there: Broker, *, timeout_s: float) -> Any:
        if connections:
            return connections.pop()
        return await Channel.connect(*there.probe_address, timeout_s=timeout_s)

    return reach


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Knocks are answered in time however loaded the machine is, and every rest lasts."""
    monkeypatch.setattr(reach_module, "KNOCK_WITHIN_S", FOR_EVER_S)
    for module, names in ((links_module, ("AGAIN_S", "PROBE_EVERY_S")), (office_module, ("AGAIN_S",))):
        for name in names:
            monkeypatch.setattr(module, name, FOR_EVER_S)


class Owner:
    """The controller: waits for what its link reports."""

    def __init__(self) -> None:
        self.context = SimpleNamespace(hosted=lambda _: ())
        self.has_answered, self.is_refused = asyncio.Event(), asyncio.Event()

    def refused(self, _: Registration) -> None:
        self.is_refused.set()

    def answered(self, _: Registration) -> None:
        self.has_answered.set()

    def silent(self, _: Registration) -> None: ...

    def told_facts(self, _: Registration, __: object) -> None: ...


def broker_of(knocks: Any) -> Any:
    config = SimpleNamespace(integer=lambda _: 30_000)
    return SimpleNamespace(broker_id=1, client_id="1", config=config, knocks=knocks, spawn=asyncio.ensure_future)


def test_the_controller_learns_of_an_end_without_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        dying, connection, owner = Dying(), Connection(), Owner()
        registration = await dying.listen()
        monkeypatch.setattr(links_module, "reach", first(connection))
        monkeypatch.setattr(links_module, "SHORT_S", -1.0)  # however soon it ends here, it has lasted
        monkeypatch.setattr(Link, "_say", lambda *_: asyncio.sleep(0))
        link = Link(cast(Any, owner), registration, 1, broker=broker_of(SimpleNamespace(doubt=lambda _: None)))
        link.start()
        try:
            async with asyncio.timeout(WITHIN_S):
                await owner.has_answered.wait()
                connection.end()
                await owner.is_refused.wait()
        finally:
            link.close()
            dying.close()
        assert dying.visits == ENDINGS

    asyncio.run(work())


def test_who_ends_connection_after_connection_is_not_asked_without_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        dying, connection, owner = Dying(), Connection(), Owner()
        registration = await dying.listen()
        rests = asyncio.Event()

        async def reach(*_: object, **__: object) -> Any:
            assert not rests.is_set()
            return connection

        async def rest(seconds: float) -> None:
            if seconds >= FOR_EVER_S:
                rests.set()
                await asyncio.Event().wait()

        connection.end()
        monkeypatch.setattr(links_module, "reach", reach)
        monkeypatch.setattr(links_module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": rest}))
        monkeypatch.setattr(Link, "_say", lambda *_: asyncio.sleep(0))
        link = Link(cast(Any, owner), registration, 1, broker=broker_of(SimpleNamespace(doubt=lambda _: None)))
        link.start()
        try:
            async with asyncio.timeout(WITHIN_S):
                await rests.wait()
        finally:
            link.close()
            dying.close()

    asyncio.run(work())


def test_a_controller_that_is_ending_is_dead_as_soon_as_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        dying, connection = Dying(), Connection()
        registration = await dying.listen()
        monkeypatch.setattr(office_module, "reach", first(connection))
        doubted: list[int] = []
        broker = broker_of(SimpleNamespace(doubt=doubted.append))
        broker.zookeeper = None
        connection.end()
        try:
            async with asyncio.timeout(WITHIN_S):
                with pytest.raises(CannotConnect) as raised:
                    await Office(broker)._converse(registration)
        finally:
            dying.close()
        assert raised.value.is_refused and doubted == [2] and dying.visits == ENDINGS

    asyncio.run(work())


def test_a_succession_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper may be slow just then; without another try the dead would be controller until its session is over."""

    async def work() -> None:
        dead = ControllerTerm(2, 1, 0, 0, session=5)
        registration = Registration(Broker(2, "127.0.0.1", 1, bind="127.0.0.1:1"), INCARNATION, dead.session, 0, 0)
        tries, enough = 0, asyncio.Event()

        async def refused(*_: object, **__: object) -> Any:
            raise CannotConnect("refused", is_refused=True)

        async def run(_: object, act: Any, *arguments: object) -> Any:
            return act(*arguments)

        def elect(_: Office, instead_of: ControllerTerm | None) -> ControllerTerm:
            nonlocal tries
            if instead_of is not None:
                tries += 1
                if tries == 1:
                    raise TimedOut("ZooKeeper did not answer")
                enough.set()
            return dead

        monkeypatch.setattr(office_module, "AGAIN_S", 0.001)
        monkeypatch.setattr(office_module, "reach", refused)
        monkeypatch.setattr(office_module, "brokers", SimpleNamespace(find=lambda *_: registration))
        monkeypatch.setattr(Office, "_elect", elect)
        broker = broker_of(SimpleNamespace(doubt=lambda _: None))
        broker.zookeeper, broker.executors, broker.fenced = None, SimpleNamespace(run=run), None
        office = Office(broker)
        office._term = dead
        attending = asyncio.create_task(office._attend(dead))
        try:
            async with asyncio.timeout(WITHIN_S):
                await enough.wait()
        finally:
            attending.cancel()

    asyncio.run(work())


def test_who_refuses_counts_as_dead_however_its_registration_was_read() -> None:
    """A read that meets a broker's registering finds its fence too old; later reads of the same one do not."""
    early = Registration(Broker(2, "127.0.0.1", 1, bind="127.0.0.1:1"), INCARNATION, 5, 0, fence_version=0)
    context = Context(cast(Any, None), registered={2: replace(early, fence_version=1)})
    told: list[str] = []
    controller: Any = SimpleNamespace(
        context=context,
        reassigner=SimpleNamespace(sweep=lambda _: None),
        unsettle=lambda _: None,
        tell_metadata=lambda: None,
        _broker=SimpleNamespace(tell=lambda kind, **_: told.append(kind)),
    )
    Controller.told_facts(controller, early, ())
    assert context.facts == {2: {}}
    Controller.refused(controller, early)
    assert not context.is_live(2)
    assert told == ["broker-down"]
    context.refused.clear()
    Controller.refused(controller, replace(early, incarnation=INCARNATION - 1))
    assert context.is_live(2), "an earlier incarnation says nothing of this one"
