"""Who is about to name a broker finds out whether it listens, once for all who ask at the same time."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from klog.protocol.apis import ApiKey
from klog.protocol.codec import RequestHead
from klog.server import broker_probes as module
from klog.server.broker_probes import ADDRESSES_MAX, SILENCE_FRESH_S, BrokerProbes
from klog.server.dispatch import Request
from klog.server.former_brokers import FormerBrokers
from klog.server.handlers import metadata
from klog.server.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from klog.server.peer_probe import answers
from klog.server.runtime import Identity

LIES_AFTER_S = 60.0


class Listeners:
    """Listeners that count who comes, and places where nobody listens."""

    def __init__(self) -> None:
        self.visits = 0
        self.visited = asyncio.Event()
        self.brokers: dict[int, BrokerImage] = {}
        self._open: list[asyncio.Server] = []

    async def open(self, broker_id: int) -> None:
        server = await asyncio.start_server(self._visited, "127.0.0.1", 0)
        self._open.append(server)
        self._at(broker_id, server.sockets[0].getsockname()[1])

    def refuse(self, broker_id: int) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self._at(broker_id, taken.getsockname()[1])

    def _at(self, broker_id: int, port: int) -> None:
        self.brokers[broker_id] = BrokerImage(broker_id, "clients", 1, None, 100 + broker_id, "127.0.0.1", port)

    def _visited(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        self.visited.set()
        writer.write(b"answer")
        writer.close()

    def close(self) -> None:
        for one in self._open:
            one.close()


async def test_who_refuses_and_who_does_not() -> None:
    listeners, probes = Listeners(), BrokerProbes(Identity(1), LIES_AFTER_S)
    await listeners.open(2)
    listeners.refuse(3)
    assert probes.known(listeners.brokers, [2, 3]) is None
    assert await probes.refusing(listeners.brokers, [1, 2, 3, 4]) == {3, 4}  # 1 is this broker; 4 is not alive
    assert probes.known(listeners.brokers, [1]) == set() and probes.known(listeners.brokers, [4]) == {4}
    listeners.close()


async def test_a_crowd_costs_a_broker_one_connection() -> None:
    listeners, probes = Listeners(), BrokerProbes(Identity(1), LIES_AFTER_S)
    await listeners.open(2)
    found = await asyncio.gather(*(probes.refusing(listeners.brokers, [2]) for _ in range(500)))
    assert found == [set()] * 500
    await listeners.visited.wait()
    assert listeners.visits == 1
    listeners.close()


async def test_when_a_connection_ends_what_was_known_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while a probe is under way, that began before."""
    answers = [True, True, False]
    under_way = asyncio.Event()

    async def pretend(host: str, port: int, security: object) -> bool:
        under_way.set()
        await asyncio.sleep(0)
        return answers.pop(0)

    monkeypatch.setattr(module, "answers", pretend)
    brokers = {2: BrokerImage(2, "c", 1, None, 5, "dies", 1)}
    probes = BrokerProbes(Identity(1), LIES_AFTER_S)
    assert await probes.refusing(brokers, [2]) == set()
    probes.doubt(2)
    assert probes.known(brokers, [2]) is None
    under_way.clear()
    asking = asyncio.ensure_future(probes.refusing(brokers, [2]))
    await under_way.wait()
    probes.doubt(2)
    probes.doubt(7)
    assert await asking == {2} and answers == []


async def test_one_that_is_ending_lets_in_and_answers_nobody() -> None:
    """A killed process' listener may be closed after its connections: whoever came in between is reset."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    asking = asyncio.ensure_future(answers(*listener.getsockname()))
    asyncio.get_running_loop().call_later(0.03, listener.close)
    assert await asking is False


def pretending(monkeypatch: pytest.MonkeyPatch, outcome: bool | None) -> list[str]:
    """Every probe ends so; returns the hosts that are asked."""
    asked: list[str] = []

    async def pretend(host: str, port: int, security: object) -> bool | None:
        asked.append(host)
        return outcome

    monkeypatch.setattr(module, "answers", pretend)
    return asked


async def test_silence_refuses_nothing_and_is_waited_for_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pretending(monkeypatch, None)
    brokers = {2: BrokerImage(2, "c", 1, None, 5, "silent", 1)}
    probes = BrokerProbes(Identity(1), LIES_AFTER_S)
    for _ in range(3):
        assert await probes.refusing(brokers, [2]) == set()
        await asyncio.sleep(2 * module.FRESH_S)
    assert len(asked) == 1 and SILENCE_FRESH_S > 1


async def test_r6_who_refuses_for_as_long_as_a_session_lasts_and_is_registered_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretending(monkeypatch, False)
    one = BrokerImage(2, "c", 1, None, 5, "balancer", 1)
    probes = BrokerProbes(Identity(1), 0.2)
    assert await probes.refusing({2: one}, [2]) == {2}
    await asyncio.sleep(0.25)
    assert await probes.refusing({2: one}, [2]) == set()
    again = BrokerImage(2, "c", 1, None, 6, "balancer", 1)  # another incarnation is probed again
    assert await probes.refusing({2: again}, [2]) == {2}
    for incarnation in range(7, 7 + ADDRESSES_MAX):
        await probes.refusing({2: BrokerImage(2, "c", 1, None, incarnation, "balancer", 1)}, [2])
    assert len(probes._probes) == ADDRESSES_MAX


async def test_no_more_than_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many who wait already the answer comes at once, and names nobody who refuses."""
    pretending(monkeypatch, False)
    image = ClusterImage(brokers={2: BrokerImage(2, "c", 1, None, 5, "dead", 1)})
    image.topics["t"] = TopicImage("t", cast(Any, None), {0: PartitionImage(2, 7, (2,), (2,))}, {})
    image.known.set()
    loop = asyncio.get_running_loop()
    parts = SimpleNamespace(
        config=None,
        runtime=SimpleNamespace(loop=loop),
        image=image,
        probes=BrokerProbes(Identity(1), LIES_AFTER_S),
        former_brokers=FormerBrokers(loop.time),
        auto_creation=None,
    )
    handler = metadata.MetadataHandler(cast(Any, parts))
    request = Request(RequestHead(ApiKey.METADATA, 12, 0, None, 0), None, None)
    handler.doubts = metadata.DOUBTS_MAX
    began_s = loop.time()
    answer = await cast(Any, handler._answer_with_leaders(request, None))
    assert loop.time() - began_s < metadata.DOUBT_PATIENCE_S
    partition = answer["topics"][0]["partitions"][0]
    assert (partition["error_code"], partition["leader_id"], partition["leader_epoch"]) == (5, -1, 7)
    assert handler.doubts == metadata.DOUBTS_MAX
    handler.doubts = 0
    waiting = asyncio.ensure_future(cast(Any, handler._answer_with_leaders(request, ["t"])))
    await asyncio.sleep(0)
    assert handler.doubts == 1
    image.topics["t"] = TopicImage("t", cast(Any, None), {0: PartitionImage(1, 8, (1, 2), (1,))}, {})
    image.news.set()
    image.news = asyncio.Event()
    assert (await waiting)["topics"][0]["partitions"][0]["leader_id"] == 1
    assert handler.doubts == 0
